"""SQL lives one statement or function per file; names are qualified when it is known which schema holds the tables."""

from __future__ import annotations

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

PLACEHOLDER = "{schema}"
FOLDER = "jobyard.stores.postgres"


def quoted(name: str) -> str:
    """
    >>> quoted('we"ird')
    '"we""ird"'
    """
    return '"' + name.replace('"', '""') + '"'


@cache
def _text(name: str) -> str:
    text = resources.files(f"{FOLDER}.sql").joinpath(f"{name}.sql").read_text("utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()


class Statements:
    """The statements, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.quoted = quoted(schema)
        self._texts: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        text = self._texts.get(name)
        if text is None:
            text = self._texts[name] = self.qualify(_text(name))
        return text

    def qualify(self, text: str) -> str:
        return text.replace(PLACEHOLDER, self.quoted)


def _files(folder: str) -> list[Traversable]:
    items = resources.files(f"{FOLDER}.{folder}").iterdir()
    return sorted((item for item in items if item.name.endswith(".sql")), key=lambda item: item.name)


@cache
def audits() -> list[tuple[str, str]]:
    """Sentence and query of each check; a query answers rows of three that disagree."""
    texts = [item.read_text("utf-8") for item in _files("audits")]
    return [(head.removeprefix("-- "), query) for head, _, query in (text.partition("\n") for text in texts)]


def functions() -> str:
    """All server-side functions, as they are now; bodies are checked when they run, so the order does not matter."""
    return "\n".join(item.read_text("utf-8") for item in _files("functions"))


def migrations() -> list[tuple[int, str, str]]:
    """Numbered changes of the schema, in order; the last one brings the functions up to date."""
    found = [
        (int(item.name[:4]), item.name[5:].removesuffix(".sql"), item.read_text("utf-8"))
        for item in _files("migrations")
    ]
    number, name, text = found[-1]
    return [*found[:-1], (number, name, f"{text}\n{functions()}")]
