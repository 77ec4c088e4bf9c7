"""SQL lives one statement per file; a header line says what goes in and what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources

import msgspec


@cache
def sql(name: str) -> str:
    text = resources.files("jobyard.stores.sqlite.sql").joinpath(f"{name}.sql").read_text("utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()


def as_list(values: Sequence[int] | Sequence[str]) -> str:
    """A bound list: `IN (SELECT value FROM json_each(?))` costs a fraction of one statement per row."""
    return msgspec.json.encode(values).decode()


def migrations() -> list[tuple[int, str, str]]:
    """Numbered schema changes, in order."""
    folder = resources.files("jobyard.stores.sqlite.migrations")
    found = [
        (int(item.name[:4]), item.name[5:].removesuffix(".sql"), item.read_text("utf-8"))
        for item in folder.iterdir()
        if item.name.endswith(".sql")
    ]
    return sorted(found)
