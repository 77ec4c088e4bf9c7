"""SQL statements, functions and migrations, qualified with the schema that holds the tables."""

from __future__ import annotations

from functools import cache
from importlib import resources

from jobyard.stores._shared import named_sql

PLACEHOLDER = "{schema}"
PACKAGE = "jobyard.stores.postgres"


def quoted(name: str) -> str:
    """
    >>> quoted('we"ird')
    '"we""ird"'
    """
    return '"' + name.replace('"', '""') + '"'


class Statements:
    """The named statements of `sql/`, for one schema. Their parameter `now` is NULL for the server's clock."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.quoted = quoted(schema)
        self._texts = {name: self.qualify(text) for name, text in named_sql.load(f"{PACKAGE}.sql").items()}

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def starting_with(self, prefix: str) -> list[str]:
        return [text for name, text in self._texts.items() if name.startswith(prefix)]

    def qualify(self, text: str) -> str:
        return text.replace(PLACEHOLDER, self.quoted)


def _files(folder: str) -> list[tuple[str, str]]:
    """Name and text of each .sql file, by name."""
    items = resources.files(f"{PACKAGE}.{folder}").iterdir()
    return sorted((item.name, item.read_text("utf-8")) for item in items if item.name.endswith(".sql"))


def functions() -> str:
    """All server-side functions. Their order does not matter: PL/pgSQL checks a body when it first runs."""
    return "\n".join(text for _, text in _files("functions"))


@cache
def migrations() -> tuple[tuple[int, str, str], ...]:
    """Number, name and text of each migration, in order. The last one also replaces all functions."""
    found = [(int(name[:4]), name[5:].removesuffix(".sql"), text) for name, text in _files("migrations")]
    number, name, text = found[-1]
    return (*found[:-1], (number, name, f"{text}\n{functions()}"))
