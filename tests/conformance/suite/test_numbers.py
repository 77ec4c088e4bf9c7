"""Counts of queues and groups, a job's standing, retention, audit."""

from __future__ import annotations

import pytest
from tests.conformance.support import (
    claim,
    claim_ids,
    claim_one,
    complete,
    configure,
    group_info,
    insert,
    insert_one,
    new,
    queue_info,
    running,
    seen,
    settle,
)

from jobyard.domain.explain import explain
from jobyard.domain.job import QueueSettings, State
from jobyard.domain.outcome import Cancel, Done, Failed, Outcome, Park, TimedOut
from jobyard.errors import JobNotFound
from jobyard.ports.admin_store import Action, Filter, GroupInfo, QueueInfo
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock


async def test_queues_by_name_with_their_counts(store: Store) -> None:
    await store.configure("b", QueueSettings(max_running=50))
    outcomes: list[Outcome] = [
        Done(),
        Failed(message="no", retry=False),
        TimedOut("late"),
        Cancel("enough"),
        Park("go"),
    ]
    for outcome in outcomes:
        await settle(store, await running(store, queue="b", max_attempts=1), outcome)
    await running(store, queue="b")
    await insert(store, new(queue="b"), new(queue="b"), new(queue="b", delay_seconds=9), new(queue="a"))
    await store.set_paused("c", None, True)
    assert [info.name for info in await store.queues()] == ["a", "b", "c"]
    assert await queue_info(store, "b") == QueueInfo(
        name="b",
        settings=QueueSettings(max_running=50),
        paused=False,
        waiting=2,
        delayed=2,
        running=1,
        completed=1,
        failed=2,
        cancelled=1,
    )
    assert (await queue_info(store, "c")).paused


async def test_a_job_whose_time_has_come_is_counted_as_waiting(store: Store, clock: ManualClock) -> None:
    await insert_one(store, group="a", delay_seconds=5)
    clock.advance(5)
    info, group = await queue_info(store), await group_info(store, "a")
    assert (info.waiting, info.delayed) == (1, 0)
    assert (group.waiting, group.delayed) == (1, 0)


async def test_groups_by_name_those_without_first(store: Store) -> None:
    await configure(store, max_per_group=7)
    await insert(store, new(group="b"), new(), new(group="a", delay_seconds=9), new(group="b"))
    await store.set_limit("default", "c", 2)
    await store.set_paused("default", "d", True)
    await claim(store, 1)
    assert await store.groups("default") == [
        GroupInfo(
            queue="default", name=None, limit=None, effective_limit=None, paused=False, waiting=1, delayed=0, running=0
        ),
        GroupInfo(
            queue="default", name="a", limit=None, effective_limit=7, paused=False, waiting=0, delayed=1, running=0
        ),
        GroupInfo(
            queue="default", name="b", limit=None, effective_limit=7, paused=False, waiting=1, delayed=0, running=1
        ),
        GroupInfo(queue="default", name="c", limit=2, effective_limit=2, paused=False, waiting=0, delayed=0, running=0),
        GroupInfo(
            queue="default", name="d", limit=None, effective_limit=7, paused=True, waiting=0, delayed=0, running=0
        ),
    ]
    assert await store.groups("no-such-queue") == []


async def test_groups_in_pages(store: Store) -> None:
    await insert(store, new(), *(new(group=name) for name in "abcd"))
    assert [info.name for info in await store.groups("default", limit=3)] == [None, "a", "b"]
    assert [info.name for info in await store.groups("default", limit=3, after="b")] == ["c", "d"]


async def test_a_group_with_nothing_left_is_not_listed(store: Store) -> None:
    await settle(store, await running(store, group="a"), Done())
    await store.set_limit("default", "b", 1)
    await store.set_limit("default", "b", None)
    await store.set_paused("default", "c", True)
    await store.set_paused("default", "c", False)
    assert await store.groups("default") == []


async def test_an_own_limit_outlives_the_work(store: Store) -> None:
    await store.set_limit("default", "a", 1)
    await settle(store, await running(store, group="a"), Done())
    assert (await group_info(store, "a")).limit == 1


async def test_standing_counts_those_before_it(store: Store, clock: ManualClock) -> None:
    ids = await insert(
        store,
        new(group="a"),
        new(group="b"),
        new(group="c"),
        new(group="c", priority=5),
        new(group="c", delay_seconds=60),
        new(group="c"),
        new(group="d"),
    )
    facts = await store.standing(ids[5])
    assert facts.job == await seen(store, ids[5])
    assert facts.now == clock.now()
    assert (facts.ahead_in_group, facts.groups_ahead, facts.counts_capped) == (2, 2, False)
    assert (facts.queue.name, facts.queue.groups) == ("default", {})
    assert (facts.group.name, facts.group.due, facts.group.running) == ("c", 3, 0)
    assert (facts.running_ids, facts.workers) == ((), 0)
    assert (await store.standing(ids[3])).ahead_in_group == 0
    await store.set_paused("default", "a", True)
    await store.set_limit("default", "b", 0)
    assert (await store.standing(ids[5])).groups_ahead == 0
    assert (await store.standing(ids[6])).groups_ahead == 1


async def test_a_group_that_is_not_in_line_has_all_others_before_it(store: Store) -> None:
    delayed, *_ = await insert(store, new(group="z", delay_seconds=60), new(group="a"), new(group="b"))
    facts = await store.standing(delayed)
    assert (facts.groups_ahead, facts.group.due) == (2, 0)


async def test_standing_of_a_job_without_a_group(store: Store) -> None:
    await insert(store, new(group="a"))
    job_id = await insert_one(store)
    facts = await store.standing(job_id)
    assert (facts.group.name, facts.group.limit, facts.group.paused, facts.group.due) == (None, None, False, 1)
    assert facts.groups_ahead == 1


async def test_standing_names_those_whose_end_makes_room(store: Store) -> None:
    await configure(store, max_running=3, max_per_group=1)
    ids = await insert(store, *(new(group=name) for name in "abcad"))
    await claim(store, 2)
    assert (await store.standing(ids[3])).running_ids == (ids[0],)
    await claim(store, 1)
    assert (await store.standing(ids[4])).running_ids == (ids[0], ids[1], ids[2])
    assert (await store.standing(ids[3])).running_ids == (ids[0],)
    assert (await store.standing(ids[3])).group.running == 1
    assert (await store.standing(ids[4])).queue.running == 3


async def test_standing_names_ten_at_the_most(store: Store) -> None:
    await configure(store, max_running=12)
    ids = await insert(store, *(new() for _ in range(13)))
    await claim(store, 12)
    assert (await store.standing(ids[12])).running_ids == tuple(ids[:10])


async def test_standing_counts_no_further_than_a_thousand(store: Store) -> None:
    ids = await insert(store, *(new(group="a") for _ in range(1003)))
    facts = await store.standing(ids[-1])
    assert (facts.ahead_in_group, facts.counts_capped) == (1000, True)
    facts = await store.standing(ids[500])
    assert (facts.ahead_in_group, facts.counts_capped) == (500, False)


async def test_standing_counts_the_workers_that_take_the_queue(store: Store, clock: ManualClock) -> None:
    job_id = await insert_one(store)
    for worker_id, queues in (("any", ()), ("this", ("other", "default")), ("other", ("other",))):
        info = WorkerInfo(id=worker_id, host="h", pid=1, queues=queues, concurrency=1)
        await store.heartbeat(info, 60 if worker_id == "any" else 30)
    quiet = WorkerInfo(id="quiet", host="h", pid=1, queues=(), concurrency=1, quiet=True)
    await store.heartbeat(quiet, 60)
    assert (await store.standing(job_id)).workers == 2
    clock.advance(30)
    assert (await store.standing(job_id)).workers == 1


async def test_standing_explains(store: Store) -> None:
    await configure(store, max_running=1)
    await store.set_paused("default", "a", True)
    await running(store, group="b")
    job_id = await insert_one(store, group="a", delay_seconds=60)
    codes = {cause.code for cause in explain(await store.standing(job_id)).causes}
    assert codes == {"not_due", "group_paused", "queue_limit_reached", "no_worker"}


async def test_standing_of_a_job_that_is_not_there(store: Store) -> None:
    with pytest.raises(JobNotFound):
        await store.standing(new().id)


async def prune(store: Store) -> None:
    while await store.prune():
        pass


async def kept(store: Store) -> set[str]:
    return {job.id for job in (await store.find(Filter(), 500)).jobs}


async def test_retention_keeps_the_last_of_each_kind(store: Store) -> None:
    await configure(store, keep_completed=2, keep_failed=3)
    ids = await insert(store, *(new(max_attempts=1) for _ in range(9)))
    leases = {lease.job_id: lease for lease in await claim(store, 9)}
    await complete(store, [leases[ids[index]] for index in (3, 0, 1, 2)])
    bad_ends: list[Outcome] = [Cancel("x"), Failed(message="x"), TimedOut("x"), Cancel("x"), Failed(message="x")]
    for index, outcome in zip((8, 7, 6, 5, 4), bad_ends, strict=True):
        await settle(store, leases[ids[index]], outcome)
    await prune(store)
    assert await kept(store) == {ids[1], ids[2], ids[6], ids[5], ids[4]}
    info = await queue_info(store)
    assert (info.completed, info.failed, info.cancelled) == (2, 2, 1)


async def test_retention_is_per_queue_and_leaves_the_living_alone(store: Store) -> None:
    await configure(store, "a", keep_completed=0, keep_failed=0)
    lease_a, lease_b = await running(store, queue="a"), await running(store, queue="b")
    await complete(store, [lease_a, lease_b])
    living = [(await running(store, queue="a")).job_id]
    living += await insert(store, new(queue="a"), new(queue="a", delay_seconds=9))
    await prune(store)
    assert await kept(store) == {lease_b.job_id, *living}


async def test_the_young_are_kept_beyond_the_counts(store: Store, clock: ManualClock) -> None:
    await configure(store, keep_completed=0, keep_seconds=60)
    old, young = await running(store), await running(store)
    await complete(store, [old])
    clock.advance(1)
    await complete(store, [young])
    clock.advance(58.999)
    assert await store.prune() == 0
    assert await kept(store) == {old.job_id, young.job_id}
    clock.advance(0.001)
    await prune(store)
    assert await kept(store) == {young.job_id}


async def test_no_more_than_the_limit_oldest_first(store: Store) -> None:
    await configure(store, keep_completed=0, keep_seconds=60)
    ids = await insert(store, *(new() for _ in range(5)))
    leases = {lease.job_id: lease for lease in await claim(store, 5)}
    for index in (4, 1, 3, 2, 0):
        await complete(store, [leases[ids[index]]])
    # Age holds them back until retention is loosened, so that no store can have pruned before it is asked.
    await configure(store, keep_completed=0, keep_seconds=0)
    assert await store.prune(limit=2) == 2
    assert await kept(store) == {ids[0], ids[2], ids[3]}
    assert await store.prune(limit=10) == 3
    assert await store.prune(limit=10) == 0


async def test_a_redriven_job_is_not_pruned(store: Store) -> None:
    await configure(store, keep_failed=0, keep_seconds=60)
    lease = await running(store)
    await settle(store, lease, Cancel("x"))
    await store.change(Action.RETRY, [lease.job_id])
    await configure(store, keep_failed=0)
    await prune(store)
    assert (await seen(store, lease.job_id)).state is State.PENDING
    assert await claim_ids(store) == [lease.job_id]


async def test_an_audit_of_a_sound_store_finds_nothing(store: Store, clock: ManualClock) -> None:
    assert await store.audit() == []
    await insert(store, *(new(group=name) for name in "aabbc"), new(delay_seconds=5))
    [first, second, _] = await claim(store, 3)
    await complete(store, [first])
    await settle(store, second, Failed(message="again"))
    clock.advance(5)
    assert await store.audit() == []
    await claim_one(store)
    assert await store.audit() == []
