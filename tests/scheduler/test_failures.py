"""A scheduler in trouble: after long absences, with cut connections, faulty definitions and too many changes."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import pytest
from tests.scheduler.conftest import every
from tests.scheduler.support import DAY, FIRED, HOUR, LATE, MINUTE, MISSED, jobs, past
from tests.support import Events, Watched

from jobyard.domain.events import StoreFailed, TickDecided
from jobyard.errors import BadInput, StoreUnavailable
from jobyard.operations.schedules import COLLECTION, LOG, Schedules
from jobyard.ports.schedule_store import Decided, Tick
from jobyard.scheduler import definitions_watcher, dispatcher, timetable
from jobyard.scheduler.scheduler import Scheduler
from jobyard.scheduler.timetable import TimetableEntry
from jobyard.stores.memory import MemoryStore
from jobyard.stores.sharded import ShardedStore
from jobyard.testing.clock import START, ManualClock


async def test_ticks_counted_by_another_scheduler_are_not_counted_again(
    schedules: Schedules, clock: ManualClock, watched: Watched, events: Events
) -> None:
    await schedules.add(every("* * * * *", missed="skip"))
    one, two = (Scheduler(watched.as_store(), events) for _ in range(2))
    await one.run_once()
    clock.advance(9 * 60 + 40)
    await two.run_once()
    clock.advance(5 * 60)
    await one.run_once()  # what it knows is a quarter of an hour old
    assert await past(schedules) == [(540, MISSED, 9), (840, MISSED, 5)]


async def test_overdue_ticks_do_not_delay_those_on_time(
    schedules: Schedules, clock: ManualClock, watched: Watched, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A week to be counted, of more schedules than one call makes up for: those in time come first."""
    monkeypatch.setattr(dispatcher, "OVERDUE_SECONDS", 0.0)
    for number in range(30):
        await schedules.add(every("* * * * *", name=f"s{number:02}"))
    await schedules.add(every("0 12 * * *", name="noon"))
    scheduler = Scheduler(watched.as_store(), events)
    await scheduler.run_once()
    clock.set(START + 7 * DAY + 12 * HOUR)
    watched.calls.clear()
    await scheduler.run_once()
    decided = events.of(TickDecided)
    assert [event.verdict for event in decided if event.schedule == "noon"] == [MISSED, FIRED]
    assert watched.calls["armed"] <= 2, "looked up all at once"
    assert watched.calls["ticks"] == 0
    assert watched.calls["decide"] >= 30, "one at a time, as there is no time at all"
    for number in range(30):
        [missed, fired] = (event for event in decided if event.schedule == f"s{number:02}")
        assert (missed.verdict, fired.verdict, fired.at) == (MISSED, FIRED, clock.now())


async def test_ticks_on_time_are_decided_before_overdue_ones(
    schedules: Schedules, clock: ManualClock, watched: Watched, events: Events
) -> None:
    for number in range(20):
        await schedules.add(every("0 0 * * *", name=f"s{number:02}"))
    await schedules.add(every("* * * * *", name="z", missed="skip"))
    scheduler = Scheduler(watched.as_store(), events)
    await scheduler.run_once()
    clock.set(START + DAY + 40_000)
    await schedules.edit("z", {"expression": "1 0 * * *"})
    await scheduler.definitions.follow()
    clock.set(START + DAY + MINUTE)
    await scheduler.run_once()
    assert events.of(TickDecided)[0].schedule == "z"
    assert [event.verdict for event in events.of(TickDecided)] == [FIRED] + [LATE] * 20


@pytest.mark.parametrize("verb", ["fetch", "arm", "ticks"])
async def test_a_cut_while_it_looks_at_a_change_is_made_good(
    verb: str, scheduler: Scheduler, schedules: Schedules, clock: ManualClock, watched: Watched
) -> None:
    """Of a stale schedule, and of one in the change log."""
    await schedules.add(every("* * * * *"))
    await scheduler.run_once()
    watched.failing, watched.failing_verbs = StoreUnavailable("cut"), ("append",)
    with pytest.raises(StoreUnavailable):
        await schedules.edit("s", {"kind": "edited"})
    watched.failing_verbs = (verb,)
    clock.advance(60)
    with pytest.raises(StoreUnavailable):
        await scheduler.run_once()
    watched.failing = None
    clock.advance(2)
    assert await scheduler.run_once() == 1
    await schedules.edit("s", {"kind": "again"})
    watched.failing = StoreUnavailable("cut")
    if verb != "arm":
        with pytest.raises(StoreUnavailable):
            await scheduler.run_once()
    watched.failing = None
    clock.advance(58)
    assert await scheduler.run_once() == 1
    assert [job.kind for job in await jobs(watched)] == ["again", "edited"]


async def test_ticks_that_the_store_has_removed_are_not_decided_again(
    scheduler: Scheduler, schedules: Schedules, clock: ManualClock, watched: Watched
) -> None:
    await schedules.add(every("* * * * *"))
    await scheduler.run_once()
    for _ in range(3):
        clock.advance(60)
        await scheduler.run_once()
    await watched.as_store().disarm("s")
    clock.advance(60)
    await scheduler.run_once()
    clock.advance(2)
    await scheduler.run_once()
    assert len(await jobs(watched)) == 4
    assert await past(schedules) == [(240, FIRED, 1)]


async def test_a_scheduler_far_behind_the_log_loads_everything(
    scheduler: Scheduler, schedules: Schedules, clock: ManualClock, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions_watcher, "LOG_KEPT", 10)
    await schedules.add(every("* * * * *"))
    await scheduler.run_once()
    await watched.as_store().put(
        COLLECTION, "t", b'{"name":"t","expression":"* * * * *","kind":"k"}'
    )  # its line is gone
    for number in range(8):
        await schedules.edit("s", {"priority": number + 1})
    watched.calls.clear()
    await scheduler.run_once()
    assert watched.calls["fetch_all"] > 0
    clock.advance(60)
    assert await scheduler.run_once() == 2


async def test_replaced_entries_are_freed(scheduler: Scheduler, schedules: Schedules) -> None:
    await schedules.add(every("0 0 1 1 *"))
    await schedules.add(every("* * * * *", name="t"))
    await scheduler.run_once()
    for number in range(300):
        await schedules.edit("s", {"priority": number + 1})
        await scheduler.run_once()
    assert sum(isinstance(each, TimetableEntry) for each in gc.get_objects()) < 100


@pytest.mark.parametrize("broken", ["_plans", "_tick", "next_instant"])
async def test_a_schedule_that_raises_does_not_delay_the_others(
    broken: str, scheduler: Scheduler, schedules: Schedules, clock: ManualClock, events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name in ("a", "bad", "c"):
        await schedules.add(every("* * * * *", name=name))
    await scheduler.run_once()
    module = timetable if broken == "next_instant" else dispatcher
    real = getattr(module, broken)

    def picky(about: Any, *more: Any) -> Any:
        if getattr(about, "schedule", about).name == "bad":
            raise ValueError("a fault")
        return real(about, *more)

    monkeypatch.setattr(module, broken, picky)
    for minute in (1, 2, 3):
        clock.set(START + minute * MINUTE)
        await scheduler.run_once()
        assert [(await past(schedules, name))[-1] for name in ("a", "c")] == [(60 * minute, FIRED, 1)] * 2
    assert {event.doing for event in events.of(StoreFailed)} == {"deciding bad"}


async def test_a_schedule_that_the_store_rejects_does_not_delay_the_others(
    scheduler: Scheduler, schedules: Schedules, clock: ManualClock, watched: Watched, events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name in ("a", "bad", "c"):
        await schedules.add(every("* * * * *", name=name))
    await scheduler.run_once()
    decide = watched.as_store().decide

    async def picky(ticks: list[object]) -> object:
        if any("bad" in str(tick) for tick in ticks):
            raise BadInput("not that one")
        return await decide(ticks)  # type: ignore[arg-type]

    monkeypatch.setattr(watched, "decide", picky, raising=False)
    clock.advance(60)
    assert await scheduler.run_once() == 2
    [trouble] = events.of(StoreFailed)
    assert trouble.doing == "deciding bad"
    assert [await past(schedules, name) for name in ("a", "bad", "c")] == [[(60, FIRED, 1)], [], [(60, FIRED, 1)]]


async def test_a_schedule_that_cannot_be_decoded_does_not_delay_the_others(
    scheduler: Scheduler, schedules: Schedules, clock: ManualClock, watched: Watched
) -> None:
    store = watched.as_store()
    for name, words in (("a", b'"zone":"Mars"'), ("b", b'"timezone":"Mars/Olympus"'), ("c", b'"overlap":"newer"')):
        data = b'{"name":"%s","expression":"* * * * *","kind":"k",%s}' % (name.encode(), words)
        await store.put(COLLECTION, name, data)
        await store.append(LOG, name.encode())
    await schedules.add(every("* * * * *"))
    await scheduler.run_once()
    clock.advance(60)
    assert await scheduler.run_once() >= 1
    assert (await past(schedules))[-1] == (60, FIRED, 1)


async def test_many_are_decided_in_calls_of_some_hundred(
    scheduler: Scheduler, schedules: Schedules, clock: ManualClock, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "MAX_TICKS_PER_CALL", 10)
    for number in range(25):
        await schedules.add(every("* * * * *", name=f"s{number:02}"))
    await scheduler.run_once()
    clock.advance(60)
    watched.calls.clear()
    assert await scheduler.run_once() == 25
    assert watched.calls["decide"] == 3
    watched.calls.clear()
    clock.advance(3600)  # all of them have missed some: looked up together
    monkeypatch.setattr(dispatcher, "FEW", 5)
    await scheduler.run_once()
    assert watched.calls["ticks"] == 0
    assert watched.calls["armed"] <= 4


async def test_a_failed_call_loses_no_tick_of_the_other_calls(
    scheduler: Scheduler, schedules: Schedules, clock: ManualClock, events: Events, watched: Watched,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(dispatcher, "MAX_TICKS_PER_CALL", 10)
    for number in range(30):
        await schedules.add(every("* * * * *", name=f"s{number:02}"))
    await scheduler.run_once()
    clock.advance(60)
    decide, failures = watched.as_store().decide, 1

    async def fail_once(ticks: Sequence[Tick]) -> list[Decided]:
        nonlocal failures
        if failures and any(tick.schedule == "s10" for tick in ticks):
            failures -= 1
            raise StoreUnavailable("away")
        return await decide(ticks)

    monkeypatch.setattr(watched, "decide", fail_once, raising=False)
    with pytest.raises(StoreUnavailable):
        await scheduler.run_once()
    assert await scheduler.run_once() >= 10, "the ticks that are left, and those that were not reported yet"
    assert sorted(event.schedule for event in events.of(TickDecided)) == [f"s{number:02}" for number in range(30)]


async def test_an_unavailable_store_does_not_delay_the_ticks_of_others(clock: ManualClock, events: Events) -> None:
    here, there = MemoryStore(clock), Watched(MemoryStore(clock))
    store = ShardedStore(here, {"far": there.as_store()})
    schedules = Schedules(store, shortest_interval_seconds=1)
    await schedules.add(every("* * * * *", name="near"))
    await schedules.add(every("* * * * *", name="far", queue="far"))
    scheduler = Scheduler(store, events)
    await scheduler.run_once()
    there.failing = StoreUnavailable("away")
    for _ in range(3):
        clock.advance(20)
        await scheduler.run_once()
    assert [event.schedule for event in events.of(TickDecided)] == ["near"]
    assert [trouble.doing for trouble in events.of(StoreFailed)] == ["deciding ticks of queue far"]
    there.failing = None
    clock.advance(2)
    await scheduler.run_once()
    assert [event.schedule for event in events.of(TickDecided)] == ["near", "far"]


async def test_a_definition_that_cannot_be_read_does_not_hide_the_others(
    scheduler: Scheduler, schedules: Schedules, clock: ManualClock, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scheduler.run_once()
    for name in ("a", "bad", "c"):
        await schedules.add(every("* * * * *", name=name))
    fetch = watched.as_store().fetch

    async def picky(collection: str, key: str) -> Any:
        if key == "bad":
            raise StoreUnavailable("away")
        return await fetch(collection, key)

    monkeypatch.setattr(watched, "fetch", picky, raising=False)
    with pytest.raises(StoreUnavailable):
        await scheduler.definitions.follow()
    assert [scheduler.timetable.get(name) is not None for name in ("a", "bad", "c")] == [True, False, True]
    monkeypatch.undo()
    clock.advance(60)
    assert await scheduler.run_once() == 3


async def test_page_by_page_all_definitions_are_compared(
    scheduler: Scheduler, schedules: Schedules, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions_watcher, "SWEEP_PAGE", 2)
    for name in "abcde":
        await schedules.add(every("* * * * *", name=name))
    await scheduler.run_once()
    store = watched.as_store()
    for name in "bd":
        await store.remove(COLLECTION, name)
    for name in ("a", "e", "f"):  # without a log entry
        data = b'{"name":"%s","expression":"0 0 * * *","kind":"k"}' % name.encode()
        await store.put(COLLECTION, name, data)
    watched.calls.clear()
    for _ in range(3):
        await scheduler.definitions.sweep()
    assert watched.calls["fetch_all"] == 3
    known = {name: scheduler.timetable.get(name) for name in "abcdef"}
    assert {name: entry and entry.schedule.expression for name, entry in known.items()} == {
        "a": "0 0 * * *", "b": None, "c": "* * * * *", "d": None, "e": "0 0 * * *", "f": "0 0 * * *",
    }  # fmt: skip
