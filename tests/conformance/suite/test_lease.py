"""Leases: renewal, expiry, and jobs whose worker died."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest
from tests.conformance.support import (
    LEASE_SECONDS,
    WORKER,
    claim,
    claim_one,
    configure,
    get_job,
    insert,
    insert_one,
    new,
    promote_due_jobs,
    queue_info,
    running,
    settle,
    stale,
)

from jobyard.domain.instant import after
from jobyard.domain.job import Ending, State
from jobyard.domain.lease import MAX_DEATHS
from jobyard.domain.outcome import Done, Handoff, Release
from jobyard.domain.state import Transition, judge_expired
from jobyard.ports.admin_store import Action
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock


async def test_a_lease_holds_until_but_not_at_its_expiry(store: Store, clock: ManualClock) -> None:
    lease = await running(store)
    clock.advance(LEASE_SECONDS - 0.001)
    assert await store.reclaim() == []
    clock.advance(0.001)
    [ended] = await store.reclaim()
    assert (ended.job_id, ended.queue, ended.group) == (lease.job_id, "default", None)
    assert (ended.token, ended.worker) == (lease.token, WORKER)
    assert (ended.error.ending, ended.error.attempt, ended.error.at) == (Ending.LOST, 1, clock.now())
    assert await store.reclaim() == []


async def test_a_lost_job_is_due_at_once_with_a_death_but_no_attempt(store: Store, clock: ManualClock) -> None:
    lease = await running(store, max_attempts=1)
    clock.advance(LEASE_SECONDS)
    [ended] = await store.reclaim()
    job = await get_job(store, lease.job_id)
    assert (job.state, job.attempt, job.deaths, job.run_at) == (State.PENDING, 0, 1, clock.now())
    assert (job.worker, job.started_at) == (None, None)
    assert job.errors == (ended.error,)
    again = await claim_one(store)
    assert (again.attempt, again.deaths) == (1, 1)


async def test_a_worker_that_lost_its_lease_is_refused(store: Store, clock: ManualClock) -> None:
    ghost = await running(store)
    clock.advance(LEASE_SECONDS)
    await store.reclaim()
    assert (await settle(store, ghost, Done())).refused == (ghost.key,)
    await claim_one(store)
    assert (await settle(store, ghost, Done())).refused == (ghost.key,)
    assert (await store.extend(WORKER, [ghost.key], LEASE_SECONDS)).lost == (ghost.key,)
    assert (await get_job(store, ghost.job_id)).state is State.RUNNING


async def test_a_late_settlement_is_applied_until_the_lease_is_reclaimed(store: Store, clock: ManualClock) -> None:
    first, second = await running(store), await running(store)
    clock.advance(LEASE_SECONDS + 100)
    assert (await settle(store, first, Done())).refused == ()
    assert (await store.extend(WORKER, [second.key], LEASE_SECONDS)).lost == ()
    assert await store.reclaim() == []


async def test_renewing_counts_from_the_stores_now(store: Store, clock: ManualClock) -> None:
    lease = await running(store)
    clock.advance(10)
    response = await store.extend(WORKER, [lease.key], 20)
    assert (response.lost, response.cancelled) == ((), ())
    clock.advance(19.999)
    assert await store.reclaim() == []
    clock.advance(0.001)
    assert len(await store.reclaim()) == 1


async def test_extend_returns_lost_leases(store: Store) -> None:
    held, done = await running(store), await running(store)
    await settle(store, done, Done())
    keys = [done.key, held.key, stale(held.key)]
    assert (await store.extend(WORKER, keys, LEASE_SECONDS)).lost == (done.key, stale(held.key))


async def test_a_lost_token_does_not_renew_the_lease_of_the_new_holder(store: Store, clock: ManualClock) -> None:
    ghost = await running(store)
    clock.advance(LEASE_SECONDS)
    await store.reclaim()
    await claim_one(store, worker="new holder")
    clock.advance(LEASE_SECONDS - 1)
    assert (await store.extend(WORKER, [ghost.key], LEASE_SECONDS)).lost == (ghost.key,)
    clock.advance(1)
    assert [ended.worker for ended in await store.reclaim()] == ["new holder"]


async def test_extend_returns_cancel_requests(store: Store) -> None:
    first, second = await running(store), await running(store)
    await store.change(Action.CANCEL, [second.job_id], reason="enough")
    response = await store.extend(WORKER, [first.key, second.key], LEASE_SECONDS)
    assert response.cancelled == ((second.key, "enough"),)


async def test_an_exchange_returns_cancel_requests_of_its_worker(store: Store) -> None:
    ids = await insert(store, new(), new(), new())
    [first, second] = await claim(store, 2)
    other = await claim_one(store, worker="another")
    await store.change(Action.CANCEL, ids)
    response = await promote_due_jobs(store)
    assert response.cancelled == ((first.key, "cancelled"), (second.key, "cancelled"))
    response = await store.exchange("another", [], ["default"], 0, LEASE_SECONDS)
    assert response.cancelled == ((other.key, "cancelled"),)
    await settle(store, first, Release())
    assert (await promote_due_jobs(store)).cancelled == ((second.key, "cancelled"),)


async def test_leases_are_reclaimed_by_expiry_then_sequence(store: Store, clock: ManualClock) -> None:
    await insert(store, *(new(group=name) for name in "abcd"))
    late = await claim_one(store, lease_seconds=9)
    early = await claim_one(store, lease_seconds=5)
    both = await claim(store, 2, lease_seconds=7)
    clock.advance(9)
    expected = [early, *both, late]
    assert [ended.job_id for ended in await store.reclaim()] == [lease.job_id for lease in expected]
    assert [lease.job_id for lease in await claim(store, 9)] == [lease.job_id for lease in expected]


async def test_a_lease_that_is_renewed_while_it_is_judged_is_not_ended(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewal arrives after the store has read the lease as expired, and before it is ended."""
    lease = await running(store)
    clock.advance(LEASE_SECONDS)
    lost: list[object] = []

    async def renew() -> None:
        lost.extend((await store.for_event_loop().extend(WORKER, [lease.key], LEASE_SECONDS)).lost)

    renewal = threading.Thread(target=lambda: asyncio.run(renew()))

    def judge(**facts: Any) -> Transition:
        renewal.start()
        # A store that judges within one transaction lets the renewal wait for its end.
        renewal.join(timeout=0.3)
        return judge_expired(**facts)

    for module in [module for name, module in sys.modules.items() if name.startswith("jobyard.stores.")]:
        if getattr(module, "judge_expired", None) is judge_expired:
            monkeypatch.setattr(module, "judge_expired", judge)
    ended = [one.job_id for one in await store.reclaim()]
    await asyncio.to_thread(renewal.join)
    if lost:
        assert ended == [lease.job_id]
    else:
        assert ended == []
        assert (await get_job(store, lease.job_id)).state is State.RUNNING
        assert (await settle(store, lease, Done())).refused == ()


async def test_no_more_than_the_limit(store: Store, clock: ManualClock) -> None:
    await insert(store, new(), new(), new())
    leases = await claim(store, 3)
    clock.advance(LEASE_SECONDS)
    assert [ended.job_id for ended in await store.reclaim(limit=2)] == [lease.job_id for lease in leases[:2]]
    assert [ended.job_id for ended in await store.reclaim(limit=2)] == [leases[2].job_id]


async def test_a_lease_is_judged_by_an_earlier_instant(store: Store, clock: ManualClock) -> None:
    """The clock was set forwards by 100 s: by elapsed time, the lease still holds."""
    await running(store)
    began = clock.now()
    clock.advance(100)
    assert await store.reclaim(as_of=began) == []
    assert await store.reclaim(as_of=after(began, LEASE_SECONDS) - 1) == []
    [ended] = await store.reclaim(as_of=after(began, LEASE_SECONDS))
    assert ended.error.at == clock.now()


async def test_a_later_instant_does_not_end_a_lease_early(store: Store, clock: ManualClock) -> None:
    await running(store)
    assert await store.reclaim(as_of=after(clock.now(), 1000)) == []


async def test_a_lease_from_before_the_clock_was_set_back_is_shortened(store: Store, clock: ManualClock) -> None:
    await insert(store, new(), new())
    long, handed_off = await claim(store, 2)
    await settle(store, handed_off, Handoff("pod"))
    clock.advance(-3600)
    short = await running(store)
    assert await store.reclaim(longest_seconds=LEASE_SECONDS + 5) == []
    clock.advance(LEASE_SECONDS)
    assert [ended.job_id for ended in await store.reclaim()] == [short.job_id]
    clock.advance(4.999)
    assert await store.reclaim() == []
    clock.advance(0.001)
    assert [ended.job_id for ended in await store.reclaim()] == [long.job_id]


async def test_a_job_that_kills_its_workers_is_quarantined(store: Store, clock: ManualClock) -> None:
    job_id = await insert_one(store, max_attempts=99)
    for _ in range(MAX_DEATHS):
        await claim_one(store)
        clock.advance(LEASE_SECONDS)
        [ended] = await store.reclaim()
    job = await get_job(store, job_id)
    assert (job.state, job.attempt, job.deaths) == (State.FAILED, 0, MAX_DEATHS)
    assert job.reason is not None
    assert job.reason.startswith("quarantined")
    assert [error.ending for error in job.errors] == [Ending.LOST] * (MAX_DEATHS - 1) + [Ending.QUARANTINED]
    assert ended.error == job.errors[-1]
    assert job.finished_at == clock.now()
    assert job.worker == WORKER


async def test_a_lost_job_with_a_cancel_request_is_cancelled(store: Store, clock: ManualClock) -> None:
    lease = await running(store)
    await store.change(Action.CANCEL, [lease.job_id], reason="enough")
    clock.advance(LEASE_SECONDS)
    [ended] = await store.reclaim()
    job = await get_job(store, lease.job_id)
    assert (job.state, job.reason, job.deaths, ended.error.ending) == (State.CANCELLED, "enough", 1, Ending.LOST)
    assert await claim(store) == ()


async def test_a_reclaimed_slot_is_free(store: Store, clock: ManualClock) -> None:
    await configure(store, max_running=1)
    await insert(store, new(group="a"), new(group="b"))
    await claim_one(store)
    clock.advance(LEASE_SECONDS)
    assert await claim(store) == ()
    await store.reclaim()
    assert (await queue_info(store)).running == 0
    assert (await claim_one(store)).group == "b"


async def test_unacknowledged_leases_of_the_worker_are_renewed(store: Store, clock: ManualClock) -> None:
    """The response that granted them may be in flight. Leases of other workers and handed-off ones are unchanged."""
    mine, other = await running(store), await running(store)
    await insert_one(store)
    [theirs] = await claim(store, 1, worker="worker-2")
    clock.advance(LEASE_SECONDS - 1)
    await store.extend(WORKER, [mine.key], LEASE_SECONDS, unacknowledged=True)
    clock.advance(2)
    assert [ended.job_id for ended in await store.reclaim()] == [theirs.job_id]
    clock.advance(LEASE_SECONDS)
    assert {ended.job_id for ended in await store.reclaim()} == {mine.job_id, other.job_id}


async def test_leases_of_a_lost_response_expire(store: Store, clock: ManualClock) -> None:
    """Renewals do not keep them: an exchange that is in flight now did not grant them."""
    mine, lost = await running(store), await running(store)
    ended: list[str] = []
    for _ in range(8):
        clock.advance(LEASE_SECONDS / 2)
        await store.extend(WORKER, [mine.key], LEASE_SECONDS, unacknowledged=True)
        ended += [one.job_id for one in await store.reclaim()]
    assert ended == [lost.job_id]


async def test_leases_of_a_lost_response_expire_after_the_clock_was_set_back(store: Store, clock: ManualClock) -> None:
    """It began an hour from now: that is not within UNACKNOWLEDGED_SECONDS."""
    await running(store)
    clock.advance(-3600)
    assert await store.reclaim(longest_seconds=LEASE_SECONDS) == []
    clock.advance(LEASE_SECONDS / 2)
    await store.extend(WORKER, [], LEASE_SECONDS, unacknowledged=True)
    clock.advance(LEASE_SECONDS / 2)
    assert len(await store.reclaim()) == 1
