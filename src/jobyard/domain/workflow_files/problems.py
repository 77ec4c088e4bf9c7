"""Problems of a workflow file: all of them at once, each with its place and its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

MAX_PROBLEMS = 100


class FileProblem(NamedTuple):
    """Something wrong at a JSON pointer of a file; the empty pointer is the whole document."""

    pointer: str
    message: str


class TooManyProblems(Exception):
    """The list is full; the search for more can end."""


class Problems:
    """A list in which each message stands once, and at most MAX_PROBLEMS: hints for more would take too long."""

    def __init__(self) -> None:
        self._found: dict[FileProblem, None] = {}

    def add(self, at: str, message: str) -> None:
        self._found.setdefault(FileProblem(at, message))
        if len(self._found) >= MAX_PROBLEMS:
            raise TooManyProblems

    def __bool__(self) -> bool:
        return bool(self._found)

    def lines(self, file: str, document: Any) -> list[str]:
        """One line per problem: file, pointer, message; in the order of the document."""
        order = {at: position for position, at in enumerate(_pointers(document))}
        found = sorted(self._found, key=lambda each: order.get(each.pointer, len(order)))
        lines = [f"{file}: {each.pointer + ': ' if each.pointer else ''}{each.message}" for each in found]
        return lines if len(lines) < MAX_PROBLEMS else [*lines, f"{file}: more problems may follow."]


def pointer(base: str, *keys: str | int) -> str:
    """A JSON pointer (RFC 6901).

    >>> pointer("/steps", 2, "input", "a/b~c")
    '/steps/2/input/a~1b~0c'
    """
    return base + "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def _pointers(value: Any) -> Iterator[str]:
    pending = [("", value)]
    while pending:
        at, each = pending.pop()
        yield at
        if isinstance(each, dict | list):
            below = each.items() if isinstance(each, dict) else enumerate(each)
            pending += [(pointer(at, key), child) for key, child in below][::-1]
