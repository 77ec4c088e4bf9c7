"""Position: the facts that explain why a job waits."""

from __future__ import annotations

import pytest
from tests.conformance.support import (
    claim,
    configure,
    get_job,
    insert,
    insert_one,
    new,
    running,
)

from jobyard.domain.explain import explain
from jobyard.errors import JobNotFound
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock


async def test_position_counts_jobs_and_groups_ahead(store: Store, clock: ManualClock) -> None:
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
    facts = await store.position(ids[5])
    assert facts.job == await get_job(store, ids[5])
    assert facts.is_due
    assert (facts.ahead_in_group, facts.groups_ahead, facts.counts_capped) == (2, 2, False)
    assert (facts.queue.name, facts.queue.groups) == ("default", {})
    assert (facts.group.name, facts.group.due, facts.group.running) == ("c", 3, 0)
    assert (facts.running_ids, facts.workers) == ((), 0)
    assert (await store.position(ids[3])).ahead_in_group == 0
    await store.set_paused("default", "a", True)
    await store.set_limit("default", "b", 0)
    assert (await store.position(ids[5])).groups_ahead == 0
    assert (await store.position(ids[6])).groups_ahead == 1


async def test_a_group_without_due_jobs_has_all_others_ahead(store: Store) -> None:
    delayed, *_ = await insert(store, new(group="z", delay_seconds=60), new(group="a"), new(group="b"))
    facts = await store.position(delayed)
    assert (facts.groups_ahead, facts.group.due) == (2, 0)


async def test_position_of_a_job_without_a_group(store: Store) -> None:
    await insert(store, new(group="a"))
    job_id = await insert_one(store)
    facts = await store.position(job_id)
    assert (facts.group.name, facts.group.limit, facts.group.paused, facts.group.due) == (None, None, False, 1)
    assert facts.groups_ahead == 1


async def test_position_lists_running_jobs_that_occupy_the_slots(store: Store) -> None:
    await configure(store, max_running=3, max_per_group=1)
    ids = await insert(store, *(new(group=name) for name in "abcad"))
    await claim(store, 2)
    assert (await store.position(ids[3])).running_ids == (ids[0],)
    await claim(store, 1)
    assert (await store.position(ids[4])).running_ids == (ids[0], ids[1], ids[2])
    assert (await store.position(ids[3])).running_ids == (ids[0],)
    assert (await store.position(ids[3])).group.running == 1
    assert (await store.position(ids[4])).queue.running == 3


async def test_position_lists_at_most_ten_running_jobs(store: Store) -> None:
    await configure(store, max_running=12)
    ids = await insert(store, *(new() for _ in range(13)))
    await claim(store, 12)
    assert (await store.position(ids[12])).running_ids == tuple(ids[:10])


async def test_position_counts_at_most_a_thousand(store: Store) -> None:
    ids = await insert(store, *(new(group="a") for _ in range(1003)))
    facts = await store.position(ids[-1])
    assert (facts.ahead_in_group, facts.counts_capped) == (1000, True)
    facts = await store.position(ids[500])
    assert (facts.ahead_in_group, facts.counts_capped) == (500, False)


async def test_position_counts_the_workers_that_take_the_queue(store: Store, clock: ManualClock) -> None:
    job_id = await insert_one(store)
    for worker_id, queues in (("any", ()), ("this", ("other", "default")), ("other", ("other",))):
        info = WorkerInfo(id=worker_id, host="h", pid=1, queues=queues, concurrency=1)
        await store.heartbeat(info, 60 if worker_id == "any" else 30)
    quiet = WorkerInfo(id="quiet", host="h", pid=1, queues=(), concurrency=1, quiet=True)
    await store.heartbeat(quiet, 60)
    assert (await store.position(job_id)).workers == 2
    clock.advance(30)
    assert (await store.position(job_id)).workers == 1


async def test_position_explains(store: Store) -> None:
    await configure(store, max_running=1)
    await store.set_paused("default", "a", True)
    await running(store, group="b")
    job_id = await insert_one(store, group="a", delay_seconds=60)
    codes = {cause.code for cause in explain(await store.position(job_id)).causes}
    assert codes == {"not_due", "group_paused", "queue_limit_reached", "no_worker"}


async def test_position_of_an_unknown_job(store: Store) -> None:
    with pytest.raises(JobNotFound):
        await store.position(new().id)


async def test_a_job_in_line_stays_due_when_the_clock_is_set_back(store: Store, clock: ManualClock) -> None:
    """`explain` judges by where the job stands: a claim would take it."""
    due, delayed = await insert(store, new(), new(delay_seconds=60))
    clock.advance(-3600)
    assert "not_due" not in [cause.code for cause in explain(await store.position(due)).causes]
    assert "not_due" in [cause.code for cause in explain(await store.position(delayed)).causes]
    assert [lease.job_id for lease in await claim(store, 2)] == [due]
