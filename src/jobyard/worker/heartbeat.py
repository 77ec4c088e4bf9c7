"""The worker's heartbeat."""

from __future__ import annotations

from collections.abc import Callable

from jobyard.operations.worker_control import Control, requested_control
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.ports.store import Store

HEARTBEATS_PER_LEASE = 3


class Heartbeat:
    """Announces that the worker is alive, for as long as one lease, and receives its commands."""

    def __init__(self, info: Callable[[], WorkerInfo], obey: Callable[[Control], None], lease_seconds: float) -> None:
        self.interval = lease_seconds / HEARTBEATS_PER_LEASE
        self._info = info
        self._obey = obey
        self._lease_seconds = lease_seconds
        self._obeyed: Control | None = None

    async def send(self, store: Store) -> None:
        await store.heartbeat(self._info(), self._lease_seconds)

    async def sign_off(self, store: Store) -> None:
        """Take the worker off the list of live workers."""
        await store.heartbeat(self._info(), 0)

    async def obey_command(self, store: Store) -> None:
        """Carry out a new command (quiet, stop), and show it in a heartbeat at once."""
        info = self._info()
        control = await requested_control(store, info.id, info.started_at)
        if control is not None and control is not self._obeyed:
            self._obeyed = control
            self._obey(control)
            await self.send(store)
