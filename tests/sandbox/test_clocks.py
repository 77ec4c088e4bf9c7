"""The daemon never reads the wall clock, which may jump."""

from __future__ import annotations

import ast
from pathlib import Path

import jobyard.sandbox.daemon as daemon

WALL_CLOCKS = {"time", "time_ns", "localtime", "gmtime", "now", "utcnow", "today", "CLOCK_REALTIME"}


def wall_clocks_in(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr in WALL_CLOCKS and isinstance(node.value, ast.Name):
            owner = node.value.id
            if owner in {"time", "datetime", "date"}:
                found.append(f"{path.name}:{node.lineno} {owner}.{node.attr}")
    return found


def test_only_the_monotonic_clock_is_read() -> None:
    files = sorted(Path(str(daemon.__file__)).parent.rglob("*.py"))
    assert len(files) > 10
    assert [line for path in files for line in wall_clocks_in(path)] == []
