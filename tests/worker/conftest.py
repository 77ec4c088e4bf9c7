"""A yard on each store, with everything it does in view."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support import Events, Watched

from jobyard import Jobyard
from jobyard.main.stores import make_store


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture(params=["memory", "sqlite"])
def watched(request: pytest.FixtureRequest, tmp_path: Path) -> Watched:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    return Watched(make_store(url))


@pytest.fixture
async def yard(watched: Watched, events: Events) -> AsyncIterator[Jobyard]:
    async with Jobyard(store=watched.as_store(), observer=events) as yard:
        yield yard
        watched.failing = None
        assert await yard.store.audit() == []
