"""Snapshots for `jobyard top`: queues, groups, workers, running jobs, throughput."""

from __future__ import annotations

from collections import deque

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import Job, State
from jobyard.operations.protocol import Operations
from jobyard.operations.queries import take
from jobyard.ports.admin_store import Filter, GroupInfo, QueueInfo
from jobyard.ports.schedule_store import WorkerInfo

GROUPS_PER_QUEUE = 100
RUNNING_AT_MOST = 100
HISTORY = 30
# Heartbeats come about once a second: a shorter window would make the number jump.
AVERAGED_MILLISECONDS = 5000


class TopSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    at: Instant
    queues: list[QueueInfo]
    groups: list[GroupInfo]  # with jobs, a limit or a pause; busiest first
    workers: list[WorkerInfo]
    running: list[Job]  # longest first
    jobs_per_second: float


class Sampler:
    """Takes snapshots; remembers the counts of the workers to compute the throughput."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._beats: dict[str, deque[tuple[Instant, int]]] = {}
        self._noted_at: Instant = 0
        self.history: deque[float] = deque(maxlen=HISTORY)

    async def sample(self) -> TopSnapshot:
        operations = self._operations
        queues = await operations.queues()
        groups = [
            group
            for queue in queues
            for group in await take(operations.groups(queue.name, page_size=GROUPS_PER_QUEUE), GROUPS_PER_QUEUE)
            if group.name is not None
        ]
        groups.sort(key=lambda group: (-group.running, -group.waiting, group.queue, group.name or ""))
        workers = await operations.workers()
        running = list((await operations.find(Filter(states=(State.RUNNING,)), RUNNING_AT_MOST)).jobs)
        running.sort(key=lambda job: job.started_at or 0)
        now = await operations.now()
        rate = self._throughput(workers)
        if now - self._noted_at >= 1000:
            self._noted_at = now
            self.history.append(rate)
        return TopSnapshot(at=now, queues=queues, groups=groups, workers=workers, running=running, jobs_per_second=rate)

    def _throughput(self, workers: list[WorkerInfo]) -> float:
        """Completed jobs per second between heartbeats in the window; for a new worker, since its start."""
        total = 0.0
        for worker in workers:
            beats = self._beats.setdefault(worker.id, deque([(worker.started_at, 0)]))
            if worker.seen_at > beats[-1][0]:
                beats.append((worker.seen_at, worker.completed))
            while len(beats) > 2 and beats[1][0] <= worker.seen_at - AVERAGED_MILLISECONDS:
                beats.popleft()
            (since, before), (until, completed) = beats[0], beats[-1]
            total += (completed - before) * 1000 / (until - since) if until > since else 0.0
        return total
