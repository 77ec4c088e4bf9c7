"""The scheduler's loops: on time, through outages and wrong clocks, and quick to stop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.scheduler.conftest import every
from tests.support import Events, Watched, eventually

from jobyard.domain.events import (
    SchedulerStarted,
    SchedulerStopped,
    StoreFailed,
    StoreRecovered,
    TickDecided,
    TickDelayed,
)
from jobyard.domain.instant import Instant
from jobyard.domain.schedule import Verdict
from jobyard.errors import StoreUnavailable
from jobyard.observability.logs import LogObserver
from jobyard.observability.metrics import Metrics
from jobyard.operations.schedules import Schedules
from jobyard.ports.clock import SystemClock
from jobyard.ports.store import Store
from jobyard.scheduler import scheduler as module
from jobyard.scheduler.scheduler import Scheduler
from jobyard.scheduler.store_clock import StoreClock
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import START, ManualClock


class Turned:
    """The machine's clock, turned by some seconds."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def now(self) -> Instant:
        return SystemClock().now() + round(self.seconds * 1000)


@asynccontextmanager
async def running(store: Store, events: Events) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(store, events)
    await scheduler.start()
    try:
        await eventually(lambda: scheduler.is_loaded)
        yield scheduler
    finally:
        await scheduler.stop()


async def test_it_fires_on_time_and_takes_changes_over(events: Events) -> None:
    store = MemoryStore(Turned())
    schedules = Schedules(store, shortest_interval_seconds=1)
    async with running(store, events):
        await schedules.add(every("* * * * * *"))
        await eventually(lambda: len(events.of(TickDecided)) >= 2)
        await schedules.pause("s")
        paused_at = await store.now()
        await asyncio.sleep(1.2)  # time itself is what has to pass here
        decided = events.of(TickDecided)
        assert max(event.at for event in decided) <= paused_at
        assert {event.verdict for event in decided} == {Verdict.FIRED}
        instants = [event.at for event in decided]
        assert instants == list(range(instants[0], instants[-1] + 1, 1000))
    assert (len(events.of(SchedulerStarted)), len(events.of(SchedulerStopped))) == (1, 1)


async def test_two_hosts_whose_clocks_differ(events: Events) -> None:
    """The store is nine seconds ahead of this machine: its clock decides."""
    store = MemoryStore(Turned(9.0))
    schedules = Schedules(store, shortest_interval_seconds=1)
    await schedules.add(every("* * * * * *"))
    async with running(store, events), running(store, events):
        await eventually(lambda: len(events.of(TickDecided)) >= 2)
    for event in events.of(TickDecided):
        assert event.verdict is Verdict.FIRED
    rows = await schedules.history("s")
    assert all(0 <= row.decided_at - row.at < 8000 for row in rows)
    assert len({row.at for row in rows}) == len(events.of(TickDecided))


async def test_a_step_of_the_stores_clock_is_noticed(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEASURE_EVERY_SECONDS", 0.05)
    monkeypatch.setattr(module, "FOLLOW_EVERY_SECONDS", 0.05)
    clock = Turned()
    store = MemoryStore(clock)
    schedules = Schedules(store)
    async with running(store, events):
        await schedules.add(every("0 0 1 1 *", missed="skip"))
        added = await schedules.add(every("0 * * * *", name="hourly"))
        await asyncio.sleep(0.3)
        assert events.of(TickDecided) == []
        next_hour = (added.since // 3_600_000 + 1) * 3_600_000
        clock.seconds += (next_hour - await store.now()) / 1000 - 0.2
        event = await eventually(lambda: next(iter(events.of(TickDecided)), None))
        assert (event.schedule, event.at, event.verdict) == ("hourly", next_hour, Verdict.FIRED)
        clock.seconds -= 600
        await asyncio.sleep(0.3)
        assert len(events.of(TickDecided)) == 1


async def test_a_store_that_is_away_is_waited_for(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(MemoryStore(Turned()))
    store = watched.as_store()
    schedules = Schedules(store, shortest_interval_seconds=1)
    await schedules.add(every("* * * * * *"))
    watched.failing = StoreUnavailable("away")
    scheduler = Scheduler(store, events)
    await scheduler.start()
    try:
        await eventually(lambda: len(events.of(StoreFailed)) > 2)
        began = time.monotonic()
        await eventually(lambda: scheduler.iterated_at > began)
        watched.failing = None
        await eventually(lambda: events.of(StoreRecovered))
        await eventually(lambda: len(events.of(TickDecided)) >= 2)
        watched.failing = StoreUnavailable("away again")
        troubles = len(events.of(StoreFailed))
        await eventually(lambda: len(events.of(StoreFailed)) > troubles + 1)
        watched.failing = None
        seen = len(events.of(TickDecided))
        await eventually(lambda: len(events.of(TickDecided)) > seen + 1)
    finally:
        await scheduler.stop()
    instants = sorted(event.at for event in events.of(TickDecided))
    assert instants == list(range(instants[0], instants[-1] + 1, 1000)), "none was lost, none came twice"


async def test_an_answer_that_was_lost_fires_nothing_twice(events: Events) -> None:
    """The store decided the ticks, but the response was lost."""
    inner = MemoryStore(Turned())

    class Lossy(Watched):
        losses = 3

        def __getattr__(self, name: str) -> object:
            verb = super().__getattr__(name)
            if name != "decide":
                return verb

            async def decide(*args: object) -> object:
                response = await verb(*args)
                if self.losses:
                    self.losses -= 1
                    raise StoreUnavailable("cut off")
                return response

            return decide

    schedules = Schedules(inner, shortest_interval_seconds=1)
    await schedules.add(every("* * * * * *"))
    async with running(Lossy(inner).as_store(), events):
        await eventually(lambda: len(events.of(TickDecided)) >= 2)
    rows = [row.at for row in await schedules.history("s")]
    assert sorted(rows) == list(range(min(rows), max(rows) + 1, 1000))
    assert len({row.job_id for row in await schedules.history("s")}) == len(rows)


async def test_it_ends_at_once(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FOLLOW_EVERY_SECONDS", "ITERATION_SECONDS", "STOP_SECONDS"):
        monkeypatch.setattr(module, name, 3600.0)  # none of them is waited for
    watched = Watched(MemoryStore(Turned()))
    async with running(watched.as_store(), events) as scheduler:
        await scheduler.stop()
        await scheduler.stop()
        await scheduler.ended()
    assert len(events.of(SchedulerStopped)) == 1


async def test_it_ends_although_the_store_does_not_answer(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.2)
    store = MemoryStore(Turned())
    scheduler = Scheduler(store, events)
    asked = asyncio.Event()

    async def never(ticks: object) -> object:
        asked.set()
        return await asyncio.Event().wait()

    monkeypatch.setattr(store, "decide", never)
    await Schedules(store, shortest_interval_seconds=1).add(every("* * * * * *"))
    await scheduler.start()
    await asked.wait()
    before = scheduler.iterated_at
    await eventually(lambda: scheduler.iterated_at > before)  # it waits for the store, and turns
    await scheduler.stop()


async def test_an_internal_error_ends_the_scheduler_visibly(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(MemoryStore(Turned()), events) as scheduler:
        assert scheduler.is_alive
        monkeypatch.setattr(scheduler.timetable, "next_check", lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(scheduler.ended(), 60)
        assert not scheduler.is_alive


async def test_a_slow_response_does_not_change_the_known_time() -> None:
    seconds = 100.0
    clock = ManualClock(START)
    delay = 0.0

    store = MemoryStore(clock)
    response = store.now

    async def slow_now() -> Instant:
        nonlocal seconds
        seconds += delay
        return await response()

    store.now = slow_now
    known = StoreClock(store, lambda: seconds)
    assert not known.is_known
    await known.measure()
    assert known.now() == START
    delay = 3.0  # the whole time was spent before the store looked at its clock
    clock.advance(3)
    assert await known.measure() == 0.0
    assert known.now() == START + 3000
    delay = 0.002
    clock.advance(3600)
    assert await known.measure() > 3599
    assert abs(known.now() - clock.now()) <= 2
    delay = 4.0  # slow, and yet it tells for sure that the clock was turned
    clock.advance(-3600)
    assert await known.measure() < -3590


def test_metrics_and_log_levels_of_ticks(caplog: pytest.LogCaptureFixture) -> None:
    metrics, logs = Metrics(), LogObserver()
    caplog.set_level(logging.DEBUG, "jobyard.scheduler")
    for event in (
        TickDecided("s", START, Verdict.FIRED, 1, "j1", 0.012),
        TickDecided("s", START, Verdict.LATE, 1, "j2", 60.0),
        TickDecided("s", START, Verdict.MISSED, 7, None, 90.0),
        TickDecided("s", START, Verdict.MISSED, 1, None, 90.0),
        TickDecided("s", START, Verdict.SKIPPED, 1, "j1", 0.0),
        TickDelayed("s", START, "mail"),
        SchedulerStarted("one", 3, "memory://"),
        SchedulerStopped("one"),
    ):
        metrics.observe(event)
        logs.observe(event)
    text = metrics.text().decode()
    assert 'jobyard_schedule_ticks_total{verdict="missed"} 8.0' in text
    assert 'jobyard_schedule_ticks_total{verdict="fired"} 1.0' in text
    assert "jobyard_schedule_lateness_seconds_count 2.0" in text
    assert [record.levelname for record in caplog.records] == [
        *("DEBUG", "WARNING", "WARNING", "WARNING", "INFO", "WARNING"),
        *("INFO", "INFO"),
    ]
    assert all(record.getMessage().startswith("s: ") for record in caplog.records[:6])
