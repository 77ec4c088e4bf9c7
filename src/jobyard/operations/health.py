"""Whether this process can do its work now, and if not, why."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Protocol

from jobyard.api.schemas.events import CheckView, HealthView
from jobyard.errors import JobyardError
from jobyard.operations.sandboxes import best, told, why_none
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.ports.store import Store

# The store is asked at most so often, however often somebody asks us.
ASK_EVERY_SECONDS = 1.0
STORE_SECONDS = 3.0
# Migrations that are there stay there.
MIGRATIONS_AGAIN_SECONDS = 60.0
# A worker with room asks for jobs about every second; one that has not for so long cannot get through.
CLAIM_SECONDS = 15.0


class Claiming(Protocol):
    """A worker, as far as its health goes."""

    last_exchange: float | None  # by time.monotonic

    def info(self) -> WorkerInfo: ...


class Health:
    def __init__(
        self,
        store: Store,
        is_draining: Callable[[], bool],
        worker: Claiming | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.worker = worker  # the one in this process, if there is one
        self.more: list[Callable[[], CheckView]] = []  # of what else runs in this process
        self.needs_workers = False  # it was started together with workers, as processes of their own
        self.has_sandbox = False  # and these should be able to run programs
        self._store = store
        self._is_draining = is_draining
        self._clock = clock
        self._began = clock()
        self._asked: tuple[float, tuple[CheckView, ...]] | None = None
        self._asking = asyncio.Lock()
        self._migrated_at: float | None = None

    def live(self) -> HealthView:
        """Whoever gets this answer knows that the loop turns."""
        return HealthView(status="ok")

    async def ready(self) -> HealthView:
        checks = [self._draining(), *await self._of_store()]
        if self.worker is not None:
            checks.append(self._claiming(self.worker))
        checks += [check() for check in self.more]
        wrong = [check.reason for check in checks if not check.ok]
        return HealthView(
            status="unavailable" if wrong else "ok",
            reason=" ".join(wrong),
            version=version("jobyard"),
            uptime_seconds=round(self._clock() - self._began, 1),
            checks=tuple(checks),
        )

    def _draining(self) -> CheckView:
        if self._is_draining():
            return CheckView(name="not_draining", ok=False, reason="It is stopping.")
        return CheckView(name="not_draining", ok=True)

    def _claiming(self, worker: Claiming) -> CheckView:
        info = worker.info()
        if info.running >= info.concurrency or info.quiet:
            return CheckView(name="claiming", ok=True)  # it has no room, or was told to: so it does not ask
        last = worker.last_exchange
        if last is None:
            return CheckView(name="claiming", ok=False, reason="The worker has not asked for jobs yet.")
        silent = self._clock() - last
        if silent > CLAIM_SECONDS:
            return CheckView(
                name="claiming", ok=False, reason=f"The worker has not got through to ask for jobs for {silent:.0f} s."
            )
        return CheckView(name="claiming", ok=True)

    async def _of_store(self) -> tuple[CheckView, ...]:
        async with self._asking:
            if self._asked is None or self._clock() - self._asked[0] >= ASK_EVERY_SECONDS:
                found = [await self._try("store", "The store does not answer", self._answers())]
                if found[0].ok:  # of one that is away nothing else is known
                    found.append(
                        await self._try("migrations", "The store's schema cannot be read", self._is_migrated())
                    )
                    if self.needs_workers:
                        found.append(await self._try("workers", "The workers are not known", self._are_alive()))
                    if self.has_sandbox:
                        found.append(await self._sandbox())
                self._asked = (self._clock(), tuple(found))
            return self._asked[1]

    async def _try(self, name: str, says: str, question: Awaitable[str]) -> CheckView:
        """The reason names the kind of trouble only: this may be read by anybody, and the log tells the rest."""
        try:
            async with asyncio.timeout(STORE_SECONDS):
                reason = await question
        except TimeoutError:
            reason = f"{says} within {STORE_SECONDS:g} s."
        except JobyardError as error:
            reason = f"{says} ({error.code})."
        return CheckView(name=name, ok=not reason, reason=reason)

    async def _answers(self) -> str:
        # Something that is really read: what time it is, a store may know without its file.
        await self._store.fetch("jobyard.health", "ready")
        return ""

    async def _are_alive(self) -> str:
        """Workers say that they live every few seconds; one that hangs or cannot reach the store does not."""
        host = socket.gethostname()
        if any(info.host == host for info in await self._store.workers()):
            return ""
        return "No worker of this machine has been heard of lately."

    async def _sandbox(self) -> CheckView:
        """Told, but no reason to send everything else elsewhere."""
        try:
            known = await told(self._store)
        except JobyardError as error:
            return CheckView(name="sandbox", ok=True, reason=f"The sandboxes are not known ({error.code}).")
        return CheckView(name="sandbox", ok=True, reason="" if best(known) else why_none(known))

    async def _is_migrated(self) -> str:
        if self._migrated_at is not None and self._clock() - self._migrated_at < MIGRATIONS_AGAIN_SECONDS:
            return ""
        missing = [migration for migration in await self._store.migrations() if not migration.applied]
        if missing:
            self._migrated_at = None
            return f"{len(missing)} migrations are not applied: run jobyard migrate."
        self._migrated_at = self._clock()
        return ""
