"""Adopt: a job that already runs outside is inserted as running, so that the counts are right."""

from __future__ import annotations

import msgspec
import pytest
from tests.conformance.support import claim, configure, get_job, group_info, insert_one, new, queue_info, settle

from jobyard.domain.job import State, Unique
from jobyard.domain.outcome import Done
from jobyard.errors import BadInput
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock


async def test_an_adopted_job_runs_and_is_handed_off(store: Store, clock: ManualClock) -> None:
    job = new(group="acme", payload=b"[1]")
    lease = await store.adopt(job, "manager", "pod-1")
    assert (lease.job_id, lease.attempt, lease.group, lease.payload) == (job.id, 1, "acme", b"[1]")
    kept = await get_job(store, job.id)
    assert (kept.state, kept.attempt, kept.worker, kept.external_id) == (State.RUNNING, 1, "manager", "pod-1")
    assert (kept.started_at, kept.sequence) == (clock.now(), lease.sequence)
    clock.advance(1e6)
    assert await store.reclaim() == []
    assert (await settle(store, lease, Done())).refused == ()
    assert (await get_job(store, job.id)).state is State.COMPLETED


async def test_adoption_exceeds_limits_and_is_counted(store: Store) -> None:
    await configure(store, max_running=1, max_waiting=0, max_per_group=1)
    await store.set_limit("default", "acme", 0)
    for number in range(3):
        await store.adopt(new(group="acme"), "manager", f"pod-{number}")
    assert (await queue_info(store)).running == 3
    assert (await group_info(store, "acme")).running == 3


async def test_an_adopted_job_uses_a_slot(store: Store) -> None:
    await configure(store, max_running=1)
    lease = await store.adopt(new(), "manager", "pod-1")
    await insert_one(store)
    assert await claim(store) == ()
    await settle(store, lease, Done())
    assert len(await claim(store)) == 1


async def test_a_lost_response_of_an_adoption_can_be_settled_by_its_token(store: Store) -> None:
    job = new()
    granted = await store.adopt(job, "manager", "pod-1", token="0123456789abcdef")
    assert granted.token.endswith("0123456789abcdef")  # a sharded store marks it
    kept = await get_job(store, job.id)
    # What a caller knows that has only written the token down.
    found = msgspec.structs.replace(granted, sequence=kept.sequence)
    assert (await settle(store, found, Done())).refused == ()
    assert (await get_job(store, job.id)).state is State.COMPLETED


async def test_adopting_a_duplicate_id_is_rejected(store: Store) -> None:
    job_id = await insert_one(store)
    with pytest.raises(BadInput):
        await store.adopt(new(id=job_id), "manager", "pod-1")
    assert (await get_job(store, job_id)).state is State.PENDING


async def test_an_adopted_job_holds_its_unique_key(store: Store) -> None:
    job = new(unique=Unique("key"))
    await store.adopt(job, "manager", "pod-1")
    assert await insert_one(store, unique=Unique("key")) == job.id


async def test_a_held_unique_key_does_not_prevent_adoption(store: Store) -> None:
    holder = await insert_one(store, unique=Unique("key"))
    job = new(unique=Unique("key"))
    lease = await store.adopt(job, "manager", "pod-1")
    assert (await get_job(store, job.id)).state is State.RUNNING
    await settle(store, lease, Done())
    assert await insert_one(store, unique=Unique("key")) == holder
