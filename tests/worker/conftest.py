"""A yard on each store, with everything it does in view."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.story.engines import empty_store
from tests.support import Events, Watched

from jobyard import Jobyard
from jobyard.config.store_factory import make_store


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def watched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watched]:
    if request.param == "memory":
        yield Watched(make_store("memory://"))
        return
    with empty_store(request.param, tmp_path, may_be_used=True) as url:
        yield Watched(make_store(url))


@pytest.fixture
async def yard(watched: Watched, events: Events) -> AsyncIterator[Jobyard]:
    async with Jobyard(store=watched.as_store(), observer=events) as yard:
        yield yard
        watched.failing = None
        assert await yard.store.audit() == []
