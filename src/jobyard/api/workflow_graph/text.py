"""Text in an SVG image: escaped, and its width, estimated for the widest of the usual fonts."""

from __future__ import annotations

import re
import unicodedata
from enum import Enum
from xml.sax.saxutils import escape

from jobyard.domain.text import visible

MONOSPACE = 0.602
_NARROW = frozenset("ijltfI.,:;'|!()[]{}- ")
_WIDE = frozenset("mwMW@%")


class TextStyle(Enum):
    PLAIN = "plain"
    BOLD = "bold"
    CODE = "code"


def text_width(text: str, size: float, face: TextStyle = TextStyle.PLAIN) -> float:
    em = sum(map(_monospace if face is TextStyle.CODE else _proportional, text))
    return size * em * (1.12 if face is TextStyle.BOLD else 1.0)


def _proportional(character: str) -> float:
    if character in _NARROW:
        return 0.36
    if character in _WIDE:
        return 0.92
    if character.isupper() or character.isdigit():
        return 0.67
    return 1.0 if _is_wide(character) else 0.6


def _monospace(character: str) -> float:
    return 2 * MONOSPACE if _is_wide(character) else MONOSPACE


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"


def fitted(text: str, width: float, size: float, face: TextStyle = TextStyle.PLAIN) -> str:
    """The text, cut with … if it is wider.

    >>> fitted("scan_product", 1000, 12), fitted("scan_product", 50, 12)
    ('scan_product', 'scan_…')
    """
    if text_width(text, size, face) <= width:
        return text
    while text and text_width(text + "…", size, face) > width:
        text = text[:-1]
    return text + "…"


def escaped(text: str) -> str:
    """Safe inside an element and inside a double-quoted attribute; characters that XML cannot hold are shown.

    >>> escaped('<a b="c">' + chr(1) + chr(0xFFFE))
    '&lt;a b=&quot;c&quot;&gt;\\\\x01?'
    """
    return escape(re.sub("[\\ufffe\\uffff]", "?", visible(text)), {'"': "&quot;"})
