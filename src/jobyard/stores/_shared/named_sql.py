"""Named SQL statements, in one file per area.

A statement begins with its signature, `-- name: load_queue(name) -> the row`, then comments, then its text.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)\(.*$", re.MULTILINE)


def parse(text: str) -> dict[str, str]:
    """Split a file into its statements, without comments.

    >>> parse("-- name: load_queue(name) -> the row\\n-- It exists.\\nSELECT * FROM q WHERE name = ?\\n")
    {'load_queue': 'SELECT * FROM q WHERE name = ?'}
    """
    _, *parts = _NAME.split(text)
    found: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        if name in found:
            raise ValueError(f"Duplicate statement name: {name}.")
        found[name] = "\n".join(line for line in body.splitlines() if not line.startswith("--")).strip()
    return found


@cache
def load(package: str) -> dict[str, str]:
    """Read the statements of all .sql files in a package, by name."""
    found: dict[str, str] = {}
    for item in sorted(resources.files(package).iterdir(), key=lambda item: item.name):
        if item.name.endswith(".sql"):
            more = parse(item.read_text("utf-8"))
            if duplicates := more.keys() & found.keys():
                raise ValueError(f"Duplicate statement names in {item.name}: {', '.join(sorted(duplicates))}.")
            found |= more
    return found
