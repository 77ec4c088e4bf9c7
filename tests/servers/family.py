"""The processes that a server started: PostgreSQL gives each a session of its own, so no signal reaches them all."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

GONE_SECONDS = 60.0


class Family:
    def children(self, parent: int) -> list[int]:
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            fields = _fields(stat)
            if fields and int(fields[1]) == parent:
                found.append(int(stat.parent.name))
        return found

    def end(self, processes: Sequence[int]) -> None:
        """SIGKILL, and wait until none is left: a new server would meet the memory that they share."""
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + GONE_SECONDS
        while any(_is_running(pid) for pid in processes):
            assert time.monotonic() < deadline, f"still there after SIGKILL: {processes}"
            time.sleep(0.005)


def _fields(stat: Path) -> list[str]:
    """What follows the name: state, parent, …; empty when the process is gone."""
    try:
        return stat.read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _is_running(pid: int) -> bool:
    fields = _fields(Path(f"/proc/{pid}/stat"))
    return bool(fields) and fields[0] not in {"Z", "X"}
