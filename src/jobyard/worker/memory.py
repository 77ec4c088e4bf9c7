"""The memory limit of a worker: measures it with its child processes, and drains it before the limit is exceeded."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jobyard.domain.events import WorkerMemoryHigh
from jobyard.ports.observer import Emit
from jobyard.worker.usage import PROC, resident_bytes
from jobyard.worker.worker import Worker

# From this share of the limit on, the worker takes no more jobs. The rest is for those that are running.
DRAIN_SHARE = 0.9
MEASURE_SECONDS = 1.0


def is_measurable() -> bool:
    return (PROC / "self/statm").exists()


def process_tree(root: int) -> list[int]:
    """The process and all below it."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found = [root]
    for pid in found:
        found += children.get(pid, ())
    return found


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.scandir(PROC):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # it ended meanwhile
                # The name of the program is in parentheses, and may hold any character.
                yield int(entry.name), int(Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()[1])


def proportional_bytes(pid: int) -> int:
    """As `resident_bytes`, with shared pages divided among the processes that share them."""
    with contextlib.suppress(OSError):
        for line in (PROC / str(pid) / "smaps_rollup").read_bytes().splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) << 10
    return resident_bytes(pid)


def memory_bytes(threshold: float, root: int | None = None) -> int:
    """The memory of the process tree. Exact from the threshold on; below it, shared pages may count more than once.

    The exact number is slow to get, and processes that share pages, as those of a browser do, only count less.
    """
    tree = process_tree(os.getpid() if root is None else root)
    resident = sum(map(resident_bytes, tree))
    return resident if resident < threshold else sum(map(proportional_bytes, tree))


class MemoryMonitor:
    """Drains a worker near its memory limit: it claims no more jobs, and stops when the running ones have ended.

    Above the limit itself it stops as by SIGTERM: what does not end within the shutdown timeout is handed back.
    """

    def __init__(
        self, worker: Worker, limit_bytes: int, emit: Emit, measure: Callable[[float], int] = memory_bytes
    ) -> None:
        self.is_draining = False
        self._worker = worker
        self._limit = limit_bytes
        self._emit = emit
        self._measure = measure
        self._thread = ThreadPoolExecutor(1, "jobyard-memory")

    async def run(self) -> None:
        try:
            while not self._worker.is_stopping:
                await self.run_once()
                await asyncio.sleep(MEASURE_SECONDS)
        finally:
            self._thread.shutdown(wait=False)

    async def run_once(self) -> None:
        drain_from = self._limit * DRAIN_SHARE
        used = await asyncio.get_running_loop().run_in_executor(self._thread, self._measure, drain_from)
        if self._worker.is_stopping or (used < drain_from and not self.is_draining):
            return
        running = len(self._worker.claimer.attempts)
        if not self.is_draining:
            self.is_draining = True
            self._worker.quiet()
            self._emit(WorkerMemoryHigh(self._worker.id, used, self._limit, running))
        if used >= self._limit or not running:
            await self._worker.stop()
