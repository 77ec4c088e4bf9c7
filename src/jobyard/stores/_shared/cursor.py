"""Cursors of job lists: the sequence of the last job on a page, in decimal."""

from __future__ import annotations

from jobyard.errors import BadInput

MAX_DIGITS = 15


def decode_cursor(cursor: str) -> int:
    """Return the sequence below which the next page starts.

    >>> decode_cursor("42")
    42
    """
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > MAX_DIGITS:
        raise invalid_cursor(cursor)
    return int(cursor)


def invalid_cursor(cursor: str) -> BadInput:
    return BadInput(f"Invalid cursor {cursor!r} for this list. Omit it to start over.")
