"""How pictures look, and what a picture is: fit for print, for screens and for the colour-blind."""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path
from typing import Any

from costmodel.errors import CostModelError

#: Okabe and Ito's palette, told apart by the colour-blind; in grey the order is dark to light
COLOURS = {
    "model": "#0072B2", "physics": "#D55E00", "random": "#999999", "ideal": "#000000",
    "start": "#CC79A7", "loop": "#0072B2", "epilogue": "#009E73", "split": "#E69F00",
    "wait": "#56B4E9", "unhidden": "#F0E442",
}  # fmt: skip
#: beside each colour, so that a grey print tells parts apart
HATCHES = {
    "start": "//",
    "loop": "",
    "epilogue": "\\\\",
    "split": "xx",
    "wait": "..",
    "unhidden": "--",
}
SIZE = (6.4, 4.0)
DPI = 150
#: endings of pictures that matplotlib writes everywhere
ENDINGS = (".png", ".svg", ".pdf")
#: read when a picture is drawn; the salt makes the same picture the same file
_STYLE: Any = {"hatch.linewidth": 0.5, "svg.hashsalt": "costmodel"}


class Picture:
    """A drawn figure: ``save`` it, or let a notebook show it."""

    def __init__(self, figure: Any) -> None:
        self.figure = figure

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file; its ending says in which format."""
        self._write(path, dpi=DPI)

    def svg(self) -> str:
        """The picture as SVG text."""
        buffer = io.StringIO()
        self._write(buffer, format="svg", dpi=DPI)
        return buffer.getvalue()

    def data_uri(self) -> str:
        """The picture for ``<img src=...>``, so that a page needs no other file."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg().encode()).decode()

    def _write(self, target: Any, **options: Any) -> None:
        from matplotlib import rc_context

        with rc_context(_STYLE):
            self.figure.savefig(target, **options)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self._write(buffer, format="png", dpi=100)
        return buffer.getvalue()


def new_figure(
    size: tuple[float, float] = SIZE, rows: int = 1, columns: int = 1
) -> tuple[Any, Any]:
    """A figure that no window system knows, and its axes (an array where there are several)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns)
    for one in [axes] if rows * columns == 1 else axes.ravel():
        one.grid(True, which="major", linewidth=0.4, alpha=0.5)
        one.set_axisbelow(True)
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def check_plot_file(path: Path, endings: tuple[str, ...] = ENDINGS) -> None:
    """Raise ``CostModelError`` before any work for a picture that could not be written."""
    import importlib.util

    if importlib.util.find_spec("matplotlib") is None:
        raise CostModelError("pictures need matplotlib: install the package's extra 'plot'")
    if path.suffix not in endings or not path.parent.is_dir():
        raise CostModelError(
            f"{path} cannot be drawn: name a file in a folder that exists, ending in "
            f"{', '.join(endings)}"
        )


def finished(figure: Any, path: str | os.PathLike[str] | None) -> Picture:
    """The picture, written where a path is given."""
    picture = Picture(figure)
    if path is not None:
        picture.save(path)
    return picture
