"""Kernels of the configurations to be measured, compiled together before the first is timed."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

#: by hand: each compilation takes memory of its own
_MOST_THREADS = 16


def compile_for_tuner(
    tuner: Any, configs: Sequence[Any], arguments: Iterable[Any], keywords: Mapping[str, Any]
) -> None:
    """``compile_together`` for a Triton tuner about to measure ``configs`` in its ``run``.

    Nothing is done for one that keeps its results on disk, which asks what to measure before it
    looks there; nor in its ``warmup``, which measures nothing.
    """
    running = keywords.get("warmup") is False  # as a launch says it; ``warmup`` says nothing
    if running and not getattr(tuner, "cache_results", False):
        compile_together(tuner.fn, configs, arguments, keywords)


def compile_together(
    kernel: Any, configs: Sequence[Any], arguments: Iterable[Any], keywords: Mapping[str, Any]
) -> None:
    """Compile ``kernel`` for each ``triton.Config``, a thread each as far as there are cores.

    ``arguments`` and ``keywords`` (with ``grid``) are the call's, as a tuner's ``run`` has them. A
    tuner compiles one configuration after another, which for a few candidates is most of its time;
    Triton's passes and the assembler let go of Python's lock. A configuration that fails here is
    left for the tuner to meet, and so is everything where Triton cannot (before 3.5, interpreted).
    """
    import triton

    mode = getattr(triton, "AsyncCompileMode", None)
    if mode is None or triton.knobs.runtime.interpret or len(configs) < 2:
        return
    # the mode is a context variable that Triton leaves set when it is interrupted: not in ours
    contextvars.copy_context().run(_compile, mode, kernel, configs, list(arguments), keywords)


def _compile(
    mode: Any,
    kernel: Any,
    configs: Sequence[Any],
    arguments: list[Any],
    keywords: Mapping[str, Any],
) -> None:
    named = dict(zip(getattr(kernel, "arg_names", ()), arguments, strict=False))
    with ThreadPoolExecutor(min(len(configs), _cores(), _MOST_THREADS)) as pool:
        try:
            with mode(pool, ignore_errors=True):
                for config in configs:
                    _submit(kernel, config, arguments, named, keywords)
        except Exception:  # of a hook after a compilation: the tuner's own launch meets it again
            return


def _submit(
    kernel: Any, config: Any, arguments: list[Any], named: dict[str, Any],
    keywords: Mapping[str, Any],
) -> None:  # fmt: skip
    knobs = config.all_kwargs()
    try:
        if config.pre_hook is not None:  # it may give descriptors their blocks
            config.pre_hook({**named, **keywords, **knobs})
        kernel.run(*arguments, **{**keywords, "warmup": True}, **knobs)
    except Exception:  # as above, and the others go on
        return


def _cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1
