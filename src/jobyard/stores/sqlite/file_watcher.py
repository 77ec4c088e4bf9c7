"""File watcher: detects writes to the write-ahead log, by inotify on Linux and by frequent polling elsewhere."""

from __future__ import annotations

import ctypes
import os
import select
import sys
from pathlib import Path

IN_MODIFY = 0x00000002
# With inotify, polling is only a safety net; without it, polling decides how soon a change is seen.
POLL_WITH_INOTIFY_SECONDS = 0.1
POLL_SECONDS = 0.004
# The log is written shortly before the commit is visible, and by a process that syncs, some milliseconds before: the
# polls after an event. Without them a commit of another process would be seen only at the next slow poll.
POLLS_AFTER_EVENT_SECONDS = (0.0003, 0.001, 0.004, 0.004, 0.02, 0.05)


class FileWatcher:
    """Waits for a write to the file, for `interrupt`, or for the time of the next poll."""

    def __init__(self, path: Path) -> None:
        pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        self._interrupted, self._interrupt = pipe
        os.set_blocking(self._interrupted, False)
        os.set_blocking(self._interrupt, False)
        self._inotify = watch_file(path)
        self._poll = select.poll()
        self._poll.register(self._interrupted, select.POLLIN)
        if self._inotify is not None:
            self._poll.register(self._inotify, select.POLLIN)
        self._polls_left = 0

    def wait(self, timeout_seconds: float) -> bool:
        """Return True if it was interrupted."""
        timeout = max(0.0, min(self._poll_seconds(), timeout_seconds))
        ready = {file for file, _ in self._poll.poll(timeout * 1000)}
        if self._inotify in ready:
            drain(self._inotify)
            self._polls_left = len(POLLS_AFTER_EVENT_SECONDS)
        elif self._polls_left:
            self._polls_left -= 1
        if self._interrupted in ready:
            drain(self._interrupted)
            return True
        return False

    def _poll_seconds(self) -> float:
        if self._inotify is None:
            return POLL_SECONDS
        return POLLS_AFTER_EVENT_SECONDS[-self._polls_left] if self._polls_left else POLL_WITH_INOTIFY_SECONDS

    def interrupt(self) -> None:
        """End the current or next `wait` early. May be called from any thread."""
        try:
            os.write(self._interrupt, b"!")
        except BlockingIOError:
            return  # the pipe is full: it is interrupted already

    def close(self) -> None:
        for file in (self._interrupted, self._interrupt, self._inotify):
            if file is not None:
                os.close(file)


def watch_file(path: Path) -> int | None:
    """Return a descriptor that becomes readable when the file is written, or None where inotify is missing."""
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
