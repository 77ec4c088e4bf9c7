"""A yard of its own for each test, on each store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support import Make

from jobyard import Jobyard


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    return lambda **options: Jobyard(url, **options)


@pytest.fixture
async def yard(make: Make) -> AsyncIterator[Jobyard]:
    async with make() as yard:
        yield yard
        assert await yard.store.audit() == []
