"""profiles new: asks for what a chip's profile needs, and writes a commented file."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from costmodel.cli.profiles import profiles
from costmodel.errors import ProfileError, unknown_name
from costmodel.paths import atomic_write
from costmodel.profile.check import doubts
from costmodel.profile.keys import BACKENDS, CONFIDENCES, RATES, WORDS
from costmodel.profile.load import user_folder
from costmodel.profile.parse import parse_profile
from costmodel.profile.write import profile_text

#: attribute, its question, how an answer is read; those without a default have to be answered
_QUESTIONS: tuple[tuple[str, str, type, Any], ...] = (
    ("name", "Name, lower case with hyphens", str, None),
    ("vendor", "Vendor", str, None),
    ("model", "Model, as the vendor writes it", str, None),
    ("architecture", "Architecture", str, None),
    ("backend", f"Triton's backend ({', '.join(BACKENDS)})", str, None),
    ("target", "Triton's target, such as 90 or gfx942", str, None),
    ("unit_name", "What holds a block (SM, CU, core)", str, "unit"),
    ("units", "How many of them", int, None),
    ("warp_size", "Threads of a warp (1 without warps)", int, None),
    ("bandwidth_gb_s", "Memory bandwidth in GB/s", float, None),
    ("shared_per_block_bytes", "On-chip SRAM of a block in bytes", int, None),
)


@profiles.command()
def new(
    name: Annotated[str | None, typer.Option(help="Name of the chip and its file.")] = None,
    vendor: Annotated[str | None, typer.Option(help="Vendor.")] = None,
    model: Annotated[str | None, typer.Option(help="Model, as the vendor writes it.")] = None,
    architecture: Annotated[str | None, typer.Option(help="Architecture.")] = None,
    backend: Annotated[str | None, typer.Option(help=f"One of {', '.join(BACKENDS)}.")] = None,
    target: Annotated[str | None, typer.Option(help="Triton's target: 90, gfx942.")] = None,
    unit_name: Annotated[str | None, typer.Option(help="SM, CU, core.")] = None,
    units: Annotated[int | None, typer.Option(help="How many of them.")] = None,
    warp_size: Annotated[int | None, typer.Option(help="Threads of a warp.")] = None,
    bandwidth_gb_s: Annotated[float | None, typer.Option(help="Memory bandwidth.")] = None,
    shared_per_block_bytes: Annotated[int | None, typer.Option(help="SRAM of a block.")] = None,
    rate: Annotated[
        list[str] | None, typer.Option(help="Dense TFLOPS of a type: fp16=64; may be repeated.")
    ] = None,
    peak_clock_mhz: Annotated[float | None, typer.Option(help="Clock of the rates.")] = None,
    l2_bytes: Annotated[int | None, typer.Option(help="L2 cache.")] = None,
    memory_bytes: Annotated[int | None, typer.Option(help="Size of the memory.")] = None,
    registers_per_unit: Annotated[int | None, typer.Option(help="Registers of a unit.")] = None,
    max_threads_per_block: Annotated[int | None, typer.Option(help="Threads of a block.")] = None,
    max_warps_per_unit: Annotated[int | None, typer.Option(help="Warps of a unit.")] = None,
    mma: Annotated[
        list[str] | None, typer.Option(help=f"Matrix units: {', '.join(WORDS['mma'])}.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Where the figures come from.")] = None,
    confidence: Annotated[str, typer.Option(help=", ".join(CONFIDENCES))] = "reported",
    output: Annotated[
        Path | None, typer.Option(help="File to write; in your own profiles' folder by default.")
    ] = None,
    force: Annotated[bool, typer.Option(help="Replace a file that is there.")] = False,
) -> None:
    """Write a profile for a chip that has none; asks for what no option answers.

    Example: `costmodel profiles new --name my-chip --output my-chip.toml`
    """
    given = locals()
    values: dict[str, Any] = {
        key: given[key]
        for key in (
            "peak_clock_mhz", "l2_bytes", "memory_bytes", "registers_per_unit",
            "max_threads_per_block", "max_warps_per_unit", "mma",
        )
        if given[key] is not None
    }  # fmt: skip
    missing = [f"--{key.replace('_', '-')}" for key, *_, default in _QUESTIONS
               if given[key] is None and default is None]  # fmt: skip
    missing += ["--rate fp16=TFLOPS"] if not rate else []
    missing += ["--source"] if source is None else []
    try:
        for key, question, kind, default in _QUESTIONS:
            asked = given[key] is None and bool(missing)  # with every needed answer, none is asked
            answer = _ask(question, kind, default) if asked else given[key]
            values[key] = default if answer is None else answer
        rates = dict(_rate(text) for text in rate or [_ask("Dense rate, fp16=TFLOPS", str, None)])
        sentence = source or _ask("Where do the figures come from", str, None)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        raise ProfileError(
            f"nobody is there to ask for {', '.join(missing)}: give them as options"
        ) from None
    text = profile_text(values, rates, sentence, confidence)
    path = output or user_folder() / f"{values['name']}.toml"
    if path.exists() and not force:
        raise ProfileError(f"{path} is there already: --force replaces it")
    profile = parse_profile(tomllib.loads(text), str(path))
    with atomic_write(path) as stream:
        stream.write(text)
    typer.echo(str(path))
    for fault in doubts(profile, path.stem):
        typer.echo(f"beware: {fault.told}", err=True)


def _ask(question: str, kind: type, default: Any) -> Any:
    """One answer, asked on stderr: stdout is for the file's name."""
    return typer.prompt(question, type=kind, default=default, err=True)


def _rate(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    if name not in RATES:
        raise unknown_name("type of a rate", name, RATES)
    try:
        return name, float(number)
    except ValueError:
        raise ProfileError(f"--rate {text}: expected TFLOPS, such as {name}=64") from None
