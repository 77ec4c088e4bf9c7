"""Insert: all or none, in order, with all fields of each job."""

from __future__ import annotations

import msgspec
import pytest
from tests.conformance.support import (
    claim,
    claim_one,
    get_job,
    insert,
    insert_one,
    new,
    promote_due_jobs,
    queue_info,
    settle,
)

from jobyard.domain.instant import FOREVER
from jobyard.domain.job import QueueSettings, State, Unique
from jobyard.domain.outcome import Done, Failed
from jobyard.domain.retry import Delays
from jobyard.errors import BadInput
from jobyard.ports.admin_store import Action, Filter
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock


async def test_sequences_ascend_in_the_given_order(store: Store) -> None:
    responses = await store.insert([new(priority=-number, group=str(number)) for number in range(5)])
    responses += await store.insert([new()])
    assert all(response.created for response in responses)
    sequences = [response.sequence for response in responses]
    assert sequences == sorted(set(sequences))
    assert sequences[0] > 0


async def test_inserting_no_jobs(store: Store) -> None:
    assert await store.insert([]) == []


async def test_all_fields_are_stored(store: Store, clock: ManualClock) -> None:
    job = new(
        kind="mail",
        queue="letters",
        group="acme",
        priority=7,
        payload=b'{"to": "you"}',
        max_attempts=9,
        timeout_seconds=2.5,
        backoff=Delays((1.0, 2.0)),
        unique=Unique("letter-1"),
        tags=("a", "b"),
    )
    [inserted] = await store.insert([job])
    kept = await get_job(store, job.id)
    assert (kept.kind, kept.queue, kept.group, kept.priority) == ("mail", "letters", "acme", 7)
    assert kept.payload_value() == {"to": "you"}
    assert (kept.max_attempts, kept.timeout_seconds, kept.backoff) == (9, 2.5, Delays((1.0, 2.0)))
    assert (kept.unique_key, kept.tags) == ("letter-1", ("a", "b"))
    assert (kept.sequence, kept.created_at, kept.run_at) == (inserted.sequence, clock.now(), clock.now())
    assert (kept.state, kept.attempt, kept.deaths) == (State.PENDING, 0, 0)
    assert (kept.started_at, kept.finished_at, kept.worker, kept.external_id) == (None, None, None, None)
    assert (kept.waiting_for, kept.cancel_requested, kept.progress, kept.result, kept.reason) == (None,) * 5
    assert (kept.errors, kept.log, kept.steps) == ((), (), ())


async def test_the_lease_carries_what_the_run_needs(store: Store) -> None:
    job = new(group="acme", priority=3, payload=b"[1]", private_payload=b'"secret"', max_attempts=4, timeout_seconds=9)
    [inserted] = await store.insert([job])
    lease = await claim_one(store)
    assert (lease.job_id, lease.sequence, lease.kind) == (job.id, inserted.sequence, job.kind)
    assert (lease.queue, lease.group, lease.priority) == ("default", "acme", 3)
    assert (lease.payload, lease.private_payload, lease.backoff) == (b"[1]", b'"secret"', job.backoff)
    assert (lease.attempt, lease.max_attempts, lease.deaths, lease.timeout_seconds) == (1, 4, 0, 9)
    assert lease.signal is None


async def test_the_private_payload_is_never_shown(store: Store) -> None:
    job_id = await insert_one(store, private_payload=b'"secret"')
    assert b"secret" not in msgspec.json.encode(await get_job(store, job_id))
    assert b"secret" not in msgspec.json.encode(await store.find(Filter()))


async def test_the_private_payload_is_kept_after_a_failure(store: Store) -> None:
    job_id = await insert_one(store, private_payload=b'"secret"')
    await settle(store, await claim_one(store), Failed(message="no", retry=False))
    await store.change(Action.RETRY, [job_id])
    assert (await claim_one(store)).private_payload == b'"secret"'


async def test_an_unknown_queue_gets_default_settings(store: Store) -> None:
    await insert_one(store, queue="brand-new")
    assert (await queue_info(store, "brand-new")).settings == QueueSettings()


async def test_a_duplicate_id_is_rejected_and_nothing_is_inserted(store: Store) -> None:
    known = await insert_one(store)
    other = new(queue="elsewhere")
    with pytest.raises(BadInput):
        await store.insert([other, new(id=known)])
    assert await store.get(other.id) is None
    assert (await queue_info(store)).waiting == 1


async def test_an_id_twice_in_one_call_is_rejected(store: Store) -> None:
    job = new()
    with pytest.raises(BadInput):
        await store.insert([job, job])
    assert await store.get(job.id) is None


async def test_a_finished_job_keeps_its_id(store: Store) -> None:
    job_id = await insert_one(store)
    await settle(store, await claim_one(store), Done())
    with pytest.raises(BadInput):
        await store.insert([new(id=job_id)])


async def test_a_delay_counts_from_the_stores_now(store: Store, clock: ManualClock) -> None:
    job_id = await insert_one(store, delay_seconds=2.5)
    assert (await get_job(store, job_id)).run_at == clock.now() + 2500
    assert await claim(store) == ()
    clock.advance(2.499)
    assert await claim(store) == ()
    clock.advance(0.001)
    assert (await claim_one(store)).job_id == job_id


async def test_run_at_is_absolute(store: Store, clock: ManualClock) -> None:
    later, earlier = await insert(store, new(run_at=clock.now() + 1), new(run_at=clock.now() - 5))
    assert (await get_job(store, later)).run_at == clock.now() + 1
    assert (await claim_one(store)).job_id == earlier
    assert await claim(store) == ()
    clock.advance(0.001)
    assert (await claim_one(store)).job_id == later


async def test_a_job_delayed_forever_stays_delayed(store: Store, clock: ManualClock) -> None:
    await insert_one(store, run_at=FOREVER)
    clock.advance(1e9)
    assert (await promote_due_jobs(store)).next_due_at is None
    assert await claim(store) == ()
