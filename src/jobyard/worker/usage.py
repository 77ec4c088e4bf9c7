"""Memory and processor time of a worker with its child processes, for its heartbeat."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# In /proc/PID/stat behind the name of the program: user and system time of the process, then of its ended children.
TIMES = slice(11, 15)


class Usage(NamedTuple):
    memory_bytes: int = 0
    cpu_seconds: float = 0.0
    cpu_percent: float = 0.0  # over a second or more until now; 100 is one core


def resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int((PROC / str(pid) / "statm").read_bytes().split()[1]) * PAGE_BYTES
    return 0


def descendants(pid: int) -> Iterator[int]:
    """The process and those below it. Reads only their own files: the list of all processes may be long."""
    yield pid
    # A thread that ends meanwhile stops the loop, so the folder is closed here.
    with contextlib.suppress(OSError), os.scandir(PROC / str(pid) / "task") as threads:
        for thread in threads:
            for child in Path(thread.path, "children").read_bytes().split():
                yield from descendants(int(child))


def usage(pid: int | None = None) -> Usage:
    """Zero where the system does not tell. Pages that processes share count more than once."""
    memory, ticks = 0, 0
    for each in descendants(os.getpid() if pid is None else pid):
        memory += resident_bytes(each)
        with contextlib.suppress(OSError):  # it ended meanwhile
            ticks += sum(map(int, (PROC / str(each) / "stat").read_bytes().rpartition(b")")[2].split()[TIMES]))
    return Usage(memory, ticks / TICKS_PER_SECOND)


class UsageMeter:
    """Readings of this process, whose processor time never decreases."""

    def __init__(self) -> None:
        self._cpu_seconds = usage().cpu_seconds
        self._percent_since, self._cpu_seconds_then, self._percent = time.monotonic(), self._cpu_seconds, 0.0

    def read(self) -> Usage:
        used, now = usage(), time.monotonic()
        self._cpu_seconds = max(self._cpu_seconds, used.cpu_seconds)  # a child may end without being counted
        elapsed = now - self._percent_since
        # The clock of the processor ticks a hundred times a second: over less than a second it says nothing, so
        # readings that follow each other faster repeat the last share.
        if elapsed >= 1:
            self._percent = round(100 * (self._cpu_seconds - self._cpu_seconds_then) / elapsed, 1)
            self._percent_since, self._cpu_seconds_then = now, self._cpu_seconds
        return Usage(used.memory_bytes, self._cpu_seconds, self._percent)
