"""Schedules of several stores: one that is away makes none of the others late."""

from __future__ import annotations

from pathlib import Path

from tests.scheduler.conftest import every
from tests.scheduler.support import FIRED, past
from tests.stores.sharded_support import ShardedSetup
from tests.support import Events

from jobyard.domain.events import StoreFailed, TickDecided
from jobyard.errors import StoreUnavailable
from jobyard.operations.schedules import Schedules
from jobyard.scheduler.scheduler import Scheduler


async def test_an_unavailable_store_does_not_delay_the_others(tmp_path: Path) -> None:
    async with ShardedSetup(tmp_path) as setup:
        schedules, events = Schedules(setup.store, shortest_interval_seconds=1), Events()
        scheduler = Scheduler(setup.store, events, name="one")
        for number in range(3):
            await schedules.add(every("*/10 * * * * *", name=f"mail-{number}", queue="mail"))
        await schedules.add(every("*/10 * * * * *", name="work"))
        await scheduler.run_once()
        setup.mail.failing = StoreUnavailable("away")
        for _ in range(5):
            setup.clock.advance(5)
            await scheduler.run_once()
        [trouble] = events.of(StoreFailed)
        assert "mail" in trouble.doing, "said once, not for each schedule and not each second"
        assert [(event.schedule, event.verdict) for event in events.of(TickDecided)] == [("work", FIRED)] * 2
        setup.mail.calls.clear()
        for _ in range(10):
            await scheduler.run_once()
        assert setup.mail.calls["decide"] == 0, "it is tried again each second, not at once"
        setup.mail.failing = None
        setup.clock.advance(2)
        await scheduler.run_once()
        for name in ("mail-0", "mail-1", "mail-2", "work"):
            assert await past(schedules, name) == [(10, FIRED, 1), (20, FIRED, 1)]
