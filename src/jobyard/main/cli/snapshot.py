"""One look at everything that moves: queues, groups, workers, running jobs, throughput."""

from __future__ import annotations

from collections import deque

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import Job, State
from jobyard.ports.store import Filter, GroupInfo, QueueInfo, Store, WorkerInfo

GROUPS_PER_QUEUE = 100
RUNNING_AT_MOST = 100
HISTORY = 30


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    at: Instant
    queues: list[QueueInfo]
    groups: list[GroupInfo]  # those with jobs, a limit or a pause; busiest first
    workers: list[WorkerInfo]
    running: list[Job]  # longest first
    jobs_per_second: float


class Watcher:
    """Takes snapshots; remembers the workers' counts, from which the throughput follows."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, WorkerInfo] = {}
        self._rates: dict[str, float] = {}
        self._noted_at: Instant = 0
        self.history: deque[float] = deque(maxlen=HISTORY)

    async def look(self) -> Snapshot:
        store = self._store
        queues = await store.queues()
        groups = [
            group
            for queue in queues
            for group in await store.groups(queue.name, GROUPS_PER_QUEUE)
            if group.name is not None
        ]
        groups.sort(key=lambda group: (-group.running, -group.waiting, group.queue, group.name or ""))
        workers = await store.workers()
        running = list((await store.find(Filter(states=(State.RUNNING,)), RUNNING_AT_MOST)).jobs)
        running.sort(key=lambda job: job.started_at or 0)
        now = await store.now()
        rate = self._throughput(workers)
        if now - self._noted_at >= 1000:
            self._noted_at = now
            self.history.append(rate)
        return Snapshot(at=now, queues=queues, groups=groups, workers=workers, running=running, jobs_per_second=rate)

    def _throughput(self, workers: list[WorkerInfo]) -> float:
        """Completed jobs between the last two beats of each worker; before its second beat, since its start."""
        for worker in workers:
            before = self._seen.get(worker.id)
            if before is not None and before.seen_at == worker.seen_at:
                continue
            since_count = 0 if before is None else before.completed
            since = worker.started_at if before is None else before.seen_at
            seconds = (worker.seen_at - since) / 1000
            self._rates[worker.id] = (worker.completed - since_count) / seconds if seconds > 0 else 0.0
            self._seen[worker.id] = worker
        return sum(self._rates[worker.id] for worker in workers)
