"""What the speed must be, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.contender import Benchmark
from bench.results import Row, Spread, Verdict

# The row that the others of its benchmark are divided by.
REFERENCES = {
    Benchmark.DRAIN: "jobyard/drain",
    Benchmark.SUSTAINED: "jobyard/sustained",
    Benchmark.INSERT: "raw-sqlite/insert",
    Benchmark.ENQUEUE: "jobyard/enqueue-1",
    Benchmark.LATENCY: "jobyard/latency-inside",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A figure of a row, or its ratio to another row's; without a bound it is shown for information."""

    title: str
    row: str
    over: str | None = None
    figure: str = "jobs_per_second"
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "×"  # noqa: RUF001

    def judge(self, rows: Mapping[str, Row]) -> Verdict:
        measured = self._measure(rows)
        met: bool | None = None
        if measured is not None and self.at_least is not None:
            met = measured.median >= self.at_least
        elif measured is not None and self.at_most is not None:
            met = measured.median <= self.at_most
        return Verdict(
            title=self.title,
            measured=measured,
            at_least=self.at_least,
            at_most=self.at_most,
            unit=self.unit,
            met=met,
        )

    def _measure(self, rows: Mapping[str, Row]) -> Spread | None:
        mine = rows[self.row].figures.get(self.figure) if self.row in rows else None
        if self.over is None or mine is None:
            return mine
        theirs = rows[self.over].figures.get(self.figure) if self.over in rows else None
        return mine.over(theirs) if theirs is not None else None


TARGETS = (
    Target("drain, limits on: over huey, both power-safe", "jobyard/drain", "huey/drain", at_least=5),
    Target("drain, limits on: over persist-queue with ack", "jobyard/drain", "persist-queue/drain", at_least=15),
    Target("drain, limits on: over litequeue, both power-safe", "jobyard/drain", "litequeue/drain", at_least=15),
    Target("drain, limits on: over limits off", "jobyard/drain", "jobyard/drain-unlimited", at_least=0.8),
    Target("drain, limits on", "jobyard/drain", at_least=40_000, unit="jobs/s"),
    Target("drain, serial groups", "jobyard/drain-serial", at_least=30_000, unit="jobs/s"),
    Target("sustained: last windows over first", "jobyard/sustained", figure="last_over_first", at_least=0.9),
    Target(
        "sustained: memory at the end over after the first window",
        "jobyard/sustained",
        figure="memory_growth",
        at_most=1.1,
    ),
    Target("bulk insert, one transaction: over raw SQLite", "jobyard/insert", "raw-sqlite/insert", at_least=0.5),
    Target("enqueue: 50 callers over one", "jobyard/enqueue-50", "jobyard/enqueue-1", at_least=5),
    Target("idle latency p50, inside one process", "jobyard/latency-inside", figure="p50_ms", at_most=1, unit="ms"),
    Target("idle latency p50, across two processes", "jobyard/latency-across", figure="p50_ms", at_most=5, unit="ms"),
    # For information: the same race without a bound, and where a peer promises less and is quicker for it.
    Target("drain, limits on: over huey, both synchronous off", "jobyard/drain-off", "huey/drain-off"),
    Target("drain, limits on: over persist-queue, get deletes", "jobyard/drain", "persist-queue/drain-plain"),
    Target("drain, limits on: over persist-queue, task_done per 100", "jobyard/drain", "persist-queue/drain-batched"),
    Target("bulk insert, chunks of 1,000: over raw SQLite", "jobyard/insert-chunks", "raw-sqlite/insert"),
)


def reference(benchmark: Benchmark, rows: Mapping[str, Row]) -> Row | None:
    """The chosen row, or the first measured one when that is not in this run."""
    chosen = rows.get(REFERENCES[benchmark])
    candidates = [row for row in [chosen, *rows.values()] if row is not None and row.benchmark is benchmark]
    return next((row for row in candidates if row.main is not None), None)


def ratios(rows: Mapping[str, Row]) -> dict[str, Spread]:
    found: dict[str, Spread] = {}
    for row in rows.values():
        base = reference(row.benchmark, rows)
        if row.main is not None and base is not None and base.main is not None:
            found[row.key] = row.main.over(base.main)
    return found
