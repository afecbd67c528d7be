"""The chips: profiles list, profiles show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any

import typer

from costmodel.cli.app import app
from costmodel.cli.problem import AsJson
from costmodel.cli.show import print_json, print_table
from costmodel.profile import HardwareProfile, list_profiles, load_profile

profiles = typer.Typer(no_args_is_help=True, help="Hardware profiles: list them, show one.")
app.add_typer(profiles, name="profiles")


@profiles.command("list")
def list_them(as_json: AsJson = False) -> None:
    """Names of the profiles that can be asked for.

    Example: `costmodel profiles list`
    """
    chips = [load_profile(name) for name in list_profiles()]
    if as_json:
        print_json([chip.name for chip in chips])
        return
    rows = [
        (chip.name, chip.model, f"{chip.units} {chip.unit_name}s", f"{chip.bandwidth_gb_s:g}")
        for chip in chips
    ]
    print_table("", ("name", "model", "units", "GB/s"), rows)


@profiles.command()
def show(
    name: Annotated[str, typer.Argument(help="A profile's name or TOML file.")],
    as_json: AsJson = False,
) -> None:
    """Every figure of a profile with its confidence; what nobody knows is unknown.

    `--json` adds the sources. Example: `costmodel profiles show h200-sxm`
    """
    chip = load_profile(name)
    figures = figures_of(chip)
    if as_json:
        evidence = {key: value._asdict() for key, value in sorted(chip.evidence.items())}
        print_json({"figures": figures, "evidence": evidence})
        return
    rows = [
        (key, _text(value), chip.evidence[key].confidence if key in chip.evidence else "")
        for key, value in figures.items()
    ]
    print_table(f"{chip.name}: {chip.model}", ("figure", "value", "confidence"), rows)


def figures_of(chip: HardwareProfile) -> dict[str, Any]:
    """All fields by name, rates as ``peak_tflops.<dtype>``, without the evidence."""
    found: dict[str, Any] = {}
    for field in fields(chip):
        value = getattr(chip, field.name)
        if field.name == "evidence":
            continue
        if isinstance(value, Mapping):
            found |= {f"{field.name}.{key}": item for key, item in value.items()}
        else:
            found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


def _text(value: Any) -> str:
    if value is None:
        return "unknown"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
