"""Ages: since when the oldest jobs of a queue wait and run."""

from __future__ import annotations

from tests.conformance.support import claim_one, complete, insert_one, new, settle

from jobyard.domain.job import QueueSettings
from jobyard.domain.outcome import Failed
from jobyard.ports.admin_store import Action, Filter, QueueAges
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock

EVERYTHING = Filter()


async def ages(store: Store, queue: str = "default") -> tuple[int | None, int | None]:
    [found] = [each for each in await store.ages() if each.queue == queue]
    return found.waiting_since, found.running_since


async def test_ages_are_listed_by_queue_name(store: Store, clock: ManualClock) -> None:
    await store.configure("b", QueueSettings())
    now = clock.now()
    await insert_one(store, queue="c")
    await insert_one(store, queue="a")
    clock.advance(5)
    await insert_one(store, queue="a")
    assert await store.ages() == [
        QueueAges(queue="a", waiting_since=now),
        QueueAges(queue="b"),
        QueueAges(queue="c", waiting_since=now),
    ]


async def test_the_oldest_job_may_be_in_any_group_and_priority(store: Store, clock: ManualClock) -> None:
    for options in (
        {"group": "b"},
        {"priority": -3},
        {"group": "a", "priority": -(10**6)},
        {"group": "ä", "priority": 9},
    ):
        oldest = await insert_one(store, **options)
        since = clock.now()
        clock.advance(10)
        for group in (None, "a", "b", "ä"):
            for priority in (10**6, 0, -3, -(10**6)):
                await insert_one(store, group=group, priority=priority)
        assert await ages(store) == (since, None)
        await store.change(Action.DELETE, [oldest])
        assert (await ages(store))[0] == clock.now()
        clock.advance(10)
        found = await store.find(where=EVERYTHING, limit=1000)
        await store.change(Action.DELETE, [job.id for job in found.jobs])
        assert await ages(store) == (None, None)


async def test_a_delayed_or_retried_job_waits_since_it_became_due(store: Store, clock: ManualClock) -> None:
    await insert_one(store, delay_seconds=60)
    assert await ages(store) == (None, None)
    due = clock.now() + 60_000
    clock.advance(75)
    assert await ages(store) == (due, None)
    lease = await claim_one(store)
    assert await ages(store) == (None, clock.now())
    await settle(store, lease, Failed(message="no"))
    assert await ages(store) == (None, None)
    again = clock.now() + 10_000
    clock.advance(30)
    assert await ages(store) == (again, None)


async def test_a_run_at_in_the_past_does_not_count_as_waiting(store: Store, clock: ManualClock) -> None:
    await insert_one(store, run_at=clock.now() - 60_000)
    assert await ages(store) == (clock.now(), None)


async def test_the_longest_running_job_of_each_queue(store: Store, clock: ManualClock) -> None:
    since = clock.now()
    await insert_one(store)
    first = await claim_one(store)
    clock.advance(5)
    await insert_one(store)
    second = await claim_one(store)
    await store.adopt(new(queue="runners"), "w", "pod-1")
    assert await ages(store) == (None, since)
    assert await ages(store, "runners") == (None, clock.now())
    await complete(store, [first])
    assert await ages(store) == (None, clock.now())
    await complete(store, [second])
    assert await ages(store) == (None, None)
