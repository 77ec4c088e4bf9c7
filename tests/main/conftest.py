"""A yard of its own for each test, on each store; logging as it was afterwards."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support import Make

from jobyard import Jobyard
from jobyard.main.levels import COMPONENTS


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    return lambda **options: Jobyard(url, **options)


@pytest.fixture
async def yard(make: Make) -> AsyncIterator[Jobyard]:
    async with make() as yard:
        yield yard
        assert await yard.store.audit() == []


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command sets up logging for its whole process, which other tests share."""
    loggers = [logging.getLogger(name) for name in ("jobyard", *(f"jobyard.{part}" for part in COMPONENTS))]
    before = [(logger, logger.level, logger.propagate, logger.handlers[:]) for logger in loggers]
    yield
    for logger, level, propagate, handlers in before:
        logger.setLevel(level)
        logger.propagate, logger.handlers = propagate, handlers
