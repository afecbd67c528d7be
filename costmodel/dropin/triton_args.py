"""What a call of somebody's GEMM kernel multiplies: sizes, types and layout from its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.dtypes import canonical_dtype
from costmodel.errors import ConfigError, UnknownNameError
from costmodel.problem import Gemm

#: parameter names, compared without regard to case
_SIZES = {"m": ("m",), "n": ("n",), "k": ("k",)}
_TENSORS = {
    "a": ("a_ptr", "a", "a_desc", "a_desc_or_ptr", "x_ptr", "x", "mat1", "input"),
    "b": ("b_ptr", "b", "b_desc", "b_desc_or_ptr", "w_ptr", "w", "y_ptr", "mat2", "weight"),
    "c": ("c_ptr", "c", "c_desc", "c_desc_or_ptr", "o_ptr", "out_ptr", "out", "z_ptr", "output"),
}
_STRIDES = {name: (f"stride_{name}",) for name in ("am", "ak", "bk", "bn")}


def problem_of_call(arguments: Mapping[str, Any], names: Mapping[str, str] | None = None) -> Gemm:
    """The problem of a kernel call, from its named arguments.

    ``names`` says which parameter is "m", "n", "k", "a", "b" or "c" where the usual names do not
    tell. The layout comes from strides ``stride_am, stride_ak, stride_bk, stride_bn`` where they
    are passed, else from the tensors' own, else it is "nn". Raises ``ConfigError`` where sizes or
    operands are not among the arguments, or the operands are of two types.
    """
    known = {target: name for name, target in (names or {}).items()}
    by_lower = {name.lower(): name for name in arguments}

    def find(target: str, usual: tuple[str, ...]) -> Any:
        if target in known:
            return arguments.get(known[target])
        hits = [by_lower[name] for name in usual if name in by_lower]
        return arguments[hits[0]] if hits else None

    sizes = {size: find(size, usual) for size, usual in _SIZES.items()}
    missing = [size.upper() for size, value in sizes.items() if not isinstance(value, int)]
    if missing:
        raise ConfigError(
            f"the kernel has no arguments {', '.join(missing)}: say names={{'rows': 'm', ...}}"
        )
    a, b, c = (find(name, usual) for name, usual in _TENSORS.items())
    types = [_dtype(tensor) for tensor in (a, b)]
    if None in types or types[0] != types[1]:
        told = " and ".join(str(kind) for kind in types)
        raise ConfigError(f"operands A and B must be of one type that is known here, got {told}")
    strides = {name: find(name, usual) for name, usual in _STRIDES.items()}
    m, n, k = (sizes[size] for size in "mnk")
    layout = _letter(strides["am"], strides["ak"], a, (m, k)) + _letter(
        strides["bk"], strides["bn"], b, (k, n)
    )
    out = _dtype(c)
    try:
        return Gemm(m, n, k, dtype=types[0] or "", layout=layout, out_dtype=out)
    except ValueError:  # an output type that no Gemm has: its size is what matters, little enough
        return Gemm(m, n, k, dtype=types[0] or "", layout=layout)


def _dtype(tensor: Any) -> str | None:
    kind = getattr(tensor, "dtype", None) or getattr(getattr(tensor, "base", None), "dtype", None)
    if kind is None:
        return None
    try:
        return canonical_dtype(kind)
    except UnknownNameError:
        return None


def _letter(row_step: Any, column_step: Any, tensor: Any, shape: tuple[int, int]) -> str:
    """Letter of a [rows, columns] operand: "n" where rows are contiguous, "t" where columns are."""
    if row_step is not None or column_step is not None:
        # Triton passes a stride of 1 as itself; one that is missing was left out for being 1
        return "t" if column_step not in (1, None) and row_step in (1, None) else "n"
    tensor = getattr(tensor, "base", tensor)
    size = tuple(getattr(tensor, "shape", ()))
    steps = tensor.stride() if callable(getattr(tensor, "stride", None)) else None
    if steps is None or len(size) != 2 or shape[0] == shape[1]:
        square = len(size) == 2 and steps is not None and steps[1] != 1
        return "t" if square else "n"
    if size == shape:
        return "n" if steps[1] == 1 else "t"
    return "t" if size == shape[::-1] and steps[1] == 1 else "n"
