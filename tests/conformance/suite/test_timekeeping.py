"""Schedules that fire once, and workers that are alive."""

from __future__ import annotations

from tests.conformance.support import claim_ids, insert_one, new, queue_info, seen

from jobyard.domain.job import Unique
from jobyard.ports.store import Action, Inserted, Store, WorkerInfo
from jobyard.testing.clock import ManualClock


def worker(worker_id: str) -> WorkerInfo:
    return WorkerInfo(
        id=worker_id, host="here", pid=42, queues=("a", "b"), concurrency=3, running=1, completed=9, started_at=5
    )


async def test_the_stores_clock(store: Store, clock: ManualClock) -> None:
    assert await store.now() == clock.now()
    clock.advance(1.5)
    assert await store.now() == clock.now()


async def test_each_instant_fires_once(store: Store, clock: ManualClock) -> None:
    tick = clock.now()
    first = new()
    inserted = await store.fire("nightly", tick, first)
    assert inserted is not None
    assert (inserted.id, inserted.created) == (first.id, True)
    second = new()
    assert await store.fire("nightly", tick, second) is None
    assert await store.get(second.id) is None
    assert (await queue_info(store)).waiting == 1
    assert await store.fire("nightly", tick + 1, new()) is not None
    assert await store.fire("hourly", tick, new()) is not None


async def test_a_fired_job_is_a_job_like_any_other(store: Store, clock: ManualClock) -> None:
    earlier = await insert_one(store, group="a", delay_seconds=1)
    clock.advance(1)
    job = new(group="b")
    inserted = await store.fire("nightly", clock.now(), job)
    assert inserted is not None
    assert (await seen(store, job.id)).sequence == inserted.sequence
    assert await claim_ids(store, 2) == [earlier, job.id]


async def test_a_fired_job_whose_key_is_held_has_fired(store: Store, clock: ManualClock) -> None:
    holder = await insert_one(store, unique=Unique("key"))
    fired = await store.fire("nightly", clock.now(), new(unique=Unique("key")))
    assert fired == Inserted(holder, False, 0)
    assert await store.fire("nightly", clock.now(), new()) is None


async def test_an_instant_has_fired_even_if_its_job_is_gone(store: Store, clock: ManualClock) -> None:
    job = new()
    await store.fire("nightly", clock.now(), job)
    await store.change(Action.DELETE, [job.id])
    assert await store.fire("nightly", clock.now(), new()) is None


async def test_workers_are_listed_by_id_while_they_beat(store: Store, clock: ManualClock) -> None:
    assert await store.workers() == []
    await store.beat(worker("w2"), 10)
    await store.beat(worker("w1"), 20)
    assert [info.id for info in await store.workers()] == ["w1", "w2"]
    clock.advance(9.999)
    assert [info.id for info in await store.workers()] == ["w1", "w2"]
    clock.advance(0.001)
    assert [info.id for info in await store.workers()] == ["w1"]
    await store.beat(worker("w2"), 10)
    assert [info.id for info in await store.workers()] == ["w1", "w2"]


async def test_a_beat_replaces_the_one_before(store: Store, clock: ManualClock) -> None:
    await store.beat(worker("w1"), 10)
    clock.advance(5)
    await store.beat(WorkerInfo(id="w1", host="here", pid=42, queues=(), concurrency=8), 10)
    clock.advance(9)
    [info] = await store.workers()
    assert (info.queues, info.concurrency, info.seen_at) == ((), 8, clock.now() - 9000)


async def test_what_a_worker_says_is_seen(store: Store, clock: ManualClock) -> None:
    await store.beat(worker("w1"), 10)
    [info] = await store.workers()
    assert (info.host, info.pid, info.queues, info.concurrency) == ("here", 42, ("a", "b"), 3)
    assert (info.running, info.completed, info.started_at, info.seen_at) == (1, 9, 5, clock.now())


async def test_a_worker_may_say_goodbye(store: Store) -> None:
    await store.beat(worker("w1"), 10)
    await store.beat(worker("w1"), 0)
    await store.beat(worker("never-seen"), 0)
    assert await store.workers() == []
