"""Retention and audit of finished jobs."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.conformance.support import (
    WORKER,
    claim,
    claim_ids,
    claim_one,
    complete,
    configure,
    get_job,
    insert,
    new,
    queue_info,
    running,
    settle,
    settlement,
)

from jobyard.domain.job import State
from jobyard.domain.outcome import Cancel, Failed, Outcome, TimedOut
from jobyard.ports.admin_store import Action, Filter
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock


async def prune(store: Store) -> None:
    while await store.prune():
        pass


async def kept(store: Store) -> set[str]:
    return {job.id for job in (await store.find(Filter(), 500)).jobs}


COUNT_ONLY: dict[str, Any] = {"keep_completed_seconds": 0, "keep_failed_seconds": 0}
LONG_SECONDS = 30.0


async def finished(store: Store, count: int, outcome: Outcome | None = None, queue: str = "default") -> list[str]:
    """Ids of new jobs that ended one after another, oldest end first."""
    ids: list[str] = []
    for _ in range(count):
        lease = await running(store, queue=queue, max_attempts=1)
        await (complete(store, [lease]) if outcome is None else settle(store, lease, outcome))
        ids.append(lease.job_id)
    return ids


async def test_retention_keeps_the_latest_completed_and_failed_jobs(store: Store) -> None:
    await configure(store, keep_completed=2, keep_failed=3, **COUNT_ONLY)
    ids = await insert(store, *(new(max_attempts=1) for _ in range(9)))
    leases = {lease.job_id: lease for lease in await claim(store, 9)}
    await complete(store, [leases[ids[index]] for index in (3, 0, 1, 2)])
    bad_ends: list[Outcome] = [Cancel("x"), Failed(message="x"), TimedOut("x"), Cancel("x"), Failed(message="x")]
    for index, outcome in zip((8, 7, 6, 5, 4), bad_ends, strict=True):
        await settle(store, leases[ids[index]], outcome)
    await prune(store)
    assert await kept(store) == {ids[1], ids[2], ids[6], ids[5], ids[4]}
    info = await queue_info(store)
    assert (info.completed, info.failed, info.cancelled, info.removed_by_cap) == (2, 2, 1, 0)


async def test_retention_is_per_queue_and_spares_unfinished_jobs(store: Store) -> None:
    await configure(store, "a", keep_completed=0, keep_failed=0, **COUNT_ONLY)
    lease_a, lease_b = await running(store, queue="a"), await running(store, queue="b")
    await complete(store, [lease_a, lease_b])
    living = [(await running(store, queue="a")).job_id]
    living += await insert(store, new(queue="a"), new(queue="a", delay_seconds=9))
    await prune(store)
    assert await kept(store) == {lease_b.job_id, *living}


async def test_by_default_nothing_is_removed_for_an_hour_and_failures_for_a_week(
    store: Store, clock: ManualClock
) -> None:
    await insert(store, *(new(max_attempts=1) for _ in range(400)))
    leases = await claim(store, 400)
    completed, failed = leases[:150], leases[150:]
    await complete(store, completed)
    await store.exchange(WORKER, [settlement(lease, Failed(message="x")) for lease in failed], ("default",), 0, 15)
    await prune(store)
    info = await queue_info(store)
    assert (info.completed, info.failed) == (150, 250), "beyond the counts, but young"
    clock.advance(3599.999)
    await prune(store)
    assert (await queue_info(store)).completed == 150
    clock.advance(0.001)
    await prune(store)
    info = await queue_info(store)
    assert (info.completed, info.failed) == (100, 250)
    clock.advance(7 * 24 * 3600)
    await prune(store)
    info = await queue_info(store)
    assert (info.completed, info.failed, info.removed_by_cap) == (100, 50, 0)
    assert await store.audit() == []


async def test_recent_jobs_are_kept_beyond_the_counts(store: Store, clock: ManualClock) -> None:
    await configure(store, keep_completed=0, keep_completed_seconds=60, keep_failed=0, keep_failed_seconds=90)
    old, young, failed = await running(store), await running(store), await running(store, max_attempts=1)
    await complete(store, [old])
    await settle(store, failed, Failed(message="x"))
    clock.advance(1)
    await complete(store, [young])
    clock.advance(58.999)
    assert await store.prune() == 0
    assert await kept(store) == {old.job_id, young.job_id, failed.job_id}
    clock.advance(0.001)
    await prune(store)
    assert await kept(store) == {young.job_id, failed.job_id}
    clock.advance(30)
    await prune(store)
    assert await kept(store) == set()


async def test_the_cap_removes_the_oldest_completed_jobs_first(store: Store, clock: ManualClock) -> None:
    await configure(store, keep_completed=1, keep_failed=1, keep_at_most=5)
    failed = await finished(store, 3, Failed(message="x"))
    completed = await finished(store, 4)
    clock.advance(2)
    await prune(store)
    assert await kept(store) == {*failed, *completed[2:]}
    info = await queue_info(store)
    assert (info.completed, info.failed, info.removed_by_cap) == (2, 3, 2)
    assert info.removed_by_cap_at is not None
    more = await finished(store, 3, Cancel("x"))
    await prune(store)
    assert await kept(store) == {failed[2], *more, completed[3]}, "the last completed one stays"
    info = await queue_info(store)
    assert (info.completed, info.failed, info.cancelled, info.removed_by_cap) == (1, 1, 3, 5)
    assert await store.audit() == []


async def test_the_cap_does_not_remove_the_last_jobs_and_does_not_count_old_ones(
    store: Store, clock: ManualClock
) -> None:
    await configure(store, keep_completed=3, keep_failed=2, keep_at_most=0, keep_completed_seconds=10)
    completed, failed = await finished(store, 3), await finished(store, 2, Cancel("x"))
    await prune(store)
    assert await kept(store) == {*completed, *failed}
    assert (await queue_info(store)).removed_by_cap_at is None
    await configure(store, keep_completed=1, keep_failed=2, keep_at_most=0, keep_completed_seconds=10)
    clock.advance(10)
    await prune(store)
    assert await kept(store) == {completed[-1], *failed}
    assert (await queue_info(store)).removed_by_cap == 0, "they were old"


async def test_prune_removes_at_most_the_limit_oldest_first(store: Store) -> None:
    await configure(store, keep_completed=0)
    ids = await insert(store, *(new() for _ in range(5)))
    leases = {lease.job_id: lease for lease in await claim(store, 5)}
    for index in (4, 1, 3, 2, 0):
        await complete(store, [leases[ids[index]]])
    # Their age keeps them until the settings change, because a store may prune while it settles.
    await configure(store, keep_completed=0, **COUNT_ONLY)
    assert await store.prune(limit=2) == 2
    assert await kept(store) == {ids[0], ids[2], ids[3]}
    assert await store.prune(limit=10) == 3
    assert await store.prune(limit=10) == 0


async def test_a_retried_job_is_not_pruned(store: Store) -> None:
    await configure(store, keep_failed=0)
    lease = await running(store)
    await settle(store, lease, Cancel("x"))
    await store.change(Action.RETRY, [lease.job_id])
    await configure(store, keep_failed=0, **COUNT_ONLY)
    await prune(store)
    assert (await get_job(store, lease.job_id)).state is State.PENDING
    assert await claim_ids(store) == [lease.job_id]


async def test_a_job_that_a_caller_waits_for_is_not_removed(store: Store, second: Store) -> None:
    """Neither by its worker nor by a prune of another process, although its queue keeps nothing."""
    await configure(store, keep_completed=0, keep_failed=0, **COUNT_ONLY)
    leases = [await running(store, max_attempts=1) for _ in range(3)]
    for lease in leases[:2]:
        # A first wait is over when it is known to the store, and is remembered for some seconds.
        assert await second.wait_for_end(lease.job_id, 0.05) is None
    waits = [asyncio.create_task(second.wait_for_end(lease.job_id, LONG_SECONDS)) for lease in leases[:2]]
    await asyncio.sleep(0)
    await complete(store, [leases[0], leases[2]])
    await settle(store, leases[1], Failed(message="x"))
    await prune(store)
    ended = await asyncio.gather(*waits)
    assert [job is not None and job.state for job in ended] == [State.COMPLETED, State.FAILED]
    assert await store.get(leases[2].job_id) is None, "nothing waited for it"
    assert await store.audit() == []


async def test_an_audit_of_a_consistent_store_finds_nothing(store: Store, clock: ManualClock) -> None:
    assert await store.audit() == []
    await insert(store, *(new(group=name) for name in "aabbc"), new(delay_seconds=5))
    [first, second, _] = await claim(store, 3)
    await complete(store, [first])
    await settle(store, second, Failed(message="again"))
    clock.advance(5)
    assert await store.audit() == []
    await claim_one(store)
    assert await store.audit() == []
