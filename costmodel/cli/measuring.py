"""Commands that need a GPU: collect."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.cli.app import app

if TYPE_CHECKING:
    from costmodel.measure.collect import CollectReport
    from costmodel.problem import Gemm
    from costmodel.records.schema import Row


#: configurations of a shape that `--ranked` takes without `--configs`
_RANKED = 24


@app.command()
def collect(
    shapes: Annotated[str, typer.Option(help="Shape set: a shipped name or a CSV file.")] = "train",
    log: Annotated[
        Path | None, typer.Option(help="Log to append to; the user's own log by default.")
    ] = None,
    configs: Annotated[
        int | None,
        typer.Option(min=1, help="Legal configurations to sample a shape; all by default."),
    ] = None,
    kernels: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Share of all kernels to sample from where that suffices.",
        ),
    ] = 1.0,
    draws: Annotated[
        int,
        typer.Option(min=1, help="Different shares of kernels; each shape takes one of them."),
    ] = 1,
    unpruned: Annotated[
        bool,
        typer.Option("--unpruned", help="Every candidate, also those that the model would prune."),
    ] = False,
    ranked: Annotated[
        bool, typer.Option("--ranked", help="The --configs that are predicted fastest, no sample.")
    ] = False,
    profile: Annotated[str | None, typer.Option(help="Chip; the GPU at hand by default.")] = None,
    have: Annotated[
        list[Path] | None, typer.Option(help="Logs or shards whose rows need no new measurement.")
    ] = None,
    winners: Annotated[
        int | None,
        typer.Option(
            min=1, help="Measure again the fastest N a shape of the rows given by --have."
        ),
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=0, help="Stop after this long.")] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many measured runs.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Compiling processes.")] = None,
    cpu: Annotated[int | None, typer.Option(help="Pin the measuring process to a core.")] = None,
    device: Annotated[int, typer.Option(min=0, help="GPU number.")] = 0,
    units: Annotated[
        int | None,
        typer.Option(
            min=1, help="Measure in a slice of so many multiprocessors, a chip of its own."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32, help="Seed of the sample.")] = 0,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="On every GPU of this machine, by a Dask cluster.")
    ] = False,
    scheduler: Annotated[
        str | None, typer.Option(help="On the GPU workers of the Dask scheduler at this address.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Measure configurations of a set of shapes on the GPU at hand, resuming where a log stopped.

    A cluster compiles on CPU workers and measures alone on each GPU; a worker of yours that may
    measure has `--resources GPU=1`, one that may compile `--resources COMPILE=1`.

    Example: `costmodel collect --shapes train --configs 110 --seconds 600`
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from costmodel.measure.at_hand import require_gpu
    from costmodel.measure.bench import new_run_id
    from costmodel.measure.collect import collect as run_collect
    from costmodel.measure.jobs import ranked_job, sample_job, whole_job, winners_jobs
    from costmodel.measure.slices import granted_units
    from costmodel.measure.worker import WorkerOptions
    from costmodel.paths import user_dir
    from costmodel.profile import part_of, resolve_profile
    from costmodel.records.groups import groups_of
    from costmodel.records.log import RunLog
    from costmodel.records.schema import problem_of, row_key
    from costmodel.records.store import frame_rows, read_runs
    from costmodel.shapes import read_shapes

    _check_options(winners, have, ranked, unpruned, configs, kernels, draws)
    if scheduler is None:
        require_gpu()
    chip = resolve_profile(profile)
    if units is not None:
        if cluster or scheduler is not None:
            raise typer.BadParameter("a slice is measured on one GPU, without a cluster")
        chip = part_of(chip, granted_units(units, device))
    problems = [shape.problem for shape in read_shapes(shapes)]
    frame = read_runs(have) if have else None
    known = set() if frame is None else {row_key(row) for row in frame_rows(frame)}
    if winners is not None and frame is not None:
        groups = [g for g in groups_of(frame, chip.name) if g.problem in set(problems)]
        jobs = winners_jobs(groups, winners)
    elif ranked:
        jobs = [ranked_job(problem, chip, configs or _RANKED) for problem in problems]
    elif unpruned:
        jobs = [whole_job(problem, chip) for problem in problems]
    else:
        jobs = [sample_job(problem, chip, configs, seed, kernels, draws) for problem in problems]
    path = log or user_dir() / "log.jsonl"
    total = sum(len(job.configs) for job in jobs)
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("measuring", total=total)

        def show(problem: Gemm, row: Row) -> None:
            ours = row["backend"] == "triton"
            progress.update(task, advance=ours, description=str(problem))

        budget: dict[str, Any] = {"again": winners is not None, "seconds": seconds, "runs": runs}
        if cluster or scheduler is not None:
            report = _on_cluster(
                scheduler, workers, jobs, RunLog(path), chip, known=known,
                options=WorkerOptions(cpu=cpu, run=new_run_id()),
                on_row=lambda row: show(problem_of(row), row), **budget,
            )  # fmt: skip
        else:
            report = run_collect(
                jobs, RunLog(path), chip, known=known, workers=workers,
                options=WorkerOptions(device=device, units=units, cpu=cpu, run=new_run_id()),
                on_row=lambda job, row: show(job.problem, row), **budget,
            )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(vars(report) | {"log": str(path)}))
    else:
        typer.echo(
            f"{report.measured} measured, {report.failed} failed, {report.skipped} there already, "
            f"{report.jobs} of {len(jobs)} shapes complete in {report.seconds:.0f} s; "
            f"{report.stopped}; empty kernel {report.floor_us:.2f} us; rows in {path}"
        )


def _check_options(
    winners: int | None, have: list[Path] | None, ranked: bool, unpruned: bool,
    configs: int | None, kernels: float, draws: int,
) -> None:  # fmt: skip
    """Refuse options of which one would silently win."""
    ways = {"--winners": winners is not None, "--ranked": ranked, "--unpruned": unpruned}
    chosen = [name for name, given in ways.items() if given]
    if len(chosen) > 1:
        raise typer.BadParameter(f"{' and '.join(chosen)} each say what to measure: give one")
    if winners is not None and not have:
        raise typer.BadParameter(
            "--winners needs --have: the runs whose fastest are measured again"
        )
    if chosen and kernels < 1:
        raise typer.BadParameter(f"--kernels is of a sample, and {chosen[0]} takes none")
    if (unpruned or winners is not None) and configs is not None:
        raise typer.BadParameter(f"--configs is of a sample or of --ranked, not of {chosen[0]}")
    if draws > 1 and kernels == 1:
        raise typer.BadParameter("--draws are of a share of kernels: give --kernels too")
    if kernels < 1 and configs is None:
        raise typer.BadParameter("--kernels needs --configs: all configurations take all kernels")


def _on_cluster(
    scheduler: str | None, workers: int | None, *what: Any, **how: Any
) -> CollectReport:
    """Collect at a scheduler's address, or on a local cluster with a worker for each GPU."""
    from costmodel.measure.cluster import collect_on, local_cluster

    if scheduler is not None:
        return collect_on(scheduler, *what, **how)
    import torch

    with local_cluster(torch.cuda.device_count(), workers) as found:
        return collect_on(found, *what, **how)
