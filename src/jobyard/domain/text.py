"""Text for a terminal or a log: made safe, and counted nouns."""

from __future__ import annotations

import re

from jobyard.domain.options import HIDDEN

# Characters that control a terminal (C0, DEL, C1, bidirectional marks), and lone surrogates, which it cannot show.
_CONTROL = re.compile(rf"[{HIDDEN}\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL_IN_LINES = re.compile(rf"(?![\t\n])[{HIDDEN}\ud800-\udfff]")


def visible(text: str, *, lines: bool = False) -> str:
    """Escape control characters; with `lines`, newlines and tabs stay.

    >>> print(visible("\\x1b[2J \\x9b a\\nb"))
    \\x1b[2J \\x9b a\\nb
    """
    return (_CONTROL_IN_LINES if lines else _CONTROL).sub(lambda found: ascii(found[0])[1:-1], text)


def counted(number: int, noun: str, plural: str = "") -> str:
    """
    >>> counted(1, "job"), counted(1000, "job"), counted(0, "process", "processes")
    ('1 job', '1,000 jobs', '0 processes')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def without_nul(text: str) -> str:
    """Replace NUL, which PostgreSQL's text cannot hold: the same job reads the same on every store.

    >>> without_nul("a\\0b")
    'a␀b'
    """
    return text.replace("\0", "␀") if "\0" in text else text


def without_surrogates(text: str) -> str:
    """Replace halves of surrogate pairs, which no store can encode.

    >>> without_surrogates("a\\ud800b")
    'a�b'
    """
    return text if text.isascii() else _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def size_text(size: int) -> str:
    """
    >>> size_text(4 << 30), size_text(1536 << 20), size_text(12)
    ('4 GiB', '1.5 GiB', '12 B')
    """
    for shift, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.3g} {unit}"
    return f"{size} B"
