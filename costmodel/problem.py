"""What is to be computed: one GEMM, C[M, N] = alpha * A[M, K] B[K, N] + beta * C."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from costmodel.dtypes import DTYPES, LAYOUTS, OPERANDS, PRECISIONS, canonical_dtype
from costmodel.errors import ProblemError, unknown_name

#: the kernels count rows, columns and K steps in 32 bits and round them up to whole blocks and
#: parts: this leaves room for the largest of both
MAX_DIMENSION = 2**31 - 2**16


#: functions of the sums that a kernel applies before it stores them
ACTIVATIONS = ("relu", "gelu", "silu")
EPILOGUES = ("bias", *ACTIVATIONS, *(f"bias+{name}" for name in ACTIVATIONS))


def _dimension(name: str, value: object) -> int:
    if isinstance(value, bool):
        raise ProblemError(f"{name} must be a positive whole number, got {value!r}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ProblemError(
            f"{name} must be a positive whole number, got {value!r} ({type(value).__name__})"
        ) from None
    if not 1 <= number <= MAX_DIMENSION:
        raise ProblemError(f"{name} must be between 1 and {MAX_DIMENSION}, got {number}")
    return number


@dataclass(frozen=True)
class Gemm:
    """C[M, N] = alpha * A[M, K] B[K, N] + beta * C[M, N], ``batch`` times.

    ``layout`` has a letter for A and one for B, row-major: "n" stores A as [M, K] and B as
    [K, N]; "t" stores A as [K, M] and B as [N, K]. "nt" is a linear layer with its weight [N, K].
    C is always [M, N], row-major. ``out_dtype`` None means the input's type, bf16 for fp8 and
    int32 for int8. ``precision`` is for fp32 alone; None means tf32 where the chip has it, else
    ieee. ``accumulate`` is the type of the running sum. ``epilogue`` is what a kernel does before
    it adds beta * C: a bias of one value a column of C, an activation, or both ("bias+gelu"); a
    residual is beta = 1. Raises ``ProblemError`` for a bad size and ``UnknownNameError`` for a
    bad name.
    """

    m: int
    n: int
    k: int
    dtype: str = "fp16"
    layout: str = "nt"
    batch: int = 1
    out_dtype: str | None = None
    precision: str | None = None
    accumulate: str | None = None
    alpha: float = 1.0
    beta: float = 0.0
    epilogue: str | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in ("m", "n", "k", "batch"):
            put(self, name, _dimension(name.upper(), getattr(self, name)))
        put(self, "dtype", canonical_dtype(self.dtype))
        if self.dtype not in OPERANDS:
            raise ProblemError(f"dtype {self.dtype!r} can only be an output; use {OPERANDS}")
        put(self, "layout", str(self.layout).lower())
        if self.layout not in LAYOUTS:
            raise unknown_name("layout", self.layout, LAYOUTS)
        put(self, "out_dtype", canonical_dtype(self.out_dtype or DTYPES[self.dtype].default_out))
        if (self.dtype == "int8") != (self.out_dtype == "int32"):
            raise ProblemError(f"{self.dtype} cannot write {self.out_dtype}")
        if self.precision is not None:
            if self.precision not in PRECISIONS:
                raise unknown_name("precision", self.precision, PRECISIONS)
            if self.dtype != "fp32":
                raise ProblemError(f"precision is a choice for fp32 only, not for {self.dtype}")
        default = "int32" if self.dtype == "int8" else "fp32"
        put(self, "accumulate", canonical_dtype(self.accumulate or default))
        if self.accumulate not in ((default,) if default == "int32" else ("fp32", "fp16")):
            raise ProblemError(f"{self.dtype} cannot accumulate in {self.accumulate}")
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real):
                raise ProblemError(f"{name} must be a number, got {value!r}")
            if not math.isfinite(value):
                raise ProblemError(f"{name} must be finite, got {value!r}")
            put(self, name, float(value))
        if self.epilogue is not None:
            if self.epilogue not in EPILOGUES:
                raise unknown_name("epilogue", self.epilogue, EPILOGUES)
            if self.dtype == "int8":
                raise ProblemError("an epilogue needs a floating output, and int8 writes int32")

    @classmethod
    def of(cls, shape: Gemm | Sequence[int], **options: Any) -> Gemm:
        """Take a ``Gemm`` as it is, or an (m, n, k) sequence; ``options`` override its fields."""
        for name in options:
            if name not in cls.__dataclass_fields__:
                raise unknown_name("option", name, cls.__dataclass_fields__)
        if isinstance(shape, str):
            raise ProblemError(f"a shape is three numbers (m, n, k), got the text {shape!r}")
        if isinstance(shape, Gemm):
            return shape._with(options) if options else shape
        try:
            sizes = tuple(shape)
        except TypeError:
            raise ProblemError(f"a shape is (m, n, k) or a Gemm, got {shape!r}") from None
        if len(sizes) != 3:
            raise ProblemError(f"a shape is (m, n, k), got {len(sizes)} numbers: {shape!r}")
        return cls(*sizes, **options)

    @classmethod
    def from_conv2d(
        cls,
        image: Sequence[int],
        weight: Sequence[int],
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        **options: Any,
    ) -> Gemm:
        """The implicit GEMM of ``torch.nn.functional.conv2d``.

        ``image`` is [images, channels, height, width], ``weight`` [filters, channels / groups,
        rows, columns]; numbers for height and width, or one for both. A row of A is what one
        output pixel sees, B is the weight, and ``groups`` are products of their own (batch).
        ``options`` are the other fields of ``Gemm``. Raises ``ProblemError`` where the sizes do
        not fit each other. Operands that overlap are counted as often as pixels see them, as an
        explicit unfolding would read them.
        """
        if len(image) != 4 or len(weight) != 4:
            raise ProblemError(
                f"an image is [images, channels, height, width] and a weight [filters, "
                f"channels / groups, rows, columns]; got {tuple(image)} and {tuple(weight)}"
            )
        images, channels, *size = (_dimension("IMAGE", part) for part in image)
        filters, seen, *kernel = (_dimension("WEIGHT", part) for part in weight)
        if groups < 1 or channels != seen * groups or filters % groups:
            raise ProblemError(
                f"{channels} channels in {groups} groups do not fit a weight of {filters} filters "
                f"over {seen} channels"
            )
        steps, margins, gaps = (
            (value, value) if isinstance(value, int) else tuple(value)
            for value in (stride, padding, dilation)
        )
        pixels = 1
        for axis in range(2):
            reach = gaps[axis] * (kernel[axis] - 1) + 1
            room = size[axis] + 2 * margins[axis] - reach
            if room < 0 or steps[axis] < 1 or gaps[axis] < 1 or margins[axis] < 0:
                raise ProblemError(
                    f"a kernel of {kernel} with stride {steps}, padding {margins} and dilation "
                    f"{gaps} has no place on {size}"
                )
            pixels *= room // steps[axis] + 1
        return cls(
            images * pixels, filters // groups, seen * kernel[0] * kernel[1],
            **({"batch": groups} | options),
        )  # fmt: skip

    def _with(self, changes: dict[str, Any]) -> Gemm:
        """A copy with other fields; a type that was a default follows the new dtype."""
        if "dtype" in changes:
            default = Gemm(1, 1, 1, dtype=self.dtype)
            for name in ("out_dtype", "accumulate"):
                if getattr(self, name) == getattr(default, name):
                    changes = {name: None} | changes
            if canonical_dtype(changes["dtype"]) != "fp32":
                changes = {"precision": None} | changes
        return replace(self, **changes)

    @property
    def has_bias(self) -> bool:
        return (self.epilogue or "").startswith("bias")

    @property
    def activation(self) -> str | None:
        """The function of the sums, or None."""
        last = (self.epilogue or "").rpartition("+")[2]
        return last if last in ACTIVATIONS else None

    @property
    def element_bytes(self) -> int:
        return DTYPES[self.dtype].size_bytes

    @property
    def out_bytes(self) -> int:
        """Bytes of one element of C."""
        return DTYPES[str(self.out_dtype)].size_bytes

    @property
    def flops(self) -> float:
        """Multiply and add counted apart: 2 M N K a batch entry."""
        return 2.0 * self.m * self.n * self.k * self.batch

    @property
    def compulsory_bytes(self) -> float:
        """Operands and bias read once, and C written once (and read where beta is not 0)."""
        c_passes = 2 if self.beta else 1
        operands = (self.m * self.k + self.n * self.k) * self.element_bytes
        written = self.batch * (operands + c_passes * self.m * self.n * self.out_bytes)
        return float(written + (self.n * self.out_bytes if self.has_bias else 0))

    @property
    def arithmetic_intensity(self) -> float:
        """FLOP a byte of compulsory DRAM traffic: the roofline's abscissa."""
        return self.flops / self.compulsory_bytes

    def row_elements(self, operand: str) -> int:
        """Length of one stored row of "a", "b" or "c", in elements: its leading dimension."""
        if operand == "c":
            return self.n
        letter = self.layout["ab".index(operand)]
        outer = self.m if operand == "a" else self.n
        return self.k if (letter == "n") == (operand == "a") else outer

    def row_align(self, operand: str) -> int:
        """Largest power of two, up to 16, that divides a stored row's length in elements."""
        row = self.row_elements(operand)
        return min(row & -row, 16)

    def odd_row_bytes(self, operand: str, multiple: int) -> int:
        """Bytes past the last ``multiple`` in a stored row of "a", "b" or "c"; 0 for one row."""
        rows, size = {
            "a": (self.m if self.layout[0] == "n" else self.k, self.element_bytes),
            "b": (self.k if self.layout[1] == "n" else self.n, self.element_bytes),
            "c": (self.m, self.out_bytes),
        }[operand]
        # a single row has no step to the next; the next entry of a batch is one too
        if rows * self.batch == 1:
            return 0
        return self.row_elements(operand) * size % multiple

    def __str__(self) -> str:
        lead = f"{self.batch}x" if self.batch > 1 else ""
        tail = f" {self.epilogue}" if self.epilogue else ""
        return f"{lead}{self.m}x{self.n}x{self.k} {self.dtype} {self.layout}{tail}"
