"""A yard on each store with a clock that tests move, and a ledger of what ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.stores import STORES

from jobyard import JobHandle, Jobyard
from jobyard.api.schemas.jobs import JobView
from jobyard.executors.workflow.relay import deliver_ended
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock
from jobyard.testing.kit import drain

ENGINES = ("memory", "sqlite", "redis", "postgres")


class World:
    """What a test of workflows needs: a yard, its clock, and a count of effects."""

    def __init__(self, yard: Jobyard, store: Store, clock: ManualClock) -> None:
        self.yard = yard
        self.store = store
        self.clock = clock
        self.ledger: Counter[str] = Counter()
        self.order: list[str] = []

    def note(self, what: str) -> None:
        self.ledger[what] += 1
        self.order.append(what)

    async def drain(self, *, with_delayed: bool = True) -> list[JobView]:
        return await drain(self.yard, with_delayed=with_delayed)

    async def result(self, handle: JobHandle[Any]) -> Any:
        """Run everything, through delays, and return the job's result."""
        await self.drain()
        return await handle.result(timeout=0)

    async def deliver(self) -> None:
        while await deliver_ended(self.store):
            pass


@pytest.fixture(params=ENGINES)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    clock = ManualClock()
    store = STORES[request.param](tmp_path, clock)
    yard = Jobyard(store=store, clock=clock)
    async with yard:
        yield World(yard, store, clock)
        assert await store.audit() == []
