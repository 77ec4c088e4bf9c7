"""Colours and icons of the graph, for light and dark themes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# Within a pill, from (7, 5) to (15, 13).
ICONS = {
    "pending": "M11 6a3 3 0 1 0 .01 0z",
    "running": "M9 6v6l5 -3z",
    "completed": "M7.5 9.2l2.4 2.4l4.6 -5",
    "failed": "M8.3 6.3l5.4 5.4m0 -5.4l-5.4 5.4",
    "skipped": "M7.8 9h6.4",
    "interrupted": "M11 6v3.4m0 2.2v.01",
}


class _Theme(NamedTuple):
    page: str
    card: str
    border: str
    ink: str
    soft: str
    line: str
    note: str
    states: Mapping[str, tuple[str, str]]  # colour, and the tint of the pill


_LIGHT = _Theme(
    page="#ffffff",
    card="#f6f8fa",
    border="#d0d7de",
    ink="#1f2328",
    soft="#59636e",
    line="#8c959f",
    note="#e6eaef",
    states={
        "pending": ("#59636e", "#e6eaef"),
        "running": ("#0969da", "#ddf4ff"),
        "completed": ("#1a7f37", "#dafbe1"),
        "failed": ("#cf222e", "#ffebe9"),
        "skipped": ("#59636e", "#e6eaef"),
        "interrupted": ("#9a6700", "#fff8c5"),
    },
)
_DARK = _Theme(
    page="#0d1117",
    card="#151b23",
    border="#3d444d",
    ink="#f0f6fc",
    soft="#9198a1",
    line="#656c76",
    note="#262c36",
    states={
        "pending": ("#9198a1", "#262c36"),
        "running": ("#4493f8", "#10233d"),
        "completed": ("#3fb950", "#12301f"),
        "failed": ("#f85149", "#3a1a1d"),
        "skipped": ("#9198a1", "#262c36"),
        "interrupted": ("#d29922", "#2f2614"),
    },
)
_SHAPES = {
    ".line": "fill:none;stroke-width:1.5",
    ".card": "stroke-width:1.2",
    ".lane": "fill:none",
    ".cleanup .card": "stroke-dasharray:5 4",
    ".skipped .ink": "fill-opacity:.6",
    ".pill path": "fill:none;stroke-width:1.6;stroke-linecap:round;stroke-linejoin:round",
    ".code": "font-family:ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace",
}


def _colours(theme: _Theme) -> dict[str, str]:
    rules = {
        ".page": f"fill:{theme.page};stroke:{theme.border}",
        ".card": f"fill:{theme.card};stroke:{theme.border}",
        ".ink": f"fill:{theme.ink}",
        ".soft": f"fill:{theme.soft}",
        ".lane": f"stroke:{theme.border}",
        ".line,.cleanup .card": f"stroke:{theme.line}",
        ".head": f"fill:{theme.line}",
        ".note rect": f"fill:{theme.note}",
        ".note text": f"fill:{theme.soft}",
    }
    for state, (colour, tint) in theme.states.items():
        rules[f".{state} .state rect"] = f"fill:{tint}"
        rules[f".{state} .state text"] = f"fill:{colour}"
        rules[f".{state} .state path"] = f"stroke:{colour}"
        if state not in ("pending", "skipped"):
            rules[f".{state} .card"] = f"stroke:{colour}"
    colour = theme.states["running"][0]
    rules[".running .state path"] += f";fill:{colour}"
    colour = theme.states["completed"][0]
    return {**rules, ".line.done": f"stroke:{colour}", ".head.done": f"fill:{colour}"}


def _css(rules: Mapping[str, str]) -> str:
    """Rules that reach only into the graph, also where it is part of a page."""
    return "".join(
        f"{','.join(f'.workflow-graph {name}' for name in names.split(','))}{{{rule}}}\n"
        for names, rule in rules.items()
    )


STYLE = f"\n{_css(_SHAPES)}{_css(_colours(_LIGHT))}@media (prefers-color-scheme: dark){{\n{_css(_colours(_DARK))}}}\n"
