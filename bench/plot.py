"""The results as one SVG that reads well on light and dark pages."""

from __future__ import annotations

from html import escape

from bench.contender import Benchmark
from bench.results import Results, Row
from bench.table import EXPLAINED, number

WIDTH = 960
LEFT = 350  # room for the titles
RIGHT = 150  # room for the figures
BAR = 18
STEP = 34
CHART_HEIGHT = 140

# Colours are spelled out twice, for not every viewer knows CSS variables.
STYLE = """
.page { fill: #ffffff; }
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.head { font-size: 15px; font-weight: 600; }
.soft { font-size: 11px; fill: #59636e; }
.own { fill: #0969da; } .peer { fill: #8c959f; }
.range { stroke: #1f2328; stroke-width: 1.5; }
.axis { stroke: #d1d9e0; }
.rate, .memory { fill: none; stroke-width: 2; }
.rate { stroke: #0969da; } .memory { stroke: #8c959f; stroke-dasharray: 5 3; }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; }
  text { fill: #e6edf3; }
  .soft { fill: #9198a1; }
  .own { fill: #388bfd; } .peer { fill: #6e7681; }
  .range { stroke: #e6edf3; }
  .axis { stroke: #3d444d; }
  .rate { stroke: #388bfd; } .memory { stroke: #6e7681; }
}
"""


def draw(results: Results) -> str:
    parts: list[str] = []
    y = 30.0
    parts.append(_text(20, y, f"Speed of jobyard and its peers on {results.title}", "head"))
    machine = results.machine
    where = (
        f"median of {results.runs} interleaved runs, line: lowest to highest · {machine.processor}, {machine.cores} "
        f"cores · {machine.filesystem}, fdatasync {machine.fdatasync_us:.0f} µs"
    )
    parts.append(_text(20, y + 18, where, "soft"))
    y += 54
    for benchmark in Benchmark:
        rows = _in_order([row for row in results.of(benchmark) if row.main is not None])
        if not rows:
            continue
        parts.append(_text(20, y, f"{benchmark}: {EXPLAINED[benchmark]}", "head"))
        y += 14
        parts += _bars(rows, y)
        y += STEP * len(rows) + 8
        for row in rows:
            if row.series:
                parts += _courses(row, y)
                y += CHART_HEIGHT + 40
        y += 26
    height = round(y)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="Speed of jobyard and its peers"><style>{STYLE}</style>'
        f'<rect width="100%" height="100%" class="page"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _in_order(rows: list[Row]) -> list[Row]:
    """jobyard's first, then the peers from best to worst, then the bound that none can beat."""
    sign = 1 if rows and rows[0].benchmark.less_is_better else -1

    def place(row: Row) -> tuple[int, float]:
        kind = 0 if row.contender == "jobyard" else 2 if row.contender.startswith("raw-") else 1
        return kind, sign * row.main.median if kind == 1 and row.main else 0.0

    return sorted(rows, key=place)


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _bars(rows: list[Row], top: float) -> list[str]:
    longest = max(row.main.highest for row in rows if row.main) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / longest
    parts = [_line(LEFT, top, LEFT, top + STEP * len(rows) - 6, "axis")]
    for place, row in enumerate(rows):
        assert row.main is not None
        y = top + place * STEP + 4
        middle = y + BAR / 2
        length = max(row.main.median * scale, 1)
        kind = "own" if row.contender == "jobyard" else "peer"
        low, high = LEFT + row.main.lowest * scale, LEFT + row.main.highest * scale
        parts += [
            _text(LEFT - 10, middle, row.title, anchor="end"),
            _text(LEFT - 10, middle + 13, f"{row.durability} · {row.guarantee}", "soft", "end"),
            f'<rect x="{LEFT}" y="{y:.1f}" width="{length:.1f}" height="{BAR}" class="{kind}"/>',
            _line(low, middle, high, middle, "range"),
            _line(low, middle - 4, low, middle + 4, "range"),
            _line(high, middle - 4, high, middle + 4, "range"),
            _text(max(high, LEFT + length) + 8, middle + 5, number(row.main.median)),
        ]
    return parts


def _courses(row: Row, top: float) -> list[str]:
    """The rate and the memory over the windows, both from zero, so that flat looks flat and nothing else does."""
    bottom = top + CHART_HEIGHT
    right = WIDTH - RIGHT
    parts = [_line(LEFT, bottom, right, bottom, "axis"), _line(LEFT, top, LEFT, bottom, "axis")]
    for name, kind, unit in (("jobs_per_second", "rate", "jobs/s"), ("memory_mb", "memory", "MB")):
        points = row.series.get(name, [])
        if len(points) < 2:
            continue
        # Apart by a third of the height, or the two lines of a flat run would lie on each other.
        highest = max(points) * (1.1 if kind == "rate" else 1.8)
        path = " ".join(
            f"{LEFT + place * (right - LEFT) / (len(points) - 1):.1f},{bottom - value / highest * CHART_HEIGHT:.1f}"
            for place, value in enumerate(points)
        )
        parts.append(f'<polyline points="{path}" class="{kind}"/>')
        end = bottom - points[-1] / highest * CHART_HEIGHT
        parts.append(_text(right + 8, end + 4, f"{number(points[-1])} {unit}"))
    windows = len(next(iter(row.series.values())))
    parts.append(_text(LEFT, bottom + 16, f"{windows} windows of {row.jobs // windows:,} jobs", "soft"))
    return parts
