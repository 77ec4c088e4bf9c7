"""Excepthook for Python programs: prints only their own frames, and at most 16 KiB."""

from __future__ import annotations

import linecache
import sys
import traceback
from types import TracebackType

_MAX_LINE, _MAX_TEXT = 1000, 16 << 10
_main: list[tuple[str, bytes]] = []


def remember(path: str, source: bytes) -> None:
    """Keep the source for tracebacks, as there may be no file to read it from."""
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
    if len(text) > _MAX_TEXT:
        text = f"{text[: _MAX_TEXT // 2]}\n  [...]\n{text[-_MAX_TEXT // 2 :]}"
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _cut(text: str) -> str:
    return "".join(line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]} [...]\n" for line in text.splitlines(True))
