"""Fixtures that run the whole suite on each store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.stores import EXCLUDED, STORES

from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    excluded = {f"{test}[{name}" for name, tests in EXCLUDED.items() for test in tests}
    items[:] = [item for item in items if item.name.removesuffix("]") not in excluded]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    store = STORES[request.param](tmp_path, clock)
    await store.open()
    yield store
    problems = await store.audit()
    await store.close()
    await store.close()
    assert problems == []
