"""Health checks of this process: liveness, readiness, and the reason when it is not ready."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Protocol

from jobyard.api.schemas.events import CheckView, HealthView
from jobyard.errors import JobyardError, NewerSchema
from jobyard.operations.sandboxes import best_languages, known_sandboxes, why_unavailable
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.ports.store import Store

# Store checks are cached for this long, however often the health route is called.
CACHE_SECONDS = 1.0
STORE_SECONDS = 3.0
# Workers are silent, and claim nothing, while the store accepts no writes.
NEEDS_WRITES = ("workers", "claiming")
WRITTEN_SECONDS = 60.0
# A write costs a sync of the disk: after a successful one, the next follows this much later.
WRITE_AGAIN_SECONDS = 5.0
# Applied migrations stay applied: a successful check is repeated only this often.
MIGRATIONS_AGAIN_SECONDS = 60.0
# A worker with free slots claims about every second; after this long without a claim it is cut off from the store.
CLAIM_SECONDS = 15.0


class ClaimingWorker(Protocol):
    """What the readiness check needs of a worker."""

    @property
    def last_exchange(self) -> float | None:
        """When the store last answered, by time.monotonic."""

    def info(self) -> WorkerInfo: ...


class Health:
    def __init__(
        self,
        store: Store,
        is_draining: Callable[[], bool],
        worker: ClaimingWorker | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.worker = worker  # the worker in this process, if any
        self.more: list[Callable[[], CheckView]] = []  # checks of other parts of this process
        self.needs_workers = False  # started together with worker processes
        self.has_sandbox = False  # these workers should be able to run programs
        self._store = store
        self._is_draining = is_draining
        self._clock = clock
        self._began = clock()
        self._asked: tuple[float, tuple[CheckView, ...]] | None = None
        self._asking = asyncio.Lock()
        self._writing: asyncio.Future[int | None] | None = None
        self._written_at = -math.inf
        self._migrated_at: float | None = None

    def live(self) -> HealthView:
        """A response proves that the event loop runs."""
        return HealthView(status="ok")

    async def ready(self) -> HealthView:
        checks = [self._draining(), *await self._of_store()]
        if self.worker is not None:
            checks.append(self._claiming(self.worker))
        wrong = [check.reason for check in checks if not check.ok]
        is_silent = any(check.name in NEEDS_WRITES and not check.ok for check in checks)
        # A server must be able to insert jobs. A worker shows by its claims that the store accepts writes.
        is_server = self.worker is None and all(check.ok for check in checks if check.name == "store")
        if is_silent or (is_server and self._clock() - self._written_at >= WRITE_AGAIN_SECONDS):
            checks.append(writes := await self._accepts_writes())
            if not writes.ok:  # the cause of the others
                wrong = [check.reason for check in checks if not check.ok and check.name not in NEEDS_WRITES]
        elif is_server:
            checks.append(CheckView(name="writes", ok=True))
        others = [check() for check in self.more]
        checks += others
        wrong += [check.reason for check in others if not check.ok]
        return HealthView(
            status="unavailable" if wrong else "ok",
            reason=" ".join(wrong),
            version=version("jobyard"),
            uptime_seconds=round(self._clock() - self._began, 1),
            checks=tuple(checks),
        )

    async def store_problem(self) -> str:
        """Why the store does not respond or takes no writes; empty if it does."""
        [store, *_] = await self._of_store()
        if not store.ok:
            return store.reason
        if self._clock() - self._written_at < WRITE_AGAIN_SECONDS:
            return ""
        return (await self._accepts_writes()).reason

    def _draining(self) -> CheckView:
        if self._is_draining():
            return CheckView(name="not_draining", ok=False, reason="The server is stopping.")
        return CheckView(name="not_draining", ok=True)

    def _claiming(self, worker: ClaimingWorker) -> CheckView:
        info = worker.info()
        if info.running >= info.concurrency or info.quiet:
            return CheckView(name="claiming", ok=True)  # no free slots, or quiet: it does not claim
        last = worker.last_exchange
        if last is None:
            return CheckView(name="claiming", ok=False, reason="The worker has not claimed yet.")
        silent = self._clock() - last
        if silent > CLAIM_SECONDS:
            reason = f"The worker has not reached the store for {silent:.0f} s."
            return CheckView(name="claiming", ok=False, reason=reason)
        return CheckView(name="claiming", ok=True)

    async def _of_store(self) -> tuple[CheckView, ...]:
        async with self._asking:
            if self._asked is None or self._clock() - self._asked[0] >= CACHE_SECONDS:
                found = [await self._try("store", "The store does not respond", self._answers())]
                if found[0].ok:  # nothing else can be checked while it is unavailable
                    says = "The schema of the store cannot be read"
                    found.append(await self._try("migrations", says, self._is_migrated()))
                    if self.needs_workers:
                        found.append(await self._try("workers", "The workers cannot be listed", self._are_alive()))
                    if self.has_sandbox:
                        found.append(await self._sandbox())
                self._asked = (self._clock(), tuple(found))
            return self._asked[1]

    async def _try(self, name: str, says: str, question: Awaitable[str]) -> CheckView:
        """The reason holds only the error code: the health route is public. The details are in the log."""
        try:
            async with asyncio.timeout(STORE_SECONDS):
                reason = await question
        except TimeoutError:
            reason = f"{says} within {STORE_SECONDS:g} s."
        except JobyardError as error:
            reason = f"{says} ({error.code})."
        return CheckView(name=name, ok=not reason, reason=reason)

    async def _answers(self) -> str:
        # A real read: `now` may succeed without the file of the store.
        await self._store.fetch("jobyard.health", "ready")
        return ""

    async def _accepts_writes(self) -> CheckView:
        # One write at a time: a store that is locked keeps it, and would gather one for each request.
        if self._writing is None or self._writing.done():
            put = self._store.put("jobyard.health", "written", b"true", expire_seconds=WRITTEN_SECONDS)
            self._writing = asyncio.ensure_future(put)
        done, _ = await asyncio.wait([self._writing], timeout=STORE_SECONDS)
        error = self._writing.exception() if done else None
        if done and error is None:
            self._written_at = self._clock()
            return CheckView(name="writes", ok=True)
        if isinstance(error, JobyardError):
            reason = f"The store accepts no writes ({error.code})."
        elif error is not None:
            reason = "The store accepts no writes."
        elif self._store.is_remote:
            reason = f"The store accepts no writes within {STORE_SECONDS:g} s."
        else:  # only a transaction of another process can delay a local store for so long
            reason = f"The store is locked: another process has held its lock for more than {STORE_SECONDS:g} s."
        return CheckView(name="writes", ok=False, reason=reason)

    async def _are_alive(self) -> str:
        """Whether a worker of this machine has sent a heartbeat lately."""
        host = socket.gethostname()
        if any(info.host == host for info in await self._store.workers()):
            return ""
        return "No worker of this machine has sent a heartbeat lately."

    async def _sandbox(self) -> CheckView:
        """Reported, but never a failure: everything else still works."""
        try:
            known = await known_sandboxes(self._store)
        except JobyardError as error:
            return CheckView(name="sandbox", ok=True, reason=f"The sandboxes cannot be listed ({error.code}).")
        return CheckView(name="sandbox", ok=True, reason="" if best_languages(known) else why_unavailable(known))

    async def _is_migrated(self) -> str:
        if self._migrated_at is not None and self._clock() - self._migrated_at < MIGRATIONS_AGAIN_SECONDS:
            return ""
        try:
            missing = [migration for migration in await self._store.migrations() if not migration.applied]
        except NewerSchema:
            # A newer jobyard has migrated it: this process serves until it is replaced, too.
            missing = []
        if missing:
            self._migrated_at = None
            return f"{len(missing)} migrations are not applied. Run jobyard migrate."
        self._migrated_at = self._clock()
        return ""
