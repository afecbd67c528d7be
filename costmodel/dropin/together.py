"""Kernels of the configurations to be measured, compiled together before the first is timed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def compile_together(
    kernel: Any, configs: Sequence[Any], arguments: Iterable[Any], keywords: Mapping[str, Any]
) -> None:
    """Compile ``kernel`` for each ``triton.Config``, on as many threads as there are cores.

    ``arguments`` and ``keywords`` (with ``grid``) are the call's, as a tuner's ``run`` has them. A
    tuner compiles one configuration after another, which for a few candidates is most of its time;
    Triton's passes and the assembler let go of Python's lock. What fails to compile is left for the
    tuner to meet, and so is everything where Triton cannot (before 3.5, or interpreted).
    """
    import triton

    mode = getattr(triton, "AsyncCompileMode", None)
    if mode is None or triton.knobs.runtime.interpret or len(configs) < 2:
        return
    arguments = list(arguments)
    keywords = {**keywords, "warmup": True}
    named = dict(zip(kernel.arg_names, arguments, strict=False))
    threads = min(len(configs), os.cpu_count() or 1)
    try:
        with ThreadPoolExecutor(threads) as pool, mode(pool, ignore_errors=True):
            for config in configs:
                knobs = config.all_kwargs()
                if config.pre_hook is not None:  # it may give descriptors their blocks
                    config.pre_hook({**named, **keywords, **knobs})
                kernel.run(*arguments, **keywords, **knobs)
    except Exception:  # the tuner's own launch says it, where its caller expects it
        return
