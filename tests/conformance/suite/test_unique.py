"""Unique keys: one job per key and queue, within the scope."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.support import claim_one, configure, get_job, insert_one, new, queue_info, running, settle

from jobyard.domain.job import QueueSettings, State, Unique, UniqueScope
from jobyard.domain.outcome import Cancel, Done, Failed
from jobyard.errors import QueueFull
from jobyard.ports.admin_store import Action
from jobyard.ports.job_store import Inserted
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock

ACTIVE = Unique("key")
PERIOD = Unique("key", UniqueScope.PERIOD, 60.0)
EVER = Unique("key", UniqueScope.FOREVER)


async def insert_unique(store: Store, unique: Unique, **options: Any) -> Inserted:
    [inserted] = await store.insert([new(unique=unique, **options)])
    return inserted


@pytest.mark.parametrize("unique", [ACTIVE, PERIOD, EVER], ids=lambda unique: unique.scope)
async def test_a_held_key_returns_its_holder(store: Store, unique: Unique) -> None:
    first = await insert_unique(store, unique)
    assert first.created
    assert await insert_unique(store, unique) == Inserted(first.id, False, 0)
    assert (await queue_info(store)).waiting == 1


async def test_a_key_belongs_to_its_queue(store: Store) -> None:
    assert (await insert_unique(store, EVER)).created
    assert (await insert_unique(store, EVER, queue="other")).created


async def test_duplicates_within_one_call(store: Store) -> None:
    responses = await store.insert([new(unique=ACTIVE), new(), new(unique=ACTIVE)])
    assert [response.created for response in responses] == [True, True, False]
    assert responses[2] == Inserted(responses[0].id, False, 0)


async def test_a_key_is_shared_by_all_scopes(store: Store) -> None:
    first = await insert_unique(store, EVER)
    assert await insert_unique(store, ACTIVE) == Inserted(first.id, False, 0)


@pytest.mark.parametrize("outcome", [Done(), Failed(message="no", retry=False), Cancel("no")])
async def test_an_active_key_is_released_when_the_job_ends(store: Store, outcome: Any) -> None:
    lease = await running(store, unique=ACTIVE)
    assert not (await insert_unique(store, ACTIVE)).created
    await settle(store, lease, outcome)
    assert (await insert_unique(store, ACTIVE)).created


async def test_an_active_key_is_held_while_the_job_waits_for_a_retry(store: Store) -> None:
    lease = await running(store, unique=ACTIVE)
    await settle(store, lease, Failed(message="again"))
    assert await insert_unique(store, ACTIVE) == Inserted(lease.job_id, False, 0)


@pytest.mark.parametrize("action", [Action.CANCEL, Action.DELETE])
async def test_an_active_key_is_released_by_cancel_and_delete(store: Store, action: Action) -> None:
    job_id = await insert_one(store, unique=ACTIVE)
    await store.change(action, [job_id])
    assert (await insert_unique(store, ACTIVE)).created


async def test_a_period_ends_by_the_clock_only(store: Store, clock: ManualClock) -> None:
    first = await insert_unique(store, PERIOD)
    await settle(store, await claim_one(store), Done())
    await store.change(Action.DELETE, [first.id])
    clock.advance(59.999)
    assert await insert_unique(store, PERIOD) == Inserted(first.id, False, 0)
    clock.advance(0.001)
    assert (await insert_unique(store, PERIOD)).created


async def test_a_period_starts_at_insertion(store: Store, clock: ManualClock) -> None:
    first = await insert_unique(store, PERIOD)
    clock.advance(60)
    second = await insert_unique(store, PERIOD)
    assert second.created
    assert (await get_job(store, first.id)).state is State.PENDING
    await store.change(Action.CANCEL, [first.id])
    assert await insert_unique(store, PERIOD) == Inserted(second.id, False, 0)


async def test_a_forever_key_is_kept_after_the_job(store: Store, clock: ManualClock) -> None:
    await store.configure("default", QueueSettings(keep_completed=0, keep_completed_seconds=0))
    first = await insert_unique(store, EVER)
    await settle(store, await claim_one(store), Done())
    clock.advance(1e8)
    await store.prune()
    assert await store.get(first.id) is None
    assert await insert_unique(store, EVER) == Inserted(first.id, False, 0)


async def test_a_forever_key_is_kept_after_deletion(store: Store) -> None:
    first = await insert_unique(store, EVER)
    await store.change(Action.DELETE, [first.id])
    assert await insert_unique(store, EVER) == Inserted(first.id, False, 0)


async def test_a_retry_acquires_an_active_key_again(store: Store) -> None:
    lease = await running(store, unique=ACTIVE)
    await settle(store, lease, Failed(message="no", retry=False))
    assert (await store.change(Action.RETRY, [lease.job_id])).changed == (lease.job_id,)
    assert await insert_unique(store, ACTIVE) == Inserted(lease.job_id, False, 0)


async def test_a_retry_is_rejected_while_another_job_holds_the_key(store: Store) -> None:
    lease = await running(store, unique=ACTIVE)
    await settle(store, lease, Failed(message="no", retry=False))
    holder = await insert_unique(store, ACTIVE)
    response = await store.change(Action.RETRY, [lease.job_id])
    assert (response.changed, response.unchanged) == ((), (lease.job_id,))
    assert (await get_job(store, lease.job_id)).state is State.FAILED
    await store.change(Action.CANCEL, [holder.id])
    assert (await store.change(Action.RETRY, [lease.job_id])).changed == (lease.job_id,)


async def test_deleting_a_finished_job_does_not_release_the_key_of_its_successor(store: Store) -> None:
    lease = await running(store, unique=ACTIVE)
    await settle(store, lease, Done())
    holder = await insert_unique(store, ACTIVE)
    await store.change(Action.DELETE, [lease.job_id])
    assert await insert_unique(store, ACTIVE) == Inserted(holder.id, False, 0)


async def test_a_retry_of_a_period_needs_no_key(store: Store, clock: ManualClock) -> None:
    lease = await running(store, unique=PERIOD)
    await settle(store, lease, Failed(message="no", retry=False))
    clock.advance(60)
    assert (await insert_unique(store, PERIOD)).created
    assert (await store.change(Action.RETRY, [lease.job_id])).changed == (lease.job_id,)


async def test_a_rejected_call_acquires_no_key(store: Store) -> None:
    await configure(store, max_waiting=1)
    with pytest.raises(QueueFull):
        await store.insert([new(unique=EVER), new()])
    assert (await insert_unique(store, EVER)).created
