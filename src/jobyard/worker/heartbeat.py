"""The worker's heartbeat."""

from __future__ import annotations

import time
from collections.abc import Callable

from jobyard.operations.lost_workers import REMEMBER_SECONDS, forget_worker, remember_worker
from jobyard.operations.worker_control import Control, requested_control
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.ports.store import Store

HEARTBEATS_PER_LEASE = 3


class Heartbeat:
    """Announces that the worker is alive, for as long as one lease, and receives its commands."""

    def __init__(
        self, info: Callable[[], WorkerInfo], apply_command: Callable[[Control], None], lease_seconds: float
    ) -> None:
        self.interval = lease_seconds / HEARTBEATS_PER_LEASE
        self._info = info
        self._apply_command = apply_command
        self._lease_seconds = lease_seconds
        self._applied: Control | None = None
        self._remembered_at: float | None = None

    async def send(self, store: Store) -> None:
        info = self._info()
        await store.heartbeat(info, self._lease_seconds)
        if self._remembered_at is None or time.monotonic() - self._remembered_at >= REMEMBER_SECONDS:
            await remember_worker(store, info)
            self._remembered_at = time.monotonic()

    async def deregister(self, store: Store) -> None:
        """Take the worker off the list of live workers."""
        info = self._info()
        await forget_worker(store, info.id)  # first: a worker that is remembered and not alive is lost
        await store.heartbeat(info, 0)

    async def apply_command(self, store: Store) -> None:
        """Carry out a new command (quiet, stop), and show it in a heartbeat at once."""
        info = self._info()
        control = await requested_control(store, info.id, info.started_at)
        if control is not None and control is not self._applied:
            self._applied = control
            self._apply_command(control)
            await self.send(store)
