"""All the rounds on one engine, from its server to its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tests.servers import Absent

from bench.contender import Engine, Outcome, Unavailable
from bench.machine import examine
from bench.results import Results, summarise
from bench.runner import Entry, Failure, run_rounds
from bench.servers import Servers, servers
from bench.targets import TARGETS, ratios


@dataclass(frozen=True, slots=True)
class Plan:
    runs: int
    jobs: int


def race(
    engine: Engine, entries: Sequence[Entry], plan: Plan, missing: Sequence[Unavailable], console: Console
) -> Results | None:
    """None when the engine's server is not to be had here; one line says so."""
    machine = examine()
    with servers() as running:
        try:
            version = running.start(engine)
        except Absent as error:
            console.print(f"[yellow]not here:[/] {engine.spelled}: {escape(str(error))}")
            return None
        outcomes = _run(entries, plan, running, console)
    rows = {entry.key: summarise(entry, entry.case.jobs(plan.jobs), outcomes[entry.key]) for entry in entries}
    return Results(
        engine=engine,
        server=version,
        machine=machine,
        runs=plan.runs,
        rows=list(rows.values()),
        ratios=ratios(engine, rows),
        verdicts=[target.judge(rows) for target in TARGETS[engine]],
        unavailable={each.what: each.reason for each in missing},
    )


def renewed(old: Results, new: Results) -> Results:
    """The old results with the rows that were measured anew, judged again."""
    fresh = {row.key: row for row in new.rows}
    benchmarks = {row.benchmark for row in new.rows}
    stale = [row.key for row in old.rows if row.benchmark in benchmarks and row.key not in fresh]
    if stale or new.runs != old.runs:
        # Rows of one benchmark are compared with each other: they must have run side by side.
        raise ValueError(f"only whole benchmarks with as many runs can be renewed; missing: {', '.join(stale)}")
    rows = {row.key: fresh.get(row.key, row) for row in [*old.rows, *new.rows]}
    return msgspec.structs.replace(
        old,
        rows=list(rows.values()),
        ratios=ratios(old.engine, rows),
        verdicts=[target.judge(rows) for target in TARGETS[old.engine]],
    )


def _run(
    entries: Sequence[Entry], plan: Plan, running: Servers, console: Console
) -> dict[str, list[Outcome] | Failure]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=plan.runs * len(entries))

        def announce(number: int, entry: Entry) -> None:
            place = (number - 1) * len(entries) + entries.index(entry)
            progress.update(task, completed=place, description=f"run {number}/{plan.runs}  {entry.key}")

        return run_rounds(entries, plan.jobs, plan.runs, running, announce)
