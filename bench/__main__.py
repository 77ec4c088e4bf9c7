"""Measure, judge, show, write."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from bench.contender import Contender, Engine, Unavailable, discover
from bench.environments import FOLDER, CannotBuild, environments
from bench.page import write_page
from bench.race import Plan, race, renewed
from bench.results import read_results, save
from bench.runner import Entry
from bench.table import show

RESULTS = Path(__file__).resolve().parent / "results"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--engine",
    "engines",
    multiple=True,
    type=click.Choice([str(each) for each in Engine]),
    help="One of them; may be repeated.",
)
@click.option("--quick", is_flag=True, help="10,000 jobs and 3 runs, for a first look; spreads are wide.")
@click.option("--runs", type=click.IntRange(min=1), help="Interleaved runs of each case.  [default: 5]")
@click.option("--jobs", type=click.IntRange(min=100), help="Jobs per run; slow peers get a share.  [default: 100000]")
@click.option("--only", default="", help="Engines, contenders, benchmarks or rows: huey,latency,jobyard/drain.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder.  [default: bench/results for a whole run, .bench/results for a part of one]",
)
@click.option("--renew", is_flag=True, help="Put the benchmarks measured now in the place of those in bench/results.")
@click.option("--setup", is_flag=True, help="Only build the environments of the peers.")
@click.option("--page", is_flag=True, help="Only fill docs/benchmarks.md from bench/results.")
def main(
    engines: tuple[str, ...],
    quick: bool,
    runs: int | None,
    jobs: int | None,
    only: str,
    out: Path | None,
    renew: bool,
    setup: bool,
    page: bool,
) -> None:
    """Race jobyard against its peers; writes a JSON and an SVG file per engine."""
    console = Console() if sys.stdout.isatty() else Console(width=150)
    if page:
        console.print(f"Written: {write_page(RESULTS)}")
        return
    if setup:
        for name in environments():
            _report(console, _build(name))
        return
    plan = Plan(runs or (3 if quick else 5), jobs or (10_000 if quick else 100_000))
    is_whole = not (only or quick or runs or jobs)
    out = out or (RESULTS if is_whole else FOLDER / "results")
    contenders, missing = discover()
    chosen = _choose(contenders, [word.strip() for word in only.split(",") if word.strip()], engines)
    chosen, unbuilt = _build_environments(console, chosen)
    failed = False
    for engine in Engine:
        entries = [entry for entry in chosen if entry.contender.engine is engine]
        if not entries:
            continue
        results = race(engine, entries, plan, [*missing, *unbuilt], console)
        if results is not None:
            if renew:
                out = RESULTS
                for known in [each for each in read_results(RESULTS) if each.engine is engine]:
                    results = renewed(known, results)
            show(results, console)
            console.print(f"Written: {', '.join(str(path) for path in save(results, out))}")
            failed |= any(row.failure for row in results.rows)
    if out == RESULTS:
        console.print(f"Written: {write_page(RESULTS)}")
    raise SystemExit(1 if failed else 0)


def _choose(contenders: dict[str, Contender], words: list[str], engines: tuple[str, ...]) -> list[Entry]:
    """jobyard's rows come first in each engine."""
    entries = [
        Entry(module, contender, case)
        for module, contender in sorted(contenders.items(), key=lambda each: each[1].name != "jobyard")
        for case in contender.cases
    ]
    chosen = [entry for entry in entries if entry.matches(words) and (not engines or entry.contender.engine in engines)]
    if not chosen:
        known = ", ".join(sorted(entry.key for entry in entries))
        raise click.UsageError(f"--only {','.join(words)} matches nothing. There are: {known}")
    return chosen


def _build_environments(console: Console, chosen: list[Entry]) -> tuple[list[Entry], list[Unavailable]]:
    """A peer whose environment cannot be built has no rows; the others do."""
    missing = []
    for name in sorted({entry.contender.environment for entry in chosen} - {None}, key=str):
        problem = _build(str(name))
        if problem is not None:
            _report(console, problem)
            missing.append(problem)
    lost = {each.what for each in missing}
    return [entry for entry in chosen if entry.contender.environment not in lost], missing


def _build(name: str) -> Unavailable | None:
    try:
        environments()[name].build()
    except CannotBuild as error:
        return Unavailable(name, str(error))
    return None


def _report(console: Console, problem: Unavailable | None) -> None:
    if problem is not None:
        console.print(f"[yellow]not here:[/] {problem.what}: {escape(problem.reason)}")


if __name__ == "__main__":
    main()
