"""Named SQL statements, one file per area: `-- name: load_queue`, a comment on parameters and result, the SQL."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def statements(text: str) -> dict[str, str]:
    """
    >>> statements("-- name: load_queue\\n-- in: name. out: the row.\\nSELECT * FROM q WHERE name = ?\\n")
    {'load_queue': 'SELECT * FROM q WHERE name = ?'}
    """
    _, *parts = _NAME.split(text)
    found: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        if name in found:
            raise ValueError(f"Two statements are named {name}.")
        found[name] = "\n".join(line for line in body.splitlines() if not line.startswith("--")).strip()
    return found


@cache
def load(package: str) -> dict[str, str]:
    """All statements of the .sql files in a package, by name."""
    found: dict[str, str] = {}
    for item in sorted(resources.files(package).iterdir(), key=lambda item: item.name):
        if item.name.endswith(".sql"):
            more = statements(item.read_text("utf-8"))
            if more.keys() & found.keys():
                raise ValueError(f"{item.name} names statements again: {', '.join(more.keys() & found.keys())}.")
            found |= more
    return found
