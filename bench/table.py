"""Results as a table for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.contender import Benchmark
from bench.results import Results, Row, Spread, Verdict
from bench.targets import reference

EXPLAINED = {
    Benchmark.DRAIN: "no-op jobs already inserted, one worker process; jobs/s",
    Benchmark.SCALE: "the same with 200 µs of work per job; jobs/s",
    Benchmark.SUSTAINED: "ten windows over a long backlog; jobs/s",
    Benchmark.INSERT: "many jobs at once; jobs/s",
    Benchmark.ENQUEUE: "one job per awaited call; jobs/s",
    Benchmark.STREAMS: "drain while subscribers read event streams of a server; jobs/s",
    Benchmark.HTTP: "POST /v1/jobs over 64 keep-alive connections; requests/s",
    Benchmark.LATENCY: "idle worker, enqueue to handler; ms, p50",
    Benchmark.SCHEDULE: "1,000 schedules due in the same second, instant to insert; ms, p99",
    Benchmark.DUE: "a million jobs due within one second; renewals, inserts, claims of another queue; ms, worst p99",
    Benchmark.WEBHOOK: "events of GitHub over 64 keep-alive connections, request to end of response; ms, p99",
    Benchmark.LAUNCH: "idle runner manager, event of GitHub to creation of the pod; ms, p50",
    Benchmark.STEPS: "durable steps of workflows, from enqueueing them to the last result; steps/s",
    Benchmark.CHILDREN: "child jobs of workflows, from enqueueing their parents to the last result; child jobs/s",
    Benchmark.START: "one program after the other, request to first byte; ms, p50",
    Benchmark.NEIGHBOURS: "one program after the other beside bombs, request to first byte; ms, p50",
    Benchmark.EXECUTE: "POST /execute?wait=5, one after the other, request to end of response; ms, p50",
    Benchmark.RUNS: "programs without a pause; runs/s",
}


def number(value: float) -> str:
    """
    >>> number(12345.6), number(3.14159), number(0.5)
    ('12,346', '3.14', '0.50')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def between(spread: Spread) -> str:
    return f"{number(spread.lowest)}–{number(spread.highest)}"  # noqa: RUF001 - a range


def heading(results: Results) -> str:
    machine = results.machine
    return (
        f"{results.title} · {machine.processor}, {machine.cores} cores · Python {machine.python} · "
        f"uvloop {'yes' if machine.uvloop else 'no'} · {machine.filesystem}, fdatasync {machine.fdatasync_us:.0f} µs"
    )


def bound(verdict: Verdict) -> str:
    if verdict.at_least is not None:
        return f"≥ {verdict.at_least:,g} {verdict.unit}"
    return f"≤ {verdict.at_most:,g} {verdict.unit}" if verdict.at_most is not None else "–"  # noqa: RUF001


def show(results: Results, console: Console) -> None:
    console.print(escape(heading(results)))
    console.print(f"Median of {results.runs} interleaved runs (lowest–highest).")  # noqa: RUF001 - a range
    for warning in results.machine.warnings:
        console.print(f"[yellow]{escape(warning)}[/]")
    by_key = {row.key: row for row in results.rows}
    for benchmark in Benchmark:
        rows = results.of(benchmark)
        if rows:
            base = reference(results.engine, benchmark, by_key)
            console.print(_rows(benchmark, rows, results.ratios, base.title if base else None))
    console.print(_verdicts(results.verdicts))
    for what, reason in results.unavailable.items():
        console.print(f"[yellow]not here:[/] {what}: {escape(reason)}")


def _rows(benchmark: Benchmark, rows: list[Row], ratios: dict[str, Spread], base: str | None) -> Table:
    caption = f"ratio: over {base}" if base else None
    table = Table(title=f"{benchmark}: {EXPLAINED[benchmark]}", title_justify="left", caption=caption)
    for heading in ("contender", "durability", "promise"):
        table.add_column(heading)
    for heading in ("jobs", "median", "spread", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("more")
    for row in rows:
        about = (escape(row.title), row.durability, row.guarantee, f"{row.jobs:,}")
        if row.main is None:
            table.add_row(*about, "[red]failed[/]", "", "", escape(row.failure or "no runs"))
            continue
        more = ", ".join(
            f"{name} {number(spread.median)}" for name, spread in row.figures.items() if name != benchmark.figure
        )
        ratio = f"{number(ratios[row.key].median)}×" if row.key in ratios else ""  # noqa: RUF001
        table.add_row(*about, number(row.main.median), between(row.main), ratio, more)
    return table


def _verdicts(verdicts: list[Verdict]) -> Table:
    table = Table(title="targets", title_justify="left")
    table.add_column("what")
    for heading in ("target", "measured", "spread"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict")
    for verdict in verdicts:
        what = f"{verdict.title} [dim]({escape(verdict.over)})[/]" if verdict.over else verdict.title
        if verdict.measured is None:
            table.add_row(what, bound(verdict), "", "", "[dim]not measured[/]")
            continue
        word = {True: "[green]met[/]", False: "[red]missed[/]", None: "[dim]for information[/]"}[verdict.met]
        table.add_row(
            what, bound(verdict), f"{number(verdict.measured.median)} {verdict.unit}", between(verdict.measured), word
        )
    return table
