"""What a target is: a figure of a row, or its ratio to that of another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.contender import Benchmark
from bench.results import Row, Spread, Verdict


@dataclass(frozen=True, slots=True)
class Best:
    """The best measured of some rows: the highest rate or the lowest time."""

    benchmark: Benchmark
    among: Callable[[Row], bool]
    single_run: bool = False  # the best run of all, instead of the best median

    def find(self, rows: Mapping[str, Row], figure: str) -> tuple[str, Spread] | None:
        sign = -1 if self.benchmark.less_is_better else 1
        found = [
            (row.title, self._condense(row.figures[figure]))
            for row in rows.values()
            if row.benchmark is self.benchmark and figure in row.figures and self.among(row)
        ]
        return max(found, key=lambda each: sign * each[1].median, default=None)

    def _condense(self, spread: Spread) -> Spread:
        if not self.single_run:
            return spread
        best = spread.lowest if self.benchmark.less_is_better else spread.highest
        return Spread(best, best, best, (best,) * len(spread.runs))


@dataclass(frozen=True, slots=True)
class Target:
    """Without a bound it is shown for information."""

    title: str
    row: str
    over: str | Best | None = None
    figure: str = "jobs_per_second"
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "×"  # noqa: RUF001

    def judge(self, rows: Mapping[str, Row]) -> Verdict:
        over, measured = self._measure(rows)
        met: bool | None = None
        if measured is not None and self.at_least is not None:
            met = measured.median >= self.at_least
        elif measured is not None and self.at_most is not None:
            met = measured.median <= self.at_most
        return Verdict(
            title=self.title,
            over=over,
            measured=measured,
            at_least=self.at_least,
            at_most=self.at_most,
            unit=self.unit,
            met=met,
        )

    def _measure(self, rows: Mapping[str, Row]) -> tuple[str, Spread | None]:
        mine = rows[self.row].figures.get(self.figure) if self.row in rows else None
        if self.over is None or mine is None:
            return "", mine
        if isinstance(self.over, Best):
            found = self.over.find(rows, self.figure)
            return (found[0], mine.over(found[1])) if found else ("", None)
        theirs = rows[self.over].figures.get(self.figure) if self.over in rows else None
        return (rows[self.over].title, mine.over(theirs)) if theirs is not None else ("", None)
