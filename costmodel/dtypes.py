"""Element types by the names used everywhere in this package, with their sizes."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.errors import unknown_name


@dataclass(frozen=True)
class DType:
    """One element type: its size and the output type that a GEMM over it writes by default."""

    name: str
    size_bytes: int
    default_out: str
    #: spacing of 1.0: the rounding error that storing a result in this type costs at most, twice
    epsilon: float


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("fp16", 2, "fp16", 2.0**-10),
        DType("bf16", 2, "bf16", 2.0**-7),
        DType("fp32", 4, "fp32", 2.0**-23),
        DType("fp8_e4m3", 1, "bf16", 2.0**-3),
        DType("fp8_e5m2", 1, "bf16", 2.0**-2),
        DType("fp8_e4m3fnuz", 1, "bf16", 2.0**-3),
        DType("fp8_e5m2fnuz", 1, "bf16", 2.0**-2),
        DType("int8", 1, "int32", 1.0),
        DType("int32", 4, "int32", 1.0),
    )
}

#: types that may be a GEMM's operands (int32 is an output only)
OPERANDS: tuple[str, ...] = tuple(name for name in DTYPES if name != "int32")
PRECISIONS: tuple[str, ...] = ("tf32", "tf32x3", "ieee")
LAYOUTS: tuple[str, ...] = ("nn", "nt", "tn", "tt")

_ALIASES = {
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float": "fp32",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "float8_e4m3fnuz": "fp8_e4m3fnuz",
    "float8_e5m2fnuz": "fp8_e5m2fnuz",
}


def canonical_dtype(name: object) -> str:
    """The package's name for an element type; torch's dtypes and common aliases are accepted.

    Raises ``UnknownNameError`` with close matches.
    """
    text = str(name).removeprefix("torch.").lower()
    text = _ALIASES.get(text, text)
    if text not in DTYPES:
        raise unknown_name("dtype", name, [*DTYPES, *_ALIASES])
    return text
