"""Notices that the log was written: at once where the system tells (Linux), by looking often where it does not."""

from __future__ import annotations

import ctypes
import os
import select
import sys
from pathlib import Path

IN_MODIFY = 0x00000002
# Where the system tells, looking now and then is only a safety net; where it does not, it is the rule.
LOOK_WHEN_TOLD_SECONDS = 0.1
LOOK_UNTOLD_SECONDS = 0.004
# The log is written a moment before the commit can be seen, and by a foreign writer that syncs, some time before.
SETTLING_SECONDS = (0.0003, 0.001, 0.004, 0.004, 0.02, 0.05)


class Notice:
    """Waits for a write to the file, for a poke, or for the time to look again."""

    def __init__(self, path: Path) -> None:
        self._poked, self._poke = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        os.set_blocking(self._poked, False)
        os.set_blocking(self._poke, False)
        self._told = watch_file(path)
        self._poll = select.poll()
        self._poll.register(self._poked, select.POLLIN)
        if self._told is not None:
            self._poll.register(self._told, select.POLLIN)
        self._settling = 0

    def wait(self, at_most_seconds: float) -> bool:
        """True when it was poked: somebody new sleeps and wants to be asked."""
        patience = max(0.0, min(self._patience(), at_most_seconds))
        ready = {file for file, _ in self._poll.poll(patience * 1000)}
        if self._told in ready:
            drain(self._told)
            self._settling = len(SETTLING_SECONDS)
        elif self._settling:
            self._settling -= 1
        if self._poked in ready:
            drain(self._poked)
            return True
        return False

    def _patience(self) -> float:
        if self._told is None:
            return LOOK_UNTOLD_SECONDS
        return SETTLING_SECONDS[-self._settling] if self._settling else LOOK_WHEN_TOLD_SECONDS

    def poke(self) -> None:
        try:
            os.write(self._poke, b"!")
        except BlockingIOError:
            return  # it is full of pokes already

    def close(self) -> None:
        for file in (self._poked, self._poke, self._told):
            if file is not None:
                os.close(file)


def watch_file(path: Path) -> int | None:
    """A descriptor that becomes readable when the file is written, or None where there is no such thing."""
    if not sys.platform.startswith("linux"):
        return None
    system = ctypes.CDLL(None, use_errno=True)
    file: int = system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if file < 0:
        return None
    if system.inotify_add_watch(file, os.fsencode(path), ctypes.c_uint32(IN_MODIFY)) < 0:
        os.close(file)
        return None
    return file


def drain(file: int) -> None:
    try:
        while len(os.read(file, 65536)) == 65536:
            pass
    except BlockingIOError:
        return
