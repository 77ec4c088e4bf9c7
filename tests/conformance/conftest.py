"""Fixtures that run the whole suite on each store."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.stores import EXCLUDED, STORES, audit
from tests.story.sizes import size

from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock

# PgBouncer runs the statements of PostgreSQL, each in a transaction: every fourth test reaches most of them.
POOLED_EVERY = size(4, 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    excluded = {f"{test}[{name}" for name, tests in EXCLUDED.items() for test in tests}
    pooled = itertools.count()
    items[:] = [
        item
        for item in items
        if item.name.removesuffix("]") not in excluded
        and ("suite" not in item.nodeid or "[pgbouncer" not in item.name or next(pooled) % POOLED_EVERY == 0)
    ]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    store = STORES[request.param](tmp_path, clock)
    await store.open()
    yield store
    problems = await audit(store)
    await store.close()
    await store.close()
    assert problems == []


@pytest.fixture
async def second(
    request: pytest.FixtureRequest, store: Store, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Store]:
    """The same data as another process sees it; a memory store has one process only."""
    name = request.node.callspec.params["store"]
    if name == "memory":
        yield store
        return
    second = STORES[name](tmp_path, clock)
    await second.open()
    yield second
    await second.close()
