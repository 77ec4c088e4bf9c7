"""Schedules: the store's clock, armed schedules, worker heartbeats."""

from __future__ import annotations

import asyncio

from tests.conformance.support import armed, decide_one

from jobyard.ports.schedule_store import ArmedSchedule, Decided, Decision, WorkerInfo
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock


def worker(worker_id: str) -> WorkerInfo:
    return WorkerInfo(
        id=worker_id, host="here", pid=42, queues=("a", "b"), concurrency=3, running=1, completed=9, started_at=5
    )


async def test_now_is_the_stores_clock(store: Store, clock: ManualClock) -> None:
    assert await store.now() == clock.now()
    clock.advance(1.5)
    assert await store.now() == clock.now()


async def test_a_schedule_is_armed_from_now_on(store: Store, clock: ManualClock) -> None:
    assert await store.arm("nightly", 3) is True
    assert await store.arm("hourly", 1, since=77) is True
    assert await store.armed() == [ArmedSchedule("hourly", 1, 77), ArmedSchedule("nightly", 3, clock.now())]
    assert await store.ticks("nightly") == []


async def test_arming_twice_is_safe(store: Store, clock: ManualClock) -> None:
    await store.arm("nightly", 3)
    start = clock.now()
    clock.advance(60)
    assert await store.arm("nightly", 3) is True
    assert await armed(store) == ArmedSchedule("nightly", 3, start)


async def test_an_earlier_revision_cannot_be_armed_again(store: Store) -> None:
    await store.arm("nightly", 5, since=100)
    assert await store.arm("nightly", 4, since=900) is False
    assert await armed(store) == ArmedSchedule("nightly", 5, 100)


async def test_a_later_revision_continues_from_the_last_decided_instant(store: Store, clock: ManualClock) -> None:
    await store.arm("nightly", 5, since=100)
    clock.advance(60)
    assert await store.arm("nightly", 6) is True
    assert await armed(store) == ArmedSchedule("nightly", 6, 100)
    assert await store.arm("nightly", 7, since=200) is True
    assert await armed(store) == ArmedSchedule("nightly", 7, 200)


async def test_decided_until_never_decreases(store: Store) -> None:
    await store.arm("nightly", 1, since=100)
    await decide_one(store, 500)
    assert await store.arm("nightly", 2, since=100) is True
    assert await armed(store) == ArmedSchedule("nightly", 2, 500)
    assert await decide_one(store, 500, revision=2) == Decided(Decision.KNOWN)


async def test_revisions_may_be_as_large_as_instants(store: Store, clock: ManualClock) -> None:
    revision = clock.now()
    await store.arm("nightly", revision)
    assert await store.arm("nightly", revision - 1) is False
    assert await store.arm("nightly", revision + 1) is True
    assert (await armed(store)).revision == revision + 1


async def test_disarming_deletes_the_ticks(store: Store, clock: ManualClock) -> None:
    await store.arm("nightly", 5, since=100)
    await store.arm("hourly", 1, since=100)
    await decide_one(store, 500, revision=5)
    await decide_one(store, 500, schedule="hourly")
    assert await store.disarm("nightly") is True
    assert await store.disarm("nightly") is False
    assert [each.schedule for each in await store.armed()] == ["hourly"]
    assert await store.ticks("nightly") == []
    assert len(await store.ticks("hourly")) == 1
    # A new schedule of the same name starts from now.
    assert await store.arm("nightly", 1, since=0) is True
    assert (await decide_one(store, 500)).decision is Decision.MADE


async def test_a_later_revision_is_not_disarmed(store: Store) -> None:
    await store.arm("nightly", 5, since=100)
    await decide_one(store, 500, revision=5)
    assert await store.disarm("nightly", 4) is False
    assert await armed(store) == ArmedSchedule("nightly", 5, 500)
    assert await decide_one(store, 500, revision=5) == Decided(Decision.KNOWN)
    assert len(await store.ticks("nightly")) == 1
    assert await store.disarm("nightly", 5) is True
    assert await store.disarm("nightly", 5) is False
    assert (await store.armed(), await store.ticks("nightly")) == ([], [])
    await store.arm("nightly", 5)
    assert await store.disarm("nightly", 6) is True


async def test_armed_schedules_by_name_in_pages(store: Store) -> None:
    for name in ("b", "a", "d", "C", "ä"):
        await store.arm(name, 1, since=1)
    assert [each.schedule for each in await store.armed()] == ["C", "a", "b", "d", "ä"]
    assert [each.schedule for each in await store.armed(limit=2)] == ["C", "a"]
    assert [each.schedule for each in await store.armed(limit=2, after="a")] == ["b", "d"]
    assert await store.armed(after="ä") == []


async def test_concurrent_arming_leaves_the_latest_revision(store: Store) -> None:
    revisions = [7, 3, 9, 1, 8, 2, 6, 4, 5, 0]
    responses = await asyncio.gather(*(store.arm("nightly", revision, since=revision) for revision in revisions))
    assert responses[revisions.index(9)] is True
    assert await armed(store) == ArmedSchedule("nightly", 9, 9)


async def test_live_workers_are_listed_by_id(store: Store, clock: ManualClock) -> None:
    assert await store.workers() == []
    await store.heartbeat(worker("w2"), 10)
    await store.heartbeat(worker("w1"), 20)
    assert [info.id for info in await store.workers()] == ["w1", "w2"]
    clock.advance(9.999)
    assert [info.id for info in await store.workers()] == ["w1", "w2"]
    clock.advance(0.001)
    assert [info.id for info in await store.workers()] == ["w1"]
    await store.heartbeat(worker("w2"), 10)
    assert [info.id for info in await store.workers()] == ["w1", "w2"]


async def test_a_heartbeat_replaces_the_previous_one(store: Store, clock: ManualClock) -> None:
    await store.heartbeat(worker("w1"), 10)
    clock.advance(5)
    await store.heartbeat(WorkerInfo(id="w1", host="here", pid=42, queues=(), concurrency=8), 10)
    clock.advance(9)
    [info] = await store.workers()
    assert (info.queues, info.concurrency, info.seen_at) == ((), 8, clock.now() - 9000)


async def test_a_heartbeat_from_before_the_clock_was_set_back_does_not_count(store: Store, clock: ManualClock) -> None:
    await store.heartbeat(worker("dead"), 10)
    await store.heartbeat(worker("alive"), 10)
    clock.advance(-3600)
    await store.heartbeat(worker("alive"), 10)
    assert [each.id for each in await store.workers()] == ["alive"]


async def test_all_fields_of_a_heartbeat_are_stored(store: Store, clock: ManualClock) -> None:
    await store.heartbeat(worker("w1"), 10)
    [info] = await store.workers()
    assert (info.host, info.pid, info.queues, info.concurrency) == ("here", 42, ("a", "b"), 3)
    assert (info.running, info.completed, info.started_at, info.seen_at) == (1, 9, 5, clock.now())


async def test_a_worker_can_remove_itself(store: Store) -> None:
    await store.heartbeat(worker("w1"), 10)
    await store.heartbeat(worker("w1"), 0)
    await store.heartbeat(worker("never-seen"), 0)
    assert await store.workers() == []
