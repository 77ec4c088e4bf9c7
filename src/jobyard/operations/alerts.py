"""Alerts: a queue that is too long, and a worker that is lost; each is sent once, however many servers watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.text import counted
from jobyard.errors import JobyardError
from jobyard.operations.lost_workers import lost_workers
from jobyard.ports.admin_store import QueueInfo
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.ports.store import Store

log = logging.getLogger("jobyard.alerts")

COLLECTION = "jobyard.alerts"
# A queue counts as short again below this share of the threshold: at the threshold itself, alerts would come and go.
RESOLVED_SHARE = 0.8
# A lost worker is reported once: its name is not used again, and it is listed for a shorter time than this.
LOST_SECONDS = 86400.0
# Seconds in which a worker that is missing may report again, counted while the store takes writes: after an outage or
# a lock, in which no worker could report, it only needs its next heartbeat.
GRACE_SECONDS = 15.0
MISSING = "jobyard.alerts_missing"

Notify = Callable[[str, str], Awaitable[bool]]


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True):
    queue_length: int | None = 1000  # waiting jobs of one queue; None: no alert
    worker_lost: bool = True
    interval_seconds: float = 15.0
    repeat_seconds: float = 3600.0  # a condition that lasts is reported again after this long


class Alert(msgspec.Struct, frozen=True):
    name: str
    title: str
    text: str


class AlertWatcher:
    """Looks at the store at intervals. A record of each alert that was sent keeps other servers from sending it too."""

    def __init__(self, store: Store, settings: AlertSettings, notify: Notify) -> None:
        """`notify` sends a title and a text, and returns whether it was delivered."""
        self._store = store
        self._settings = settings
        self._notify = notify
        # Of workers, by id
        self._missing_since: dict[str, Instant] = {}
        self._seen_at: dict[str, Instant] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Safe twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            try:
                await self.run_once()
            except JobyardError as error:
                self._missing_since.clear()  # they could not report either
                log.warning("alerts cannot be checked: %s", error)
            except Exception:
                log.exception("alerts cannot be checked")
            await asyncio.sleep(self._settings.interval_seconds)

    async def run_once(self) -> None:
        queues = await self._store.queues()
        for alert in self._long_queues(queues):
            await self._fire(alert, self._settings.repeat_seconds)
        await self._resolve(queues)
        if self._settings.worker_lost:
            for alert in await self._lost_workers():
                await self._fire(alert, LOST_SECONDS)

    def _long_queues(self, queues: list[QueueInfo]) -> Iterator[Alert]:
        most = self._settings.queue_length
        for queue in queues:
            if most is not None and queue.waiting > most:
                waiting = counted(queue.waiting, "job waits", "jobs wait")
                text = f"{waiting} in queue {queue.name}, {queue.running} are running; the threshold is {most}."
                text += " The queue is paused." if queue.paused else ""
                yield Alert(f"queue_length:{queue.name}", f"jobyard: queue {queue.name} is long", text)

    async def _resolve(self, queues: list[QueueInfo]) -> None:
        waiting = {queue.name: queue.waiting for queue in queues}
        most = self._settings.queue_length
        for record in await self._store.fetch_all(COLLECTION):
            what, _, name = record.key.partition(":")
            is_well = most is None or waiting.get(name, 0) <= most * RESOLVED_SHARE
            if what != "queue_length" or not is_well:
                continue
            if await self._store.remove(COLLECTION, record.key, expect=record.version) and most is not None:
                text = f"{counted(waiting.get(name, 0), 'job waits', 'jobs wait')} in queue {name}."
                await self._notify(f"jobyard: queue {name} is no longer long", text)

    async def _lost_workers(self) -> list[Alert]:
        live = await self._store.workers()
        self._seen_at |= {worker.id: worker.seen_at for worker in live}
        if not await lost_workers(self._store, live):
            self._seen_at = {worker.id: worker.seen_at for worker in live}
            self._missing_since.clear()
            return []
        # Waits while the store is locked, or fails. Workers that are missing before that are looked at again after it.
        await self._store.put(MISSING, "looked", b"{}", expire_seconds=LOST_SECONDS)
        lost, now = await lost_workers(self._store, await self._store.workers()), await self._store.now()
        self._missing_since = {worker.id: self._missing_since.get(worker.id, now) for worker in lost}
        return [
            Alert(
                f"worker_lost:{worker.id}",
                f"jobyard: worker {worker.id} is lost",
                f"It ran on {worker.host} (pid {worker.pid}) and has not reported for {self._silent(worker, now)} s. "
                "Unless it reports again, its jobs run elsewhere.",
            )
            for worker in lost
            if now - self._missing_since[worker.id] >= GRACE_SECONDS * 1000
        ]

    def _silent(self, worker: WorkerInfo, now: Instant) -> int:
        """Seconds since its last heartbeat; its record is as old as a minute more."""
        return max(0, now - max(worker.seen_at, self._seen_at.get(worker.id, 0))) // 1000

    async def _fire(self, alert: Alert, seconds: float) -> None:
        """Send it, unless this server or another has sent it before."""
        version = await self._store.put(COLLECTION, alert.name, b"{}", expect=0, expire_seconds=seconds)
        if version is None:
            return
        log.warning("alert: %s. %s", alert.title, alert.text)
        if not await self._notify(alert.title, alert.text):
            # So that the next look, by whichever server comes first, sends it.
            await self._store.remove(COLLECTION, alert.name, expect=version)
