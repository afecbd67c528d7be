"""Other tools' logs in, ours out: import, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from costmodel.cli.app import app
from costmodel.cli.problem import AsJson
from costmodel.cli.show import print_json
from costmodel.errors import RecordError

#: refused parts that are shown of each file; ``--json`` has all
_SHOWN = 10

Log = Annotated[Path | None, typer.Option(help="Log to append to; the user's own log by default.")]


@app.command("import")
def import_(
    format: Annotated[str, typer.Argument(help="t4, flagtune, triton, flaggems, vllm or sglang.")],
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of that format.")],
    log: Log = None,
    device_name: Annotated[
        str | None, typer.Option(help="The driver's name for the chip, where no file says it.")
    ] = None,
    units: Annotated[int | None, typer.Option(help="Multiprocessors the runs could use.")] = None,
    driver: Annotated[str | None, typer.Option(help="Driver version.")] = None,
    torch: Annotated[str | None, typer.Option(help="torch version.")] = None,
    triton: Annotated[str | None, typer.Option(help="Triton version.")] = None,
    shape: Annotated[
        str | None, typer.Option(metavar="M,N,K", help="What was computed, where no file says it.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="Element type of A and B.")] = None,
    layout: Annotated[str | None, typer.Option(help="A's letter and B's.")] = None,
    key: Annotated[str, typer.Option(help="Names of the numbers of an autotuner's key.")] = "M,N,K",
    source: Annotated[str | None, typer.Option(help="Name for the kernel that was timed.")] = None,
    as_json: AsJson = False,
) -> None:
    """Take what other tools measured into the log, and say what was taken, refused and lost.

    Rows of other kernels carry a `source` and do not train this package's model. Winners without
    times become claims, which `runs best` shows. An import may be repeated.

    Example: `costmodel import triton matmul.autotune.json --device-name "NVIDIA H200"`
    """
    from costmodel.paths import user_dir
    from costmodel.records.exchange import Given, import_files
    from costmodel.records.log import RunLog

    given = Given(
        device_name, units, driver, torch, triton, _shape(shape), dtype, layout,
        tuple(name.strip() for name in key.split(",")), source,
    )  # fmt: skip
    path = log or user_dir() / "log.jsonl"
    reports = import_files(format, files, RunLog(path), given=given)
    if as_json:
        print_json([report.as_dict() for report in reports])
    else:
        for report in reports:
            plain = report.as_dict()
            typer.echo(
                f"{report.file}: {plain['rows']} rows ({plain['failures']} failures) and "
                f"{plain['claims']} claims taken, {plain['known']} of them known; "
                f"{len(report.refused)} refused"
            )
            for refusal in report.refused[:_SHOWN]:
                typer.echo(f"  refused {refusal}")
            if len(report.refused) > _SHOWN:
                typer.echo(f"  and {len(report.refused) - _SHOWN} more; --json has all")
            for what, count in report.lost.items():
                typer.echo(f"  lost, for want of a column: {what} ({count})")
            for what in report.assumed:
                typer.echo(f"  assumed {what}")
    if not any(report.rows or report.claims for report in reports):
        raise RecordError(f"nothing was taken from {len(reports)} files; the reasons are above")


@app.command()
def export(
    format: Annotated[str, typer.Argument(help="t4.")],
    logs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[LOG]...", help="Logs or shards; the user's own log by default."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write to, a file for each problem.")] = Path(
        "."
    ),
    as_json: AsJson = False,
) -> None:
    """Write measured runs for other tools, a file for each problem, chip and software.

    Example: `costmodel export t4 runs.jsonl --out t4`
    """
    from costmodel.errors import unknown_name
    from costmodel.paths import atomic_write, user_dir
    from costmodel.records.exchange import t4
    from costmodel.records.store import frame_rows, read_runs

    if format != "t4":
        raise unknown_name("format", format, ["t4"])
    rows = frame_rows(read_runs(logs or [user_dir() / "log.jsonl"]))
    written = []
    for name, document in t4.export(rows):
        with atomic_write(out / name) as stream:
            stream.write(t4.dumps(document))
        written.append(str(out / name))
    if as_json:
        print_json({"rows": len(rows), "files": written})
    else:
        typer.echo(f"{len(rows)} rows in {len(written)} files in {out}; nothing was lost")


def _shape(text: str | None) -> tuple[int, int, int] | None:
    if text is None:
        return None
    try:
        m, n, k = (int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        raise RecordError(f"--shape is M,N,K, such as 4096,4096,4096; got {text!r}") from None
    return m, n, k
