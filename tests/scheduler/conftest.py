"""A store whose clock stands still until a test turns it, and schedulers on it that are turned by hand, too."""

from __future__ import annotations

import pytest
from tests.support import Events, Watched

from jobyard.domain.schedule import Schedule
from jobyard.operations.schedule_options import make_schedule
from jobyard.operations.schedules import Schedules
from jobyard.scheduler.scheduler import Scheduler
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def watched(clock: ManualClock) -> Watched:
    return Watched(MemoryStore(clock))


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def scheduler(watched: Watched, events: Events) -> Scheduler:
    return Scheduler(watched.as_store(), events, name="one")


@pytest.fixture
def schedules(watched: Watched) -> Schedules:
    return Schedules(watched.as_store(), shortest_interval_seconds=1)


def every(expression: str, **words: object) -> Schedule:
    return make_schedule({"name": "s", "expression": expression, "kind": "k", "overlap": "allow", **words})
