"""profiles calibrate: the chip at hand, measured; its figures take the data sheet's place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costmodel.cli.problem import AsJson
from costmodel.cli.profiles import profiles
from costmodel.cli.show import print_json, print_table, working
from costmodel.profile import user_folder

if TYPE_CHECKING:
    from costmodel.measure.calibrate import Calibration, Reading

COLUMNS = ("figure", "data sheet", "measured", "ratio", "ours / torch", "used")


@profiles.command()
def calibrate(
    profile: Annotated[
        str | None, typer.Option(help="Chip's profile; that of the GPU at hand by default.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write; in your own profiles' folder by default, where it counts."
        ),
    ] = None,
    units: Annotated[
        int | None,
        typer.Option(min=1, help="Measure a slice of so many multiprocessors, a chip of its own."),
    ] = None,
    device: Annotated[int, typer.Option(min=0, help="GPU number.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Measure bandwidths, latencies, launch floor and rates of the GPU at hand, in a minute.

    The file is an overlay: predictions for this chip use its figures from then on. Without --out
    it replaces an earlier calibration; beside a profile of your own it goes as NAME-measured, which
    --profile then names. Example: `costmodel profiles calibrate`
    """
    from costmodel.measure.calibrate import calibrate as run_calibrate
    from costmodel.measure.calibrate import write_calibration
    from costmodel.measure.calibration_file import check_file

    with working("measuring the GPU at hand"):
        found = run_calibrate(
            profile, device=device, units=units, before=lambda base: check_file(base, out)
        )
    path = None
    try:
        path = write_calibration(found, out)
    finally:  # the readings are told even where the file is refused
        _tell(found, path, as_json)


def _tell(found: Calibration, path: Path | None, as_json: bool) -> None:
    if as_json:
        print_json(found.as_dict() | {"file": None if path is None else str(path)})
        return
    print_table(f"{found.base}: {found.provenance['device']}", COLUMNS, table_rows(found.readings))
    for note in found.notes:
        typer.echo(f"beware: {note}")
    if path is not None:
        typer.echo(f"{path}, in {found.seconds:.0f} s")
        own = path.resolve().parent == user_folder().resolve()
        if not own or path.stem.lower() != found.base:
            typer.echo(f"used where it is named: --profile {path.stem if own else path}")


def table_rows(readings: tuple[Reading, ...]) -> list[tuple[str, ...]]:
    """One row a figure; what is used in predictions, and what is only told."""
    return [
        (
            f"{each.figure} [{each.unit}]",
            _text(each.sheet), _text(each.value), _text(each.ratio, 3), _text(each.agreement, 3),
            "yes" if each.written else "told",
        )
        for each in readings
    ]  # fmt: skip


def _text(value: float | None, digits: int = 4) -> str:
    return "" if value is None else f"{float(f'{value:.{digits}g}'):.6g}"
