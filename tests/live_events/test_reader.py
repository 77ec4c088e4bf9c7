"""Hints are read once each, also those that come late; watched jobs and queues tell what changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.stores import STORES

from jobyard import Context, Jobyard
from jobyard.domain.job import NewJob, Progress, State
from jobyard.live_events.event import COLLECTION, LISTENER_SECONDS, LISTENERS, LiveEvent, LiveEventType, event_key, pack
from jobyard.live_events.poller import JobPoller, QueuePoller, live_event_of
from jobyard.live_events.reader import ANNOUNCE_EVERY_SECONDS, OVERLAP_MILLISECONDS, LiveEventReader
from jobyard.operations.commands import Commands
from jobyard.operations.queries import Queries
from jobyard.ports.admin_store import Action
from jobyard.ports.job_store import Report
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    store = STORES[request.param](tmp_path, clock)
    await store.open()
    yield store
    await store.close()


async def publish(store: Store, source: str, number: int, *jobs: str, late: int = 0) -> None:
    hints = tuple(LiveEvent(type=LiveEventType.STARTED, job_id=job) for job in jobs)
    await store.put(COLLECTION, event_key(await store.now() - late, source, number), pack(hints), expire_seconds=15)


def ids(hints: list[LiveEvent]) -> list[str]:
    return [hint.job_id for hint in hints]


async def test_each_hint_is_read_once(store: Store, clock: ManualClock) -> None:
    await publish(store, "w", 0, "before")
    tail = LiveEventReader(store, "t")
    await tail.begin()
    assert await tail.look() == []
    await publish(store, "w", 1, "a", "b")
    assert ids(await tail.look()) == ["a", "b"]
    assert await tail.look() == []
    clock.advance(60)
    await publish(store, "w", 2, "c")
    assert ids(await tail.look()) == ["c"]
    assert await tail.look() == []


async def test_what_comes_a_little_late_is_read_too(store: Store, clock: ManualClock) -> None:
    tail = LiveEventReader(store, "t")
    await tail.begin()
    clock.advance(10)
    await publish(store, "w1", 1, "in time")
    assert ids(await tail.look()) == ["in time"]
    await publish(store, "w2", 1, "late", late=OVERLAP_MILLISECONDS - 1)
    assert ids(await tail.look()) == ["late"]
    assert await tail.look() == []


async def test_a_flood_is_read_to_its_end(store: Store) -> None:
    tail = LiveEventReader(store, "t")
    await tail.begin()
    for number in range(1200):
        await publish(store, "w", number, str(number))
    assert ids(await tail.look()) == [str(number) for number in range(1200)]
    assert await tail.look() == []


async def test_workers_are_told_that_somebody_listens(store: Store, clock: ManualClock) -> None:
    now = 0.0
    tail = LiveEventReader(store, "t", lambda: now)
    await tail.begin()
    for _ in range(10):
        now += ANNOUNCE_EVERY_SECONDS
        clock.advance(ANNOUNCE_EVERY_SECONDS)
        await tail.announce()
        assert await store.fetch(LISTENERS, "t") is not None
    clock.advance(LISTENER_SECONDS)
    assert await store.fetch(LISTENERS, "t") is None  # also when the server was killed
    await tail.begin()
    await tail.end()
    assert await store.fetch(LISTENERS, "t") is None


async def job(store: Store, job_id: str) -> JobPoller:
    watch = JobPoller(store)
    found = await store.get(job_id)
    assert found is not None
    watch.add(found)
    return watch


async def test_a_watched_job_tells_each_change_once(store: Store) -> None:
    await store.insert([NewJob(id="j", kind="k")])
    watch = await job(store, "j")
    assert await watch.look(["j"]) == []
    [lease] = (await store.exchange("w", [], ["default"], 1, 10)).leases
    assert [hint.type for hint in await watch.look(["j"])] == [LiveEventType.STARTED]
    await store.report([Report(key=lease.key, progress=Progress(percent=10, message="m", data=[1]))])
    [told] = await watch.look(["j"])
    assert (told.type, told.percent, told.message, told.data) == (LiveEventType.PROGRESS, 10, "m", [1])
    assert await watch.look(["j"]) == []


async def test_a_hint_that_is_older_than_what_is_known_is_no_news(store: Store) -> None:
    await store.insert([NewJob(id="j", kind="k")])
    watch = await job(store, "j")
    await store.exchange("w", [], ["default"], 1, 10)
    started = live_event_of(await _get(store, "j"))
    assert await watch.look(["j"]) != []
    assert not watch.is_news(started)
    progress = LiveEvent(type=LiveEventType.PROGRESS, job_id="j", state=State.RUNNING, attempt=1, percent=5)
    assert watch.is_news(progress)
    assert not watch.is_news(progress)
    done = LiveEvent(type=LiveEventType.COMPLETED, job_id="j", state=State.COMPLETED, attempt=1)
    assert watch.is_news(done)
    assert not watch.is_news(progress)
    assert watch.is_news(LiveEvent(type=LiveEventType.STARTED, job_id="another", state=State.RUNNING, attempt=1))


async def _get(store: Store, job_id: str):  # type: ignore[no-untyped-def]
    found = await store.get(job_id)
    assert found is not None
    return found


async def test_what_ends_a_job_is_told_by_its_name(clock: ManualClock) -> None:
    yard = Jobyard("memory://")

    @yard.job(max_attempts=1)
    async def bad(ctx: Context) -> None:
        raise ValueError("no")

    async with yard:
        failing, cancelled, deleted = [(await yard.enqueue("bad")).id for _ in range(3)]
        watch = JobPoller(yard.store)
        for job_id in (failing, cancelled, deleted):
            watch.add(await yard.get(job_id))
        await Commands(yard.store).change_one(Action.CANCEL, cancelled, reason="enough")
        await Commands(yard.store).change_one(Action.DELETE, deleted)
        async with yard.worker():
            await Queries(yard.store).end(failing, 10)
        told = {hint.job_id: hint for hint in await watch.look(list(watch.ids))}
        assert told[failing].type is LiveEventType.FAILED
        assert told[cancelled].type is LiveEventType.CANCELLED
        assert told[cancelled].reason == "enough"
        assert told[deleted].type is LiveEventType.RESYNC
        assert await watch.look(list(watch.ids)) == []
        for job_id in (failing, cancelled, deleted):
            watch.remove(job_id)
        assert not watch.ids


async def test_queues_tell_what_changed(store: Store) -> None:
    watch = QueuePoller(store)
    await store.insert([NewJob(id="a", kind="k", queue="one"), NewJob(id="b", kind="k", queue="two")])
    assert [info.name for info in await watch.look()] == ["one", "two"]
    assert await watch.look() == []
    await store.insert([NewJob(id="c", kind="k", queue="two")])
    assert [(info.name, info.waiting) for info in await watch.look()] == [("two", 2)]
    await store.set_paused("one", None, True)
    assert [info.name for info in await watch.look()] == ["one"]
