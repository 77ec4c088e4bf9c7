"""The worker: starts and stops the claim loop and what runs beside it."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Collection, Sequence

from jobyard.domain import events as e
from jobyard.domain.lease import DEFAULT_LEASE_SECONDS
from jobyard.errors import NotPossible
from jobyard.operations.chart_writer import ChartWriter
from jobyard.operations.store_risks import warn_of_risks
from jobyard.operations.worker_control import Control
from jobyard.ports.executor import Executor
from jobyard.ports.observer import Observer, WorkerService
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.ports.store import Store
from jobyard.worker.background_thread import BackgroundThread
from jobyard.worker.claimer import Claimer, EventEmitter, log_failure
from jobyard.worker.heartbeat import Heartbeat
from jobyard.worker.lease_renewer import LeaseRenewer
from jobyard.worker.loop_monitor import EventLoopMonitor
from jobyard.worker.usage import UsageMeter

MAX_KINDS = 500


def worker_name(service_name: str | None = None) -> str:
    """A name that is unique among all workers: of the service or the host, the process, and a random number."""
    return f"{service_name or socket.gethostname()}-{os.getpid()}-{random.getrandbits(24):06x}"


class Worker:
    def __init__(
        self,
        store: Store,
        executor: Executor,
        observer: Observer,
        *,
        queues: Sequence[str] = (),
        concurrency: int = 2,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        shutdown_seconds: float = 30.0,
        name: str | None = None,
        services: Sequence[WorkerService] = (),
        excluded_queues: Sequence[str] = (),
        kinds: Collection[str] | None = None,
    ) -> None:
        """`kinds` are those that the executor has handlers for; None if they are not known."""
        self.id = name or worker_name()
        self._store = store
        self._emit = EventEmitter(observer)
        self._queues = tuple(queues)
        self._concurrency = concurrency
        # More would make every heartbeat large.
        self._kinds = None if kinds is None or len(kinds) > MAX_KINDS else tuple(sorted(kinds))
        self._lease_seconds = lease_seconds
        self._shutdown_seconds = shutdown_seconds
        self.claimer = Claimer(
            store, executor, self._emit, self.id, self._queues, concurrency, lease_seconds, excluded_queues
        )
        self._services = (*services, ChartWriter(store, self.claimer.tally))
        self._usage = UsageMeter()
        self._background: BackgroundThread | None = None
        self._claim_task: asyncio.Task[None] | None = None
        self._shutdown: asyncio.Task[None] | None = None
        self._grace_is_over = asyncio.Event()
        self._has_stopped = asyncio.Event()

    @property
    def is_stopping(self) -> bool:
        return self.claimer.is_stopping

    @property
    def last_exchange(self) -> float | None:
        """When the store last answered, by time.monotonic."""
        return self.claimer.last_exchange

    async def start(self) -> None:
        if self._shutdown is not None:
            raise NotPossible("Cannot start a stopped worker. Create another one with yard.worker(…).")
        if self._claim_task is None:
            self._started_at = await self._store.now()
            self._loop = asyncio.get_running_loop()
            monitor = EventLoopMonitor(self._loop, self._emit)
            renewer = LeaseRenewer(self.claimer, self.id, self._lease_seconds, monitor)
            heartbeat = Heartbeat(self.info, self._apply_command, self._lease_seconds)
            # First, so that a store that is not open raises before anything runs, and the worker is listed before it
            # claims, or `explain` would report no_worker.
            await heartbeat.send(self._store)
            await warn_of_risks(self._store)
            for service in self._services:
                await service.start()
            self._background = BackgroundThread(self._store, renewer, heartbeat, monitor, self._emit)
            self._background.start()
            self.claimer.end_relay.start()
            self._claim_task = self._loop.create_task(self.claimer.run())
            self._claim_task.add_done_callback(log_failure)
            self._emit(e.WorkerStarted(self.id, self._queues, self._concurrency, self._store.url))

    async def stop(self, timeout_seconds: float | None = None) -> None:
        """Claim no more jobs, let the running ones finish for a while, then cancel them and hand them back.

        Safe twice; a second call with a shorter timeout shortens the first.
        """
        if self._claim_task is None:
            return
        grace = self._shutdown_seconds if timeout_seconds is None else timeout_seconds
        if self._shutdown is None:
            self._shutdown = self._loop.create_task(self._shut_down(grace))
        self._loop.call_later(grace, self._end_grace)
        await asyncio.shield(self._shutdown)

    def _end_grace(self) -> None:
        self.claimer.may_give_up = True
        self._grace_is_over.set()

    async def _shut_down(self, grace: float) -> None:
        assert self._claim_task is not None
        assert self._background is not None
        self._emit(e.WorkerStopping(self.id, len(self.claimer.attempts), grace))
        self.claimer.stop()
        grace_is_over = self._loop.create_task(self._grace_is_over.wait())
        try:
            await asyncio.wait([self._claim_task, grace_is_over], return_when=asyncio.FIRST_COMPLETED)
            self.claimer.release_all()
            await self._claim_task
        finally:
            grace_is_over.cancel()
            await self.claimer.end_relay.stop()
            await self._background.stop()
            for service in self._services:
                await service.stop()
        self._emit(e.WorkerStopped(self.id, self.claimer.handed_back))
        self._has_stopped.set()

    def quiet(self) -> None:
        """Claim no more jobs; the running ones continue."""
        self.claimer.quiet()

    async def stopped(self) -> None:
        """Wait until the worker has stopped, by `stop` or by a command from elsewhere."""
        await self._has_stopped.wait()

    async def __aenter__(self) -> Worker:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # Called from the background thread

    def info(self) -> WorkerInfo:
        throughput = self.claimer.throughput
        used = self._usage.read()
        return WorkerInfo(
            id=self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=self._queues,
            concurrency=self._concurrency,
            running=len(self.claimer.attempts),
            completed=throughput.completed,
            finished_per_minute=throughput.per_minute(),
            started_at=self._started_at,
            quiet=self.claimer.is_quiet,
            kinds=self._kinds,
            memory_bytes=used.memory_bytes,
            cpu_seconds=used.cpu_seconds,
            cpu_percent=used.cpu_percent,
        )

    def _apply_command(self, control: Control) -> None:
        if control is Control.STOP:
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self.stop()))
        elif not self.claimer.is_quiet:
            self.claimer.is_quiet = True  # at once, so that the next heartbeat shows it
            self._emit(e.WorkerQuiet(self.id, len(self.claimer.attempts)))
            self._loop.call_soon_threadsafe(self.quiet)
