"""Remembers for every kind of call what runs, so that a call made before costs a look-up."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch

from costmodel.config import KernelConfig
from costmodel.dropin.case import SMALL_BUCKETS, Case, Operand, bucket_of
from costmodel.dropin.choice import Choice, choose_alone, choose_together
from costmodel.dropin.decision import Decision, decisions, tuned_answer
from costmodel.dropin.eligible import IneligibleError, case_of, fp32_precision
from costmodel.dropin.vendor import VendorTable, out_dtype, vendor_product, vendor_table
from costmodel.errors import ConfigError, CostModelError
from costmodel.profile import HardwareProfile, detect_profile

Run = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None], torch.Tensor]

#: calls remembered: past it all are forgotten, which bounds the memory of a run of ever new sizes
_MOST_PLANS = 8192
#: configurations that may fail to compile or to load before the vendor's GEMM takes over
_MOST_FAILURES = 3
_FP32 = torch.float32


class Dispatcher:
    """Chooses, plans and runs products on devices of the types ``on``.

    ``profile`` None means that of the tensors' own device. A call like an earlier one (sizes,
    strides, types, device, alignment, settings) takes what that one took, without a lock; only
    the first of its kind waits for others that choose.
    """

    def __init__(
        self,
        profile: HardwareProfile | None = None,
        on: tuple[str, ...] = ("cuda",),
        table: VendorTable | None = None,
    ) -> None:
        self.on = on
        self._profile = profile
        self._table = table
        self._lock = threading.RLock()
        self.forget()

    def forget(self) -> None:
        """Drop everything remembered, as after ``tune``: the next calls choose again."""
        with self._lock:
            self._runs: dict[Any, Run] = {}
            self._choices: dict[Any, Choice] = {}
            self._chips: dict[torch.device, HardwareProfile] = {}
            self._failed: set[tuple[Case, KernelConfig]] = set()

    def product(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        out: torch.Tensor | None = None,
        choose: str = "auto",
        c: torch.Tensor | None = None,
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> torch.Tensor:
        """The product alpha * a b, plus beta * c where there is a ``c``, by what was chosen."""
        try:
            key = (
                *_kind(a),
                *_kind(b),
                choose,
                None if out is None else (_kind(out), _shares(out, a, b), out.requires_grad),
                None if c is None else (_kind(c), alpha, beta),
                fp32_precision() if a.dtype is _FP32 else None,
            )
            run = self._runs.get(key)
        except (RuntimeError, TypeError):  # no strides or no memory: sparse, or a stand-in
            return vendor_product(a, b, out, c, alpha, beta)
        if run is None:
            return self._first(key, a, b, out, choose, c, alpha, beta)
        return run(a, b, out, c)

    def explain(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        out: torch.Tensor | None = None,
        choose: str = "auto",
        c: torch.Tensor | None = None,
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> Decision:
        """What ``product`` would run, and why; nothing is run."""
        with self._lock:
            return self._decide(a, b, out, choose, c, alpha, beta)[0]

    def _first(
        self, key: Any, a: Any, b: Any, out: Any, choose: str, c: Any, alpha: float, beta: float
    ) -> torch.Tensor:
        """Choose and run, compiling under the lock: no kernel is compiled by two threads."""
        if a.is_cuda and torch.cuda.is_current_stream_capturing():
            # loading a kernel may allocate outside of torch, which a capture does not allow
            return vendor_product(a, b, out, c, alpha, beta)
        with self._lock:
            known = self._runs.get(key)
            if known is not None:
                return known(a, b, out, c)
            for _ in range(_MOST_FAILURES):
                decision, run, case = self._decide(a, b, out, choose, c, alpha, beta)
                try:
                    result = run(a, b, out, c)
                except Exception as error:
                    if decision.runs == "vendor" or isinstance(error, torch.OutOfMemoryError):
                        raise
                    assert case is not None and decision.config is not None
                    self._failed.add((case, decision.config))
                    warnings.warn(
                        f"{decision.config} failed on {tuple(a.shape)} x {tuple(b.shape)}, another "
                        f"takes over: {type(error).__name__}: {error}",
                        RuntimeWarning,
                        stacklevel=4,
                    )
                    continue
                return self._remember(key, run, result)
            run = _vendor_run(a, out, c, alpha, beta)
            return self._remember(key, run, run(a, b, out, c))

    def _remember(self, key: Any, run: Run, result: torch.Tensor) -> torch.Tensor:
        if len(self._runs) >= _MOST_PLANS:
            self._runs = {}
        self._runs[key] = run
        return result

    def _decide(
        self, a: Any, b: Any, out: Any, choose: str, c: Any, alpha: float, beta: float
    ) -> tuple[Decision, Run, Case | None]:
        vendor = _vendor_run(a, out, c, alpha, beta)
        if c is None:
            alpha, beta = 1.0, 0.0
        try:
            if choose == "vendor":
                raise IneligibleError("asked for")
            case = case_of(a, b, out, c, alpha, beta, self.on)
            chip = self._chip(a.device)
            choice = self._choice(case, int(a.shape[0]), chip, a.device)
        except (IneligibleError, CostModelError, ImportError) as error:
            return Decision("vendor", str(error)), vendor, None
        m = int(a.shape[0])
        answer = tuned_answer(case, m, alpha, beta, chip)
        table = self._table or vendor_table(chip.name)
        for decision in decisions(case, m, choose, answer, choice, table):
            if decision.runs == "vendor":
                return decision, vendor, case
            assert decision.config is not None
            if (case, decision.config) in self._failed:
                continue
            try:
                run = _planned(case, a, b, out, decision.config, alpha, beta, chip.units)
            except (ConfigError, ImportError):
                continue
            return decision, run, case
        raise AssertionError("the vendor's GEMM is the last decision")

    def _chip(self, device: torch.device) -> HardwareProfile:
        if self._profile is not None:
            return self._profile
        if device not in self._chips:
            with torch.cuda.device(device):
                self._chips[device] = detect_profile()
        return self._chips[device]

    def _choice(self, case: Case, m: int, chip: HardwareProfile, device: torch.device) -> Choice:
        bucket = bucket_of(m)
        if (case, bucket, device) not in self._choices:
            if bucket <= SMALL_BUCKETS[-1]:
                found = choose_together(case, chip)
            else:
                found = {bucket: choose_alone(case, bucket, chip)}
            self._choices |= {(case, size, device): choice for size, choice in found.items()}
        return self._choices[case, bucket, device]


def _shares(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether C lies in the memory of an operand."""
    storage = out.untyped_storage().data_ptr()
    return storage in (a.untyped_storage().data_ptr(), b.untyped_storage().data_ptr())


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What decides which kernel takes a tensor: equal for calls that may share a plan."""
    return (
        tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.data_ptr() & 15,
        tensor.is_neg(),
    )  # fmt: skip


def _vendor_run(a: Any, out: Any, c: Any, alpha: float, beta: float) -> Run:
    """The vendor's product for tensors of these kinds, without asking again what they are."""
    if c is None and out is None and out_dtype(a.dtype) == a.dtype:
        return lambda a, b, out, c: torch.matmul(a, b)
    return lambda a, b, out, c: vendor_product(a, b, out, c, alpha, beta)


def _planned(
    case: Case, a: Any, b: Any, out: Any, config: KernelConfig, alpha: float, beta: float,
    units: int,
) -> Run:  # fmt: skip
    """Raises ``ConfigError`` where the configuration cannot take the tensors."""
    from costmodel.dropin.plan import Plan

    m = int(a.shape[0])
    stand_ins = (
        case.a.stand_in(m, case.k, case.dtype, _leading(a, case.a)),
        case.b.stand_in(case.k, case.n, case.dtype, _leading(b, case.b)),
        case.out.stand_in(m, case.n, case.out_dtype, case.n if out is None else out.stride(0)),
    )
    run = Plan.of(case, stand_ins, config, alpha, beta, units).run
    if a.is_cuda and torch.cuda.device_count() > 1:
        return _on_its_device(run)
    return run


def _leading(tensor: torch.Tensor, operand: Operand) -> int:
    return int(tensor.stride(1 if operand.transposed else 0))


def _on_its_device(run: Run) -> Run:
    """Triton launches on the current device, which need not be the tensors'."""

    def there(a: Any, b: Any, out: Any, c: Any) -> torch.Tensor:
        if a.device.index == torch.cuda.current_device():
            return run(a, b, out, c)
        with torch.cuda.device(a.device):
            return run(a, b, out, c)

    return there
