"""What runs for a product and why: tuned answer, measured vendor's time, or prediction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from costmodel.config import KernelConfig
from costmodel.dropin.case import Case, bucket_of
from costmodel.dropin.choice import Choice
from costmodel.dropin.vendor import MARGIN, VendorTable, is_faster
from costmodel.profile import HardwareProfile
from costmodel.records.answers import Answer, recall
from costmodel.space.prune import broken_rule

Choose = Literal["auto", "triton", "vendor"]
CHOICES: tuple[str, ...] = ("auto", "triton", "vendor")


@dataclass(frozen=True)
class Decision:
    """What runs ("triton" or "vendor"), and why.

    ``config`` and ``predicted_us`` are of our kernel where one was considered, with ``source``:
    "measured" (tuned on this chip), "model", "physics" or "default". ``vendor_us`` is the vendor's
    measured time, of this shape where it was tuned, else of the nearest one measured. ``bucket``
    is what M was rounded up to.
    """

    runs: Literal["triton", "vendor"]
    reason: str
    config: KernelConfig | None = None
    predicted_us: float | None = None
    source: str | None = None
    vendor_us: float | None = None
    bucket: int | None = None

    def __str__(self) -> str:
        ours = "" if self.config is None else f" {self.config}"
        if self.predicted_us is not None:
            ours += f", {self.predicted_us:.1f} us from {self.source}"
        theirs = "" if self.vendor_us is None else f"; the vendor's GEMM {self.vendor_us:.1f} us"
        if self.runs == "vendor":
            ours = "" if self.config is None else f" instead of{ours}"
        return f"{self.runs}{ours}{theirs}: {self.reason}"

    def as_dict(self) -> dict[str, Any]:
        config = None if self.config is None else self.config.as_dict()
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {
            "config": config
        }


def tuned_answer(
    case: Case, m: int, alpha: float, beta: float, chip: HardwareProfile
) -> Answer | None:
    """The measured answer for this very M, else for its bucket, or None."""
    for size in dict.fromkeys((m, bucket_of(m))):
        problem = case.problem(size, alpha, beta)
        answer = recall(problem, chip)
        if answer is not None and broken_rule(problem, answer.config, chip) is None:
            return answer
    return None


def decisions(
    case: Case,
    m: int,
    choose: str,
    answer: Answer | None,
    choice: Choice,
    table: VendorTable | None,
) -> Iterator[Decision]:
    """Decisions in the order in which they are tried: the first whose kernel takes the tensors.

    The last is the vendor's. With "auto", the vendor's comes first where it is measured faster
    by more than the margin: by ``answer``, else by the nearest shape of ``table``.
    """
    rival = _rival(case, m, answer, table)
    vendor_us = None if rival is None else rival.vendor_us
    reason = "the best predicted that takes these tensors"
    ours = [
        Decision("triton", reason, config, time, choice.source)
        for config, time in zip(choice.configs, choice.time_us, strict=True)
    ]
    if answer is not None:
        tuned = Decision("triton", "tuned on this chip", answer.config, answer.time_us, "measured")
        ours.insert(0, tuned)
    ours = [replace(one, bucket=bucket_of(m), vendor_us=vendor_us) for one in ours]
    best = ours[0] if ours else Decision("vendor", "")
    last = replace(best, runs="vendor", reason="no configuration takes these tensors")
    if choose == "auto" and rival is not None and is_faster(rival.vendor_us, rival.ours_us):
        yield replace(last, reason=f"{rival.where}, where ours took {rival.ours_us:.1f} us")
    yield from ours
    yield last


@dataclass(frozen=True)
class _Rival:
    """The vendor's time beside ours, and where both were measured."""

    vendor_us: float
    ours_us: float
    where: str


def _rival(case: Case, m: int, answer: Answer | None, table: VendorTable | None) -> _Rival | None:
    if answer is not None and answer.vendor_us is not None:
        where = f"faster by more than {MARGIN:.0%} when it was tuned on this chip"
        return _Rival(answer.vendor_us, answer.time_us, where)
    near = table.nearest(m, case.n, case.k, case.dtype.itemsize) if table else None
    if near is None:
        return None
    shape = "x".join(map(str, near.shape))
    where = f"faster by more than {MARGIN:.0%} on the nearest measured shape, {shape}"
    return _Rival(near.vendor_us, near.ours_us, where)
