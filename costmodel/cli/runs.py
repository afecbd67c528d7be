"""The library of measured runs: runs best, runs compare, runs check, runs compact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.cli.app import app
from costmodel.cli.problem import (
    AsJson,
    Batch,
    Beta,
    DType,
    Epilogue,
    K,
    Layout,
    M,
    N,
    Precision,
    ProblemCommand,
    problem_of,
)
from costmodel.cli.show import print_json, print_table
from costmodel.errors import RecordError

if TYPE_CHECKING:
    import pandas as pd

    from costmodel.records.library import Best

runs = typer.Typer(
    no_args_is_help=True,
    help="The library of measured runs: ask, compare, check.\n\n"
    "Example: `costmodel runs best 4096 4096 4096`",
)
app.add_typer(runs, name="runs")

Logs = Annotated[
    list[Path] | None,
    typer.Option(
        "--log", help="Log, shard or folder (repeatable); the user's log and the shipped runs."
    ),
]
_SHOWN = 20


@runs.command(cls=ProblemCommand)
def best(
    m: M,
    n: N,
    k: K,
    dtype: DType = "fp16",
    layout: Layout = "nt",
    batch: Batch = 1,
    epilogue: Epilogue = None,
    beta: Beta = 0.0,
    precision: Precision = None,
    log: Logs = None,
    as_json: AsJson = False,
) -> None:
    """The best measured configuration of a shape on each chip and software, and who disagrees.

    Only runs of exactly this problem answer. Example: `costmodel runs best 4096 4096 4096`
    """
    from costmodel.records.claims import ClaimBook
    from costmodel.records.library import bests, claims_of, contradictions_among

    problem = problem_of(
        m, n, k, dtype, layout, batch, epilogue=epilogue, beta=beta, precision=precision
    )
    frame = _frame(log)
    found = bests(frame, problem)
    clashes = contradictions_among(frame, found)
    claims = claims_of(ClaimBook().read()[0], problem)
    if as_json:
        print_json(
            {
                "problem": str(problem),
                "best": [one.as_dict() for one in found],
                "contradictions": [clash.as_dict() for clash in clashes],
                "claims": [claim.as_dict() for claim in claims],
            }
        )
        return
    if not found:
        typer.echo(
            f"no run of exactly {problem} is known, and no other shape's answers for it; "
            "`costmodel predict` asks the model, `costmodel tune` measures"
        )
    else:
        columns = ("chip and software", "best configuration", "us", "TFLOPS", "of", "vendor us")
        print_table(str(problem), columns, [_cells(one) for one in found])
    for clash in clashes:
        typer.echo(_clash(clash.as_dict()))
    for claim in claims:
        said = str(claim.config) if claim.config else f"{claim.time_us or claim.vendor_us:.2f} us"
        typer.echo(f"{claim.source} claims, unmeasured here, on {claim.device_name}: {said}")


@runs.command()
def compare(
    a: Annotated[str, typer.Argument(help="A log, a chip, or COLUMN=VALUE.")],
    b: Annotated[str, typer.Argument(help="The other side.")],
    log: Logs = None,
    as_json: AsJson = False,
) -> None:
    """Two chips, software versions or users' logs on the shapes that both measured.

    Names every shape whose bests differ. Example: `costmodel runs compare triton=3.6.0 mine.jsonl`
    """
    from costmodel.records.comparison import compare as compare_sides
    from costmodel.records.comparison import side_of

    frame = _frame(log)
    found = compare_sides(side_of(a, frame), side_of(b, frame), (a, b)).as_dict()
    if as_json:
        print_json(found)
        return
    typer.echo(
        f"{found['problems']} shared problems: the best of {b} takes {found['best_ratio']:.3f} "
        f"times as long as the best of {a} (geometric mean)"
    )
    if found["ratio"] is not None:
        low, high = found["spread"]
        typer.echo(
            f"{found['measurements']} shared measurements: {found['ratio']:.3f} times as long in "
            f"the median, {low:.3f} to {high:.3f} for 80 % of them"
        )
    clashes = found["disagreements"]
    typer.echo(f"{len(clashes)} problems whose bests differ by over 0.5 %")
    for clash in clashes[:_SHOWN]:
        typer.echo(f"  {_clash(clash)}")
    if len(clashes) > _SHOWN:
        typer.echo(f"  and {len(clashes) - _SHOWN} more; --json has all")


@runs.command()
def check(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Logs, shards or folders.")],
    as_json: AsJson = False,
) -> None:
    """What of a log can be used: bad lines, times above the roofline, noise, drift, throttling.

    Exit status 1 where a line or row was left out. Example: `costmodel runs check runs.jsonl`
    """
    from costmodel.records.log import LineProblem
    from costmodel.records.quality import FLAGS, steadiness
    from costmodel.records.store import read_runs

    problems: list[tuple[str, LineProblem]] = []
    try:
        frame = read_runs(logs, on_problem=lambda file, problem: problems.append((file, problem)))
    except RecordError:
        if not problems:
            raise
        frame = None
    counts = {} if frame is None else steadiness(frame).counts()
    outcomes = {} if frame is None else frame["invalidity"].value_counts().to_dict()
    if as_json:
        print_json(
            {
                "rows": 0 if frame is None else len(frame),
                "outcomes": outcomes,
                "flags": counts,
                "left_out": [
                    {"file": file, "line": p.line_number, "reason": p.reason, "begins": p.excerpt}
                    for file, p in problems
                ],
            }
        )
    else:
        words = ", ".join(f"{count} {word}" for word, count in outcomes.items()) or "none"
        typer.echo(f"rows that can be used: {words}")
        for word, count in counts.items():
            typer.echo(f"{count} flagged {word}: {FLAGS[word]}")
        typer.echo(f"{len(problems)} lines and rows left out")
        for file, problem in problems:
            typer.echo(f"  {file}, {problem}")
    if problems:
        raise typer.Exit(1)


@runs.command()
def compact(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Logs, shards or folders.")],
    out: Annotated[Path, typer.Option(help="Folder for the shards.")],
    stem: Annotated[str, typer.Option(help="How the shards' names begin.")] = "runs",
    as_json: AsJson = False,
) -> None:
    """Write logs as Parquet shards, each row once; the logs stay as they are.

    Example: `costmodel runs compact runs.jsonl --out shards`
    """
    from costmodel.records.store import read_runs, write_shards

    left_out: list[str] = []
    frame = read_runs(logs, on_problem=lambda file, problem: left_out.append(f"{file}, {problem}"))
    once = frame.drop_duplicates()
    paths = write_shards(once, out, stem)
    taken = sum(path.stat().st_size for path in paths)
    if as_json:
        print_json(
            {"rows": len(once), "repeated": len(frame) - len(once), "left_out": left_out}
            | {"shards": [str(path) for path in paths], "bytes": taken}
        )
        return
    typer.echo(
        f"{len(once)} rows in {len(paths)} shards of {taken} bytes in {out}; "
        f"{len(frame) - len(once)} repeated, {len(left_out)} left out"
    )
    for text in left_out:
        typer.echo(f"  left out: {text}")


def _frame(logs: list[Path] | None) -> pd.DataFrame:
    """The runs to ask: those given, else the user's log and the shipped ones."""
    import pandas as pd

    from costmodel.paths import user_dir
    from costmodel.records.store import packaged_runs, read_runs

    if logs:
        return read_runs(logs)
    own = user_dir() / "log.jsonl"
    shipped = packaged_runs()
    if not own.exists() or not own.stat().st_size:
        return shipped
    return pd.concat([read_runs(own), shipped], ignore_index=True)


def _cells(one: Best) -> list[str]:
    where = [str(one.setting["device_name"])]
    where += [f"{name} {one.setting[name]}" for name in ("triton", "driver") if one.setting[name]]
    where += [str(one.setting["source"])] if one.setting["source"] else []
    rate = one.problem.flops / (one.time_us * 1e6)
    vendor = "" if one.vendor_us is None else f"{one.vendor_us:.2f}"
    return [
        ", ".join(where), str(one.config), f"{one.time_us:.2f}", f"{rate:.1f}", str(one.configs),
        vendor,
    ]  # fmt: skip


def _clash(clash: dict[str, Any]) -> str:
    """A contradiction as a sentence."""
    texts = []
    for name, config, cost in zip(
        clash["sides"], clash["best"], clash["others_best_costs"], strict=True
    ):
        price = "did not measure the other's" if cost is None else f"the other's takes {cost:.3f}x"
        texts.append(f"{name}: {config} ({price})")
    kind = "contradiction" if clash["measured"] else "undecided"
    return f"{kind}, {clash['problem']}: " + " against ".join(texts)
