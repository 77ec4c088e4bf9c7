"""Retention and audit of finished jobs."""

from __future__ import annotations

from tests.conformance.support import (
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


async def test_retention_keeps_the_latest_completed_and_failed_jobs(store: Store) -> None:
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


async def test_retention_is_per_queue_and_spares_unfinished_jobs(store: Store) -> None:
    await configure(store, "a", keep_completed=0, keep_failed=0)
    lease_a, lease_b = await running(store, queue="a"), await running(store, queue="b")
    await complete(store, [lease_a, lease_b])
    living = [(await running(store, queue="a")).job_id]
    living += await insert(store, new(queue="a"), new(queue="a", delay_seconds=9))
    await prune(store)
    assert await kept(store) == {lease_b.job_id, *living}


async def test_recent_jobs_are_kept_beyond_the_counts(store: Store, clock: ManualClock) -> None:
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


async def test_prune_removes_at_most_the_limit_oldest_first(store: Store) -> None:
    await configure(store, keep_completed=0, keep_seconds=60)
    ids = await insert(store, *(new() for _ in range(5)))
    leases = {lease.job_id: lease for lease in await claim(store, 5)}
    for index in (4, 1, 3, 2, 0):
        await complete(store, [leases[ids[index]]])
    # Their age keeps them until the settings change, because a store may prune while it settles.
    await configure(store, keep_completed=0, keep_seconds=0)
    assert await store.prune(limit=2) == 2
    assert await kept(store) == {ids[0], ids[2], ids[3]}
    assert await store.prune(limit=10) == 3
    assert await store.prune(limit=10) == 0


async def test_a_retried_job_is_not_pruned(store: Store) -> None:
    await configure(store, keep_failed=0, keep_seconds=60)
    lease = await running(store)
    await settle(store, lease, Cancel("x"))
    await store.change(Action.RETRY, [lease.job_id])
    await configure(store, keep_failed=0)
    await prune(store)
    assert (await get_job(store, lease.job_id)).state is State.PENDING
    assert await claim_ids(store) == [lease.job_id]


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
