"""What Triton's own autotuner measured: its cache files, and a listener for it at work.

With ``cache_results`` (or TRITON_CACHE_AUTOTUNING=1) it writes ``<kernel>.autotune.json``: the
key (values of the key arguments, then the types of the tensors) and, for every configuration, the
50 %, 20 % and 80 % quantiles in ms (triton/runtime/autotuner.py, check_disk_cache). A configuration
that did not compile or asked for too much has infinite times.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from costmodel.errors import CostModelError, RecordError, UnsupportedError
from costmodel.problem import Gemm
from costmodel.records.exchange.names import config_named, dtype_named, place, source_named
from costmodel.records.exchange.report import Given, ImportReport, run_id
from costmodel.records.log import RunLog, decode
from costmodel.records.schema import Row, make_row

_SUFFIX = ".autotune.json"
#: ``triton.testing.do_bench`` empties L2 before each launch by writing zeros to a buffer
PROTOCOL = "triton-do-bench/1"


def read(data: bytes, report: ImportReport, given: Given) -> None:
    """Take a cache file's timings. Raises ``RecordError`` for a file that is none."""
    content = decode(data)
    if not isinstance(content, Mapping) or not isinstance(content.get("configs_timings"), list):
        raise RecordError("not a cache file of Triton's autotuner: it has no configs_timings")
    key = content.get("key")
    if not isinstance(key, list):
        raise RecordError("not a cache file of Triton's autotuner: it has no key")
    kernel = Path(report.file).name.removesuffix(_SUFFIX)
    _take(kernel, key, content["configs_timings"], report, given)


def _take(
    kernel: str, key: Sequence[Any], timings: Sequence[Any], report: ImportReport, given: Given
) -> None:
    problem = problem_of_key(key, report, given)
    for number, entry in enumerate(timings):
        with report.at(f"configs_timings[{number}]"):
            config, times = entry
            report.rows.append(_row(problem, kernel, config, times, number, report, given))


def problem_of_key(key: Sequence[Any], report: ImportReport, given: Given) -> Gemm:
    """The problem behind an autotuner's key: its numbers by ``given.key``, its types in order.

    Raises ``RecordError`` where the numbers are not as many as the names.
    """
    numbers = [v for v in key if isinstance(v, int) and not isinstance(v, bool)]
    types = [v for v in key if isinstance(v, str) and v.startswith(("torch.", "tl."))]
    if len(numbers) != len(given.key):
        raise RecordError(
            f"the key holds {len(numbers)} numbers, and {','.join(given.key)} names "
            f"{len(given.key)}; say which they are with --key"
        )
    named = dict(zip((name.upper() for name in given.key), numbers, strict=True))
    if not {"M", "N", "K"} <= set(named):
        raise RecordError(f"M, N and K must be among the key's names, got {','.join(given.key)}")
    for name in sorted(set(named) - {"M", "N", "K", "B", "BATCH"}):
        report.lost[f"key {name}"] += 1
    dtype = given.dtype or (types[0] if types else None)
    if dtype is None:
        raise RecordError("the key holds no type; say it with --dtype")
    if given.layout is None:
        report.assume('layout "nn": the key does not say how A and B are stored')
    return Gemm(
        named["M"], named["N"], named["K"], dtype=dtype_named(dtype), layout=given.layout or "nn",
        batch=named.get("B", named.get("BATCH", 1)),
        out_dtype=dtype_named(types[2]) if len(types) > 2 else None,
    )  # fmt: skip


def _row(
    problem: Gemm,
    kernel: str,
    config: Mapping[str, Any],
    times: Any,
    number: int,
    report: ImportReport,
    given: Given,
) -> Row:
    """``config`` is a ``triton.Config``'s dictionary, ``times`` one number or three quantiles."""
    knobs = {**config.get("kwargs", {}), **{k: v for k, v in config.items() if k != "kwargs"}}
    found, foreign = config_named(knobs)
    quantiles = [float(t) for t in (times if isinstance(times, (list, tuple)) else [times])]
    facts: dict[str, Any] = {"time_us": quantiles[0] * 1e3}
    if not math.isfinite(quantiles[0]):
        facts = {
            "invalidity": "compile",
            "reason": "the autotuner gave it no time: it did not compile, or asked for too much",
        }
    elif len(quantiles) > 1:
        report.lost["20 % and 80 % quantiles"] += 1
    return make_row(
        problem, found, backend="triton", protocol=PROTOCOL, run=report.run, sequence=number,
        source=source_named(f"triton/{kernel}", foreign, given), timestamp=None,
        **place(given), **facts,
    )  # fmt: skip


def listener(
    log: RunLog, given: Given, before: Callable[..., Any] | None = None
) -> Callable[..., None]:
    """A function for ``triton.knobs.autotuning.listener`` that appends each tuning to ``log``.

    What cannot be logged becomes a warning: a kernel's launch must not fail for its log. Timings
    that came from the disk cache were measured before, and are not logged again. ``before`` is
    called first with the same arguments.
    """
    count = 0

    def heard(
        *, fn: Any, key: Any, best_config: Any, configs_timings: Mapping[Any, Any], duration: Any,
        cache_hit: bool, **more: Any,
    ) -> None:  # fmt: skip
        nonlocal count
        if before is not None:
            before(
                fn=fn, key=key, best_config=best_config, configs_timings=configs_timings,
                duration=duration, cache_hit=cache_hit, **more,
            )  # fmt: skip
        if cache_hit or not configs_timings:
            return
        kernel = str(getattr(fn, "__name__", fn))
        count += 1
        report = ImportReport(kernel, "triton", f"{run_id(kernel)}-{count}")
        entries = [(vars(config), times) for config, times in configs_timings.items()]
        try:
            _take(kernel, list(key), entries, report, given)
            log.append_many(report.rows)
        except CostModelError as error:
            warnings.warn(f"autotuning of {kernel} is not logged: {error}", stacklevel=2)
        for refusal in report.refused:
            warnings.warn(f"autotuning of {kernel}: {refusal} is not logged", stacklevel=2)

    return heard


def listen(log: RunLog, given: Given) -> None:
    """Log every autotuning of this process from now on, beside a listener that is there already.

    Raises ``UnsupportedError`` where this Triton calls none (3.8 is the first that does).
    """
    try:
        from triton import knobs
    except ImportError:
        raise UnsupportedError("there is no Triton here to listen to") from None
    if not hasattr(knobs.autotuning, "listener"):
        raise UnsupportedError(
            "this Triton calls no autotuning listener (3.8 and later do): set "
            "TRITON_CACHE_AUTOTUNING=1 and import the cache's files"
        )
    knobs.autotuning.listener = listener(log, given, knobs.autotuning.listener)
