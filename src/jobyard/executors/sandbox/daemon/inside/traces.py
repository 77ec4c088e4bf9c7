"""How an uncaught error of a Python program is told: its own frames only, and never more than a page or two."""

from __future__ import annotations

import linecache
import sys
import traceback
from types import TracebackType

_LINE, _ALL = 1000, 16 << 10
_main: list[str] = []


def remember(path: str, source: bytes) -> None:
    """Lines of the source for tracebacks, also where no file can be written."""
    _main.append(path)
    text = source.decode("utf-8", "replace")
    linecache.cache[path] = (len(text), None, text.splitlines(True), path)


def show(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    while trace is not None and trace.tb_frame.f_code.co_filename not in _main:
        trace = trace.tb_next
    try:
        text = "".join(_cut(part) for part in traceback.format_exception(kind, value, trace))
    except BaseException:
        text = f"{kind.__name__}\n"
    if len(text) > _ALL:
        text = f"{text[: _ALL // 2]}\n  [...]\n{text[-_ALL // 2 :]}"
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _cut(text: str) -> str:
    return "".join(line if len(line) <= _LINE else f"{line[:_LINE]} [...]\n" for line in text.splitlines(True))
