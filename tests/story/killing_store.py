"""A store whose process dies before or after the n-th change that it makes for a job."""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from tests.story.ledger import Ledger

from jobyard.domain.lease import Lease
from jobyard.ports.store import Store

VERBS = ("checkpoint", "insert", "change", "deliver", "forget_ended", "exchange")


class KillOrder(msgspec.Struct, frozen=True):
    """The part of a payload that says when to die: at which point of the calls for that job; -1: never."""

    job: str = ""
    kill_at: int = -1


class KillingStore:
    """For a worker with one slot: the calls between a claim and the next one are made for the claimed job.

    Their number is kept in a file, because a workflow that waits goes on in another process.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._ledger = Ledger(folder)
        self._order = KillOrder()

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if name not in VERBS or not inspect.iscoroutinefunction(verb):
            return verb

        async def dangerous(*args: Any, **kwargs: Any) -> Any:
            is_idle = name == "exchange" and not args[1]
            if not is_idle:
                count = self._point(f"before {name}")
                if name == "exchange" and count + 1 == self._order.kill_at:
                    # Another job that it claims would count the death, and three such deaths quarantine a job.
                    worker, settlements, queues, _, *rest = args
                    args = (worker, settlements, queues, 0, *rest)
            response = await verb(*args, **kwargs)
            if not is_idle:
                self._point(f"after {name}")
            if name == "exchange":
                self._claimed(response.leases)
            return response

        return dangerous

    def for_event_loop(self) -> Store:
        """Renewals and heartbeats of a thread do not count."""
        handle = self._store.for_event_loop()
        return cast(Store, self) if handle is self._store else handle

    def _claimed(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            self._order = msgspec.json.decode(lease.payload, type=KillOrder)

    def _point(self, what: str) -> int:
        """The number of this point."""
        if self._order.kill_at < 0:
            return 0
        file = os.open(self._folder / f"calls-{self._order.job}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, b".")
            count = os.fstat(file).st_size
        finally:
            os.close(file)
        if count == self._order.kill_at:
            self._ledger.write(self._order.job, "died", what)
            os.kill(os.getpid(), signal.SIGKILL)
        return count
