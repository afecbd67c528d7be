"""The arguments that name a problem and a chip, shared by the commands that take them."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from costmodel.problem import Gemm

M = Annotated[int, typer.Argument(metavar="M", help="Rows of C.", show_default=False)]
N = Annotated[int, typer.Argument(metavar="N", help="Columns of C.", show_default=False)]
K = Annotated[int, typer.Argument(metavar="K", help="Length of the sums.", show_default=False)]
Profile = Annotated[
    str | None,
    typer.Option(help="Chip: a profile's name or TOML file; the GPU at hand by default."),
]
DType = Annotated[str, typer.Option(help="Element type of A and B.")]
Layout = Annotated[str, typer.Option(help="A's letter and B's: nn, nt, tn or tt.")]
Batch = Annotated[int, typer.Option(help="Number of equal products.")]
Epilogue = Annotated[
    str | None,
    typer.Option(help="Before the store: bias, relu, gelu, silu, or bias+relu and so on."),
]
Beta = Annotated[float, typer.Option(help="Factor of the C, or residual, that is added.")]
Precision = Annotated[
    str | None, typer.Option(help="How fp32 is multiplied: tf32, tf32x3 or ieee.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

_NEGATIVE = re.compile(r"-\d+")


class ProblemCommand(TyperCommand):
    """A command with sizes among its arguments: -1 is then a (bad) size and no option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if any(_NEGATIVE.fullmatch(arg) for arg in args):
            ctx.ignore_unknown_options = True
        return super().parse_args(ctx, args)


def problem_of(m: int, n: int, k: int, dtype: str, layout: str, batch: int, **options: Any) -> Gemm:
    """The problem that a command line names. Raises as ``Gemm``."""
    return Gemm(m, n, k, dtype=dtype, layout=layout, batch=batch, **options)
