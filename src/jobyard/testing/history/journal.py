"""The file of one process, appended line by line: a kill damages at most the last line."""

from __future__ import annotations

import itertools
import os
import time
import weakref
from pathlib import Path

import msgspec

from jobyard.testing.history.events import Answer, Line, Question, RecordedCall, RecordedResult, RecordingStarted


class Journal:
    def __init__(self, path: Path | str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        # Twins may still write after the first handle is closed, so the file goes with the last of them.
        weakref.finalize(self, os.close, self._file)
        self._encoder = msgspec.json.Encoder()
        self._calls = itertools.count(1)
        # The newline in front closes a line that an earlier process of this file may have torn.
        self._write(b"\n", RecordingStarted(os.getpid(), time.monotonic_ns()))

    def ask(self, question: Question) -> int:
        call = next(self._calls)
        # The clock is read before the line is written: the bracket may only be too wide.
        self._write(b"", RecordedCall(call, time.monotonic_ns(), question))
        return call

    def answer(self, call: int, answer: Answer) -> None:
        self._write(b"", RecordedResult(call, time.monotonic_ns(), answer))

    def _write(self, prefix: bytes, line: Line) -> None:
        data = prefix + self._encoder.encode(line) + b"\n"
        # One write per line: it is in the page cache, which outlives the process, or it is not.
        if os.write(self._file, data) != len(data):
            raise OSError("The history's disk is full: a line was written only in part.")
