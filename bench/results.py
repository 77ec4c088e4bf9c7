"""What a whole run found: rows with median and spread, the machine, the verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

from bench.contender import Benchmark, Durability, Engine, Outcome
from bench.machine import Machine
from bench.runner import Entry, Failure


class Spread(msgspec.Struct, frozen=True):
    """`runs` in the order of the rounds, so that two rows of one round can be compared."""

    median: float
    lowest: float
    highest: float
    runs: tuple[float, ...]

    @classmethod
    def of(cls, runs: Sequence[float]) -> Spread:
        """
        >>> Spread.of([3.0, 1.0, 2.0])
        Spread(median=2.0, lowest=1.0, highest=3.0, runs=(3.0, 1.0, 2.0))
        """
        return cls(median(runs), min(runs), max(runs), tuple(runs))

    def over(self, other: Spread) -> Spread:
        """Ratio of the medians; its spread is that of the ratios round by round, in the rounds that both have.

        >>> Spread.of([10.0, 30.0]).over(Spread.of([10.0, 10.0]))
        Spread(median=2.0, lowest=1.0, highest=3.0, runs=(1.0, 3.0))
        """
        paired = tuple(mine / theirs for mine, theirs in zip(self.runs, other.runs, strict=False))
        return Spread(self.median / other.median, min(paired), max(paired), paired)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    contender: str
    version: str
    benchmark: Benchmark
    title: str
    durability: Durability
    guarantee: str
    jobs: int
    figures: dict[str, Spread] = {}
    series: dict[str, list[float]] = {}  # point by point the median of the runs
    failure: str | None = None

    @property
    def main(self) -> Spread | None:
        return self.figures.get(self.benchmark.figure)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    over: str = ""  # the title of the row that it was divided by
    measured: Spread | None  # None: a row it needs was not measured
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    met: bool | None = None  # None: not measured, or for information only


class Results(msgspec.Struct, frozen=True, kw_only=True):
    engine: Engine
    server: str  # its version; empty without a server
    machine: Machine
    runs: int
    rows: list[Row]
    ratios: dict[str, Spread]  # row key: its main figure over that of the benchmark's reference row
    verdicts: list[Verdict]
    unavailable: dict[str, str]

    @property
    def title(self) -> str:
        return f"{self.engine.spelled} {self.server or self.machine.sqlite}"

    def of(self, benchmark: Benchmark) -> list[Row]:
        return [row for row in self.rows if row.benchmark is benchmark]


def summarise(entry: Entry, jobs: int, outcomes: list[Outcome] | Failure) -> Row:
    figures: dict[str, Spread] = {}
    series: dict[str, list[float]] = {}
    if isinstance(outcomes, list) and outcomes:
        figures = {name: Spread.of([outcome.figures[name] for outcome in outcomes]) for name in outcomes[0].figures}
        series = {
            name: [median(points) for points in zip(*(outcome.series[name] for outcome in outcomes), strict=True)]
            for name in outcomes[0].series
        }
    return Row(
        key=entry.key,
        contender=entry.contender.name,
        version=entry.contender.version,
        benchmark=entry.case.benchmark,
        title=entry.case.title,
        durability=entry.case.durability,
        guarantee=entry.case.guarantee,
        jobs=jobs,
        figures=figures,
        series=series,
        failure=outcomes.reason if isinstance(outcomes, Failure) else None,
    )


def save(results: Results, folder: Path) -> list[Path]:
    """One JSON and one SVG file per engine."""
    from bench.plot import draw  # noqa: PLC0415 - it draws these very results

    folder.mkdir(parents=True, exist_ok=True)
    data, picture = folder / f"{results.engine}.json", folder / f"{results.engine}.svg"
    data.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")
    picture.write_text(draw(results), encoding="utf-8")
    return [data, picture]


def read_results(folder: Path) -> list[Results]:
    """Of every engine that was measured."""
    paths = [folder / f"{engine}.json" for engine in Engine]
    return [msgspec.json.decode(path.read_bytes(), type=Results) for path in paths if path.is_file()]
