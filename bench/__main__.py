"""Measure, judge, show, write."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.contender import discover
from bench.machine import examine
from bench.plot import draw
from bench.results import Results, summarise
from bench.runner import Entry, run_rounds
from bench.table import show
from bench.targets import TARGETS, ratios

HERE = Path(__file__).resolve().parent


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="10,000 jobs and 3 runs, for a first look; spreads are wide.")
@click.option("--runs", type=click.IntRange(min=1), help="Interleaved runs of each case.  [default: 5]")
@click.option("--jobs", type=click.IntRange(min=100), help="Jobs per run; slow peers get a share.  [default: 100000]")
@click.option("--only", default="", help="Contenders, benchmarks or rows: huey,latency,jobyard/drain.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=HERE / "results", help="Folder.")
def main(quick: bool, runs: int | None, jobs: int | None, only: str, out: Path) -> None:
    """Race jobyard against its peers; writes results.json and results.svg."""
    runs = runs or (3 if quick else 5)
    jobs = jobs or (10_000 if quick else 100_000)
    words = [word.strip() for word in only.split(",") if word.strip()]
    contenders, missing = discover()
    entries = [
        entry
        for module, contender in sorted(contenders.items(), key=lambda each: each[1].name != "jobyard")
        for case in contender.cases
        if (entry := Entry(module, contender, case)).matches(words)
    ]
    if not entries:
        known = sorted({contender.key(case) for contender in contenders.values() for case in contender.cases})
        raise click.UsageError(f"--only {only} matches nothing. There are: {', '.join(known)}")

    console = Console() if sys.stdout.isatty() else Console(width=150)
    machine = examine()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=runs * len(entries))

        def announce(number: int, entry: Entry) -> None:
            place = (number - 1) * len(entries) + entries.index(entry)
            progress.update(task, completed=place, description=f"run {number}/{runs}  {entry.key}")

        outcomes = run_rounds(entries, jobs, runs, announce)

    rows = {entry.key: summarise(entry, entry.case.jobs(jobs), outcomes[entry.key]) for entry in entries}
    results = Results(
        machine=machine,
        runs=runs,
        rows=list(rows.values()),
        ratios=ratios(rows),
        verdicts=[target.judge(rows) for target in TARGETS],
        unavailable={each.module: each.reason for each in missing},
    )
    show(results, console)
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")
    (out / "results.svg").write_text(draw(results), encoding="utf-8")
    console.print(f"Written: {out / 'results.json'}, {out / 'results.svg'}")
    if any(row.failure for row in results.rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
