"""A ledger of side effects outside the store: one line per effect, which survives any kill."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    job: str  # a name that the story gave it
    word: str  # "did" for an effect, "kept" once its checkpoint was acknowledged, "died" just before a kill
    what: str
    pid: int
    at: int  # nanoseconds of CLOCK_MONOTONIC


class Ledger:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "ledger"

    def write(self, job: str, word: str, what: str = "") -> None:
        """One write per line: a kill leaves it in the page cache as a whole, or not at all."""
        line = f"{job}\t{word}\t{what}\t{os.getpid()}\t{time.monotonic_ns()}\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def read(self) -> list[Line]:
        if not self._path.exists():
            return []
        rows = (line.split("\t") for line in self._path.read_text().splitlines())
        return [Line(job, word, what, int(pid), int(at)) for job, word, what, pid, at in rows]

    def of(self, job: str) -> list[Line]:
        return [line for line in self.read() if line.job == job]


def effects(lines: list[Line]) -> Counter[str]:
    return Counter(line.what for line in lines if line.word == "did")


def repeated_after_kept(lines: list[Line]) -> list[str]:
    """Effects that came again although their checkpoint had been acknowledged; of any job, so names must differ."""
    kept: set[tuple[str, str]] = set()
    found = []
    for line in lines:
        if line.word == "kept":
            kept.add((line.job, line.what))
        elif line.word == "did" and (line.job, line.what) in kept:
            found.append(f"{line.job}: {line.what}")
    return found


def takeover_seconds(lines: list[Line]) -> list[float]:
    """From each death until another process did something for the same job."""
    found = []
    for index, line in enumerate(lines):
        if line.word == "died":
            after = (later for later in lines[index + 1 :] if later.job == line.job and later.pid != line.pid)
            found += [(later.at - line.at) / 1e9 for later in [next(after, None)] if later is not None]
    return found
