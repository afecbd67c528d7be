"""The chips: profiles list, show, diff, validate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from costmodel.cli.app import app
from costmodel.cli.problem import AsJson
from costmodel.cli.show import print_json, print_table
from costmodel.profile import HardwareProfile, check_file, detect, load_profile, readable_profiles

profiles = typer.Typer(
    no_args_is_help=True,
    help="Hardware profiles: list, show, diff, validate, calibrate, new.\n\n"
    "Example: `costmodel profiles diff h200-sxm mi300x`",
)
app.add_typer(profiles, name="profiles")

Name = Annotated[str, typer.Argument(help="A profile's name or TOML file.")]


@profiles.command("list")
def list_them(as_json: AsJson = False) -> None:
    """Names of the profiles that can be asked for; a broken file of your own is told with why.

    Example: `costmodel profiles list`
    """
    chips, broken = readable_profiles()
    if as_json:
        print_json([*chips])
    else:
        rows = [
            (name, chip.model, f"{chip.units} {chip.unit_name}s", _rate(chip), _bandwidth(chip))
            for name, chip in chips.items()
        ]
        print_table("", ("name", "model", "units", "fp16 TFLOPS", "GB/s"), rows)
    for name, reason in broken.items():
        typer.echo(f"broken: {name}: {reason}", err=as_json)


@profiles.command()
def show(
    name: Annotated[
        str | None, typer.Argument(help="A profile's name or TOML file; the GPU at hand else.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Every figure of a profile with its confidence; what nobody knows is unknown.

    Without a name: the GPU at hand, and where it differs from its profile. `--json` adds the
    sources. Example: `costmodel profiles show h200-sxm`
    """
    found = detect() if name is None else None
    chip = found.profile if found else load_profile(str(name))
    figures = figures_of(chip)
    differences = [each._asdict() for each in found.differences] if found else []
    notes = list(found.notes) if found else []
    if as_json:
        evidence = {key: value._asdict() for key, value in sorted(chip.evidence.items())}
        more = {"differences": differences, "notes": notes} if found else {}
        print_json({"figures": figures, "evidence": evidence} | more)
        return
    rows = [
        (key, _text(value), chip.evidence[key].confidence if key in chip.evidence else "")
        for key, value in figures.items()
    ]
    print_table(f"{chip.name}: {chip.model}", ("figure", "value", "confidence"), rows)
    if differences:
        rows = [(d["figure"], _text(d["profile"]), _text(d["device"])) for d in differences]
        print_table("the device differs", ("figure", "profile", "device"), rows)
    for note in notes:
        typer.echo(note)


@profiles.command()
def diff(first: Name, second: Name, as_json: AsJson = False) -> None:
    """Figures that differ between two chips, and the second over the first.

    Example: `costmodel profiles diff a100-sxm-80gb h200-sxm`
    """
    one, two = (figures_of(load_profile(name)) for name in (first, second))
    names = [key for key in {**one, **two} if one.get(key) != two.get(key)]
    rows = [(key, one.get(key), two.get(key), _ratio(one.get(key), two.get(key))) for key in names]
    if as_json:
        columns = ("figure", "first", "second", "ratio")
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    texts = [
        (
            key,
            _text(a) if key in one else "none",
            _text(b) if key in two else "none",
            "" if ratio is None else f"{ratio:.3g}",
        )
        for key, a, b, ratio in rows
    ]
    print_table("", ("figure", first, second, "ratio"), texts)


@profiles.command()
def validate(
    file: Annotated[Path, typer.Argument(help="A profile's TOML file, or an overlay's.")],
    as_json: AsJson = False,
) -> None:
    """Every fault of a profile's file: its place, what is wrong, and what to do; status 1 if any.

    Example: `costmodel profiles validate my-chip.toml`
    """
    faults = check_file(file)
    if as_json:
        print_json({"file": str(file), "faults": [fault._asdict() for fault in faults]})
    elif faults:
        for fault in faults:
            typer.echo(f"{file}: {fault.told}")
        typer.echo(f"{len(faults)} fault{'s' if len(faults) > 1 else ''}")
    else:
        typer.echo(f"{file}: no faults")
    if faults:
        raise typer.Exit(1)


def figures_of(chip: HardwareProfile) -> dict[str, Any]:
    """All fields by name without the evidence; a rate is ``peak_tflops.<dtype>``.

    A chip's own memories and knobs are ``memories.<name>.<figure>`` and ``knobs.<name>``.
    """
    found: dict[str, Any] = {}
    for field in fields(chip):
        value = getattr(chip, field.name)
        if field.name == "evidence":
            continue
        if field.name == "memories":
            for memory in value:
                parts = {key: item for key, item in asdict(memory).items() if key != "name"}
                found |= {f"memories.{memory.name}.{key}": _plain(v) for key, v in parts.items()}
        elif isinstance(value, Mapping):
            found |= {f"{field.name}.{key}": _plain(item) for key, item in value.items()}
        else:
            found[field.name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:.6g}"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _ratio(first: Any, second: Any) -> float | None:
    numbers = all(
        isinstance(value, (int, float)) and not isinstance(value, bool) for value in (first, second)
    )
    return second / first if numbers and first else None


def _rate(chip: HardwareProfile) -> str:
    rate = chip.peak("fp16")
    return "" if rate is None else f"{rate:g}"


def _bandwidth(chip: HardwareProfile) -> str:
    return f"{chip.bandwidth_gb_s:g}"


import costmodel.cli.calibrating  # noqa: E402 - adds `profiles calibrate`
import costmodel.cli.new_profile  # noqa: E402, F401 - adds `profiles new`
