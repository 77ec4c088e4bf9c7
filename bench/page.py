"""docs/benchmarks.md: what stands between its marks comes from the results, and from nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

from bench.contender import Benchmark, Engine
from bench.results import Results, Row, Verdict, read_results
from bench.table import EXPLAINED, between, bound, heading, number

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
WORDS = {True: "met", False: "**missed**", None: "for information"}


def write_page(results: Path, page: Path = PAGE) -> Path:
    page.write_text(filled(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    return page


def filled(text: str, results: Path) -> str:
    """The page as it must be; an engine that was never measured keeps its marks and says so."""
    measured = {each.engine: each for each in read_results(results)}

    def fill(match: re.Match[str]) -> str:
        engine = Engine(match.group(1))
        found = measured.get(engine)
        body = _engine(found) if found else "Not measured yet."
        return f"<!-- results: {engine} -->\n{body}\n<!-- end -->"

    return re.sub(r"<!-- results: (\w+) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)


def _engine(results: Results) -> str:
    parts = [
        f"{heading(results)}.\nMedian of {results.runs} interleaved runs, in brackets the lowest and the highest.",
        *results.machine.warnings,
        f"![Speed on {results.engine.spelled}](../bench/results/{results.engine}.svg)",
        _verdicts(results.verdicts),
        *(_benchmark(results, benchmark) for benchmark in Benchmark if results.of(benchmark)),
        *(f"Not measured: {what}: {reason}" for what, reason in results.unavailable.items()),
    ]
    return "\n\n".join(parts)


def _verdicts(verdicts: list[Verdict]) -> str:
    lines = ["| target | bound | measured | |", "|---|---:|---:|---|"]
    for verdict in verdicts:
        what = f"{verdict.title} ({verdict.over})" if verdict.over else verdict.title
        if verdict.measured is None:
            lines.append(f"| {what} | {bound(verdict)} | | not measured |")
            continue
        figure = f"{number(verdict.measured.median)} {verdict.unit} ({between(verdict.measured)})"
        lines.append(f"| {what} | {bound(verdict)} | {figure} | {WORDS[verdict.met]} |")
    return "\n".join(lines)


def _benchmark(results: Results, benchmark: Benchmark) -> str:
    lines = [f"**{benchmark}**: {EXPLAINED[benchmark]}", ""]
    lines += ["| contender | promise | median | ratio |", "|---|---|---:|---:|"]
    lines += [_row(results, row) for row in results.of(benchmark)]
    return "\n".join(lines)


def _row(results: Results, row: Row) -> str:
    title = f"{row.title} {row.version}" if row.contender != "jobyard" else f"**{row.title}**"
    if row.main is None:
        return f"| {title} | {row.guarantee} | failed: {row.failure or 'no runs'} | |"
    ratio = f"{number(results.ratios[row.key].median)}×" if row.key in results.ratios else ""  # noqa: RUF001
    return f"| {title} | {row.guarantee} | {number(row.main.median)} ({between(row.main)}) | {ratio} |"
