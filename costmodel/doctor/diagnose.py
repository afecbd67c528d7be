"""``diagnose``: finds out what it was given, and asks those who know that kind."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from costmodel.config import KernelConfig
from costmodel.doctor import machine_code, runs
from costmodel.doctor.comparison import comparison_faults
from costmodel.doctor.configuration import configuration_faults
from costmodel.doctor.messages import message_faults
from costmodel.errors import ConfigError, RecordError
from costmodel.explain.case import Cause
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile, resolve_profile
from costmodel.records.log import LineProblem

#: a log or a kernel's text is far shorter
MOST_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Diagnosis:
    """What was looked at, and every fault found. ``kind`` is "unknown" where nothing was known.

    ``healthy`` is a clean bill: the kind was recognised and nothing was found.
    """

    kind: str
    looked_at: str
    findings: tuple[Cause, ...]

    @property
    def healthy(self) -> bool:
        return self.kind != "unknown" and not self.findings

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as ``costmodel doctor --json`` prints them."""
        return asdict(self) | {"healthy": self.healthy}

    def _repr_html_(self) -> str:
        from costmodel.markup import table, tag

        rows = [(cause.name, cause.evidence, cause.remedy) for cause in self.findings]
        told = f"{self.kind}: {self.looked_at}" + ("; no fault found" if self.healthy else "")
        return tag("p", told) + table(rows, ("fault", "evidence", "remedy"))

    def text(self) -> str:
        """At most 100 columns."""
        from costmodel.explain.text import paragraph

        lines = paragraph("looked at", f"{self.kind}: {self.looked_at}")
        if self.healthy:
            lines += paragraph("healthy", "no fault found")
        elif not self.findings:
            lines += paragraph(
                "unknown",
                "no fault that is known here; give the whole text, a log (.jsonl, .parquet), PTX, "
                "TTGIR, or --config with --problem",
            )
        for cause in self.findings:
            lines += ["", *paragraph(cause.name, "")]
            lines += paragraph("  evidence", cause.evidence)
            lines += paragraph("  remedy", cause.remedy)
        return "\n".join(lines)


def diagnose(
    source: str | os.PathLike[str] | None = None,
    *,
    problem: Gemm | Iterable[int] | None = None,
    profile: str | os.PathLike[str] | HardwareProfile | None = None,
    config: KernelConfig | str | None = None,
) -> Diagnosis:
    """Name the faults of what ``source`` holds, each with evidence and remedy.

    ``source`` is a file (a ``Path``) or a text itself: an error message, a compiler's log, PTX,
    Triton's GPU dialect (TTGIR), AMD assembly, a configuration, or measured rows (.jsonl,
    .parquet). With ``problem``, ``profile`` and ``config`` the configuration is judged too.

    >>> diagnose("out of resource: shared memory, Required: 262144, Hardware limit: 232448. "
    ...          "Reducing block sizes or `num_stages` may help.").findings[0].name
    'out_of_shared_memory'

    Raises ``RecordError`` for a file that cannot be read, ``ConfigError`` where a configuration
    comes without its problem.
    """
    chip = resolve_profile(profile) if profile is not None else None
    wanted = Gemm.of(problem) if problem is not None else None  # type: ignore[arg-type]
    given = KernelConfig.parse(config) if isinstance(config, str) else config
    parts: list[Diagnosis] = []
    if isinstance(source, os.PathLike):
        parts.append(_of_file(Path(source)))
    elif source is not None:
        named = _as_config(source)
        if named is None:
            parts.append(_of_text(source))
        given = named or given
    if given is not None:
        if wanted is None or chip is None:
            raise ConfigError(
                "a configuration is judged for a problem on a chip: give problem and profile too"
            )
        found = tuple(configuration_faults(wanted, given, chip))
        parts.append(Diagnosis("configuration", f"{given} for {wanted} on {chip.name}", found))
    if not parts:
        raise ConfigError("nothing to look at: give a file, a text, or a configuration")
    return _together(parts)


def _together(parts: list[Diagnosis]) -> Diagnosis:
    known = [part for part in parts if part.kind != "unknown"] or parts
    return Diagnosis(
        " and ".join(part.kind for part in known),
        "; ".join(part.looked_at for part in known),
        tuple(cause for part in known for cause in part.findings),
    )


def _of_file(path: Path) -> Diagnosis:
    if not path.is_file():
        raise RecordError(f"there is no file {path}")
    if path.stat().st_size > MOST_BYTES:
        raise RecordError(f"{path} is larger than {MOST_BYTES} bytes")
    if path.suffix in (".jsonl", ".parquet"):
        return _of_rows(path)
    return _of_text(path.read_text(encoding="utf-8", errors="replace"))


def _of_rows(path: Path) -> Diagnosis:
    from costmodel.records.store import read_runs

    left_out: list[LineProblem] = []
    try:
        frame = read_runs(path, on_problem=lambda file, problem: left_out.append(problem))
    except RecordError:
        if not left_out:
            raise
        frame = None
    findings = list(runs.unreadable(left_out))
    if frame is None:
        return Diagnosis("measured rows", str(path), tuple(findings))
    checks = (
        runs.failures, runs.unknown_chips, runs.unsteady, runs.behind_vendor, runs.size_collapse,
        comparison_faults,
    )  # fmt: skip
    for check in checks:
        findings += check(frame)
    shapes = frame[["m", "n", "k"]].drop_duplicates()
    looked = f"{len(frame)} rows of {len(shapes)} shape{'s' * (len(shapes) != 1)} in {path.name}"
    return Diagnosis("measured rows", looked, tuple(_once(findings)))


def _of_text(text: str) -> Diagnosis:
    lines = f"{len(text.splitlines())} lines"
    if machine_code.is_ptx(text):
        report, found = _spills_of(text), list(machine_code.ptx_faults(text))
        told = lines if report is None else f"{lines}, assembled by ptxas"
        found += machine_code.ptxas_faults(report or "")
        return Diagnosis("PTX", told, tuple(_once(found)))
    kinds = (
        ("AMD assembly", machine_code.is_amdgcn, machine_code.amdgcn_faults),
        ("TTGIR", machine_code.is_ttgir, machine_code.ttgir_faults),
        ("ptxas report", machine_code.is_ptxas_report, machine_code.ptxas_faults),
    )
    for kind, is_kind, faults in kinds:
        if is_kind(text):
            return Diagnosis(kind, lines, tuple(_once(faults(text))))
    found = list(message_faults(text))
    return Diagnosis("error text" if found else "unknown", lines, tuple(found))


def _spills_of(ptx: str) -> str | None:
    """What ptxas says of the code, where Triton's wheel is at hand; None where it is not."""
    try:
        from costmodel.compiler.survey import ptxas_report
    except ImportError:
        return None
    try:
        return ptxas_report(ptx)
    except (ImportError, OSError, RuntimeError):
        return None


def _once(causes: Iterable[Cause]) -> Iterator[Cause]:
    """Each name once, its first finding."""
    told: set[str] = set()
    for cause in causes:
        if cause.name not in told:
            told.add(cause.name)
            yield cause


def _as_config(text: str) -> KernelConfig | None:
    """A text that is one configuration in our words or in Triton's, and nothing else."""
    line = text.strip()
    if not line or "\n" in line or len(line) > 500:
        return None
    try:
        return KernelConfig.parse(line)
    except (ConfigError, LookupError):
        pass
    from costmodel.dropin.knob_names import config_of_parameters

    if line.startswith("{"):
        try:
            found = json.loads(line)
        except ValueError:
            return None
        return config_of_parameters(found) if isinstance(found, dict) else None
    pairs = re.findall(r"(\w+)\s*[:=]\s*(\d+)", line)
    return config_of_parameters({name: int(value) for name, value in pairs}) if pairs else None
