"""Tokens of references and conditions, read from left to right in linear time."""

from __future__ import annotations

import math
import re
from enum import Enum
from typing import Any, NamedTuple

from jobyard.domain.workflow_files.nodes import NAME
from jobyard.errors import ExpressionError

MAX_LENGTH = 2000
_SHOWN = 60  # characters on each side of an error
_MAX_NUMBER_LENGTH = 40  # a number takes time by the square of its digits
_TOKEN = re.compile(
    rf"""[ \t\r\n]*(?:
        (?P<name>{NAME})
      | (?P<number>-?[0-9][0-9.eE+-]*)
      | (?P<text>"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')
      | (?P<symbol>==|!=|<=|>=|&&|\|\||\?\?|[-<>=!.,()\[\]{{}}+*/%])
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "/": "/", "\\": "\\", '"': '"', "'": "'"}


class TokenKind(Enum):
    NAME = "name"
    NUMBER = "number"
    TEXT = "text"
    SYMBOL = "symbol"
    END = "end"


class Token(NamedTuple):
    kind: TokenKind
    value: Any  # the name or symbol, or the value of a literal
    at: int  # where its text begins
    end: int
    source: str


def read_token(source: str, at: int, limit: int) -> Token:
    """The token at a position; the text ends at `limit`. Raises ExpressionError."""
    found = _TOKEN.match(source, at, limit)
    if found is None:
        start = at + len(source[at:limit]) - len(source[at:limit].lstrip(" \t\r\n"))
        if source[start] in "\"'":
            raise failed(source, start, "the text has no closing quotation mark")
        remedy = " Write the path without ${ }." if source.startswith("${", start) else ""
        raise failed(source, start, f"unexpected character {source[start]!a}", remedy)
    kind = TokenKind(found.lastgroup)
    raw = found[found.lastgroup or 0]
    start = found.end() - len(raw)
    value: Any = raw
    if kind is TokenKind.NUMBER:
        value = _number(source, start, raw)
    elif kind is TokenKind.TEXT:
        value = _unescape(source, start, raw[1:-1])
    return Token(kind, value, start, found.end(), raw)


def failed(source: str, at: int, why: str, remedy: str = "") -> ExpressionError:
    start = max(0, at - _SHOWN) if len(source) > 2 * _SHOWN else 0
    shown = f"{'…' if start else ''}{source[start : at + _SHOWN]}{'…' if at + _SHOWN < len(source) else ''}"
    return ExpressionError(f"Cannot read {shown!r} at character {at + 1}: {why}.{remedy}")


def _number(source: str, at: int, raw: str) -> int | float:
    found = _NUMBER.fullmatch(raw)
    if found is None or len(raw) > _MAX_NUMBER_LENGTH:
        raise failed(source, at, f"{raw[:50]} is not a number")
    if not (found[1] or found[2]):
        if -(1 << 63) <= int(raw) < 1 << 64:
            return int(raw)
    elif math.isfinite(float(raw)):
        return float(raw)
    raise failed(source, at, f"{raw} is too large")


def _unescape(source: str, at: int, raw: str) -> str:
    def replacement(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        if found[2] not in _ESCAPED:
            raise failed(source, at + found.start() + 1, f"unknown escape \\{found[2]}")
        return _ESCAPED[found[2]]

    text = _ESCAPE.sub(replacement, raw)
    try:  # two escapes may make one character
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise failed(source, at, "the text has half of a surrogate pair") from None
