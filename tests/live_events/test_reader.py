"""Each live event is read once, also late ones; pollers find the changes of jobs and queues."""

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
    events_ = tuple(LiveEvent(type=LiveEventType.STARTED, job_id=job) for job in jobs)
    await store.put(COLLECTION, event_key(await store.now() - late, source, number), pack(events_), expire_seconds=15)


def ids(events_: list[LiveEvent]) -> list[str]:
    return [event.job_id for event in events_]


async def test_each_hint_is_read_once(store: Store, clock: ManualClock) -> None:
    await publish(store, "w", 0, "before")
    reader = LiveEventReader(store, "t")
    await reader.start()
    assert await reader.read() == []
    await publish(store, "w", 1, "a", "b")
    assert ids(await reader.read()) == ["a", "b"]
    assert await reader.read() == []
    clock.advance(60)
    await publish(store, "w", 2, "c")
    assert ids(await reader.read()) == ["c"]
    assert await reader.read() == []


async def test_what_comes_a_little_late_is_read_too(store: Store, clock: ManualClock) -> None:
    reader = LiveEventReader(store, "t")
    await reader.start()
    clock.advance(10)
    await publish(store, "w1", 1, "in time")
    assert ids(await reader.read()) == ["in time"]
    await publish(store, "w2", 1, "late", late=OVERLAP_MILLISECONDS - 1)
    assert ids(await reader.read()) == ["late"]
    assert await reader.read() == []


async def test_a_flood_is_read_to_its_end(store: Store) -> None:
    reader = LiveEventReader(store, "t")
    await reader.start()
    for number in range(1200):
        await publish(store, "w", number, str(number))
    assert ids(await reader.read()) == [str(number) for number in range(1200)]
    assert await reader.read() == []


async def test_the_listener_is_announced(store: Store, clock: ManualClock) -> None:
    now = 0.0
    reader = LiveEventReader(store, "t", lambda: now)
    await reader.start()
    for _ in range(10):
        now += ANNOUNCE_EVERY_SECONDS
        clock.advance(ANNOUNCE_EVERY_SECONDS)
        await reader.announce()
        assert await store.fetch(LISTENERS, "t") is not None
    clock.advance(LISTENER_SECONDS)
    assert await store.fetch(LISTENERS, "t") is None  # also when the server was killed
    await reader.start()
    await reader.stop()
    assert await store.fetch(LISTENERS, "t") is None


async def job(store: Store, job_id: str) -> JobPoller:
    poller = JobPoller(store)
    found = await store.get(job_id)
    assert found is not None
    poller.add(found)
    return poller


async def test_a_watched_job_publishes_each_change_once(store: Store) -> None:
    await store.insert([NewJob(id="j", kind="k")])
    poller = await job(store, "j")
    assert await poller.poll(["j"]) == []
    [lease] = (await store.exchange("w", [], ["default"], 1, 10)).leases
    assert [event.type for event in await poller.poll(["j"])] == [LiveEventType.STARTED]
    await store.report([Report(key=lease.key, progress=Progress(percent=10, message="m", data=[1]))])
    [event] = await poller.poll(["j"])
    assert (event.type, event.percent, event.message, event.data) == (LiveEventType.PROGRESS, 10, "m", [1])
    assert await poller.poll(["j"]) == []


async def test_a_hint_that_is_older_than_what_is_known_is_no_news(store: Store) -> None:
    await store.insert([NewJob(id="j", kind="k")])
    poller = await job(store, "j")
    await store.exchange("w", [], ["default"], 1, 10)
    started = live_event_of(await _get(store, "j"))
    assert await poller.poll(["j"]) != []
    assert not poller.is_new(started)
    progress = LiveEvent(type=LiveEventType.PROGRESS, job_id="j", state=State.RUNNING, attempt=1, percent=5)
    assert poller.is_new(progress)
    assert not poller.is_new(progress)
    done = LiveEvent(type=LiveEventType.COMPLETED, job_id="j", state=State.COMPLETED, attempt=1)
    assert poller.is_new(done)
    assert not poller.is_new(progress)
    assert poller.is_new(LiveEvent(type=LiveEventType.STARTED, job_id="another", state=State.RUNNING, attempt=1))


async def _get(store: Store, job_id: str):  # type: ignore[no-untyped-def]
    found = await store.get(job_id)
    assert found is not None
    return found


async def test_the_event_of_an_end_names_its_cause(clock: ManualClock) -> None:
    yard = Jobyard("memory://")

    @yard.job(max_attempts=1)
    async def bad(ctx: Context) -> None:
        raise ValueError("no")

    async with yard:
        failing, cancelled, deleted = [(await yard.enqueue("bad")).id for _ in range(3)]
        poller = JobPoller(yard.store)
        for job_id in (failing, cancelled, deleted):
            poller.add(await Queries(yard.store).job(job_id))
        await Commands(yard.store).change_one(Action.CANCEL, cancelled, reason="enough")
        await Commands(yard.store).change_one(Action.DELETE, deleted)
        async with yard.worker():
            await Queries(yard.store).end(failing, 60)
        found = {event.job_id: event for event in await poller.poll(list(poller.ids))}
        assert found[failing].type is LiveEventType.FAILED
        assert found[cancelled].type is LiveEventType.CANCELLED
        assert found[cancelled].reason == "enough"
        assert found[deleted].type is LiveEventType.RESYNC
        assert await poller.poll(list(poller.ids)) == []
        for job_id in (failing, cancelled, deleted):
            poller.remove(job_id)
        assert not poller.ids


async def test_queues_tell_what_changed(store: Store) -> None:
    poller = QueuePoller(store)
    await store.insert([NewJob(id="a", kind="k", queue="one"), NewJob(id="b", kind="k", queue="two")])
    assert [info.name for info in await poller.poll()] == ["one", "two"]
    assert await poller.poll() == []
    await store.insert([NewJob(id="c", kind="k", queue="two")])
    assert [(info.name, info.waiting) for info in await poller.poll()] == [("two", 2)]
    await store.set_paused("one", None, True)
    assert [info.name for info in await poller.poll()] == ["one"]
