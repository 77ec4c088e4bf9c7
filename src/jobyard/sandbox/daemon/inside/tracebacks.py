"""How an uncaught error of a Python program is told: its own frames only, and never more than a page or two."""

from __future__ import annotations

import linecache
import sys
import traceback
from types import TracebackType

_LINE, _ALL = 1000, 16 << 10
_main: list[tuple[str, bytes]] = []


def remember(path: str, source: bytes) -> None:
    """For tracebacks, also where no file can be written."""
    _main.append((path, source))


def show(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    path, source = _main[0]
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    lines = source.decode("utf-8", "replace").splitlines(True)
    linecache.cache[path] = (len(source), None, lines, path)
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
