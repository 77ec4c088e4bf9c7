"""Submission of requests, and Idempotency-Keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from jobyard.api.convert import job_view
from jobyard.api.schemas.jobs import FixedBackoff, JobRequest, UniqueRequest
from jobyard.domain.access import OWNER, Principal, Role
from jobyard.domain.job import QueueSettings, Unique, UniqueScope
from jobyard.domain.retry import Fixed
from jobyard.errors import BadOption, IdempotencyKeyReused, JobyardError, PayloadTooLarge, QueueFull
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.submit import Stored, prepare, store_many, store_one
from jobyard.ports.admin_store import Action, Filter
from jobyard.ports.clock import SystemClock
from jobyard.ports.store import Store
from jobyard.stores.memory import MemoryStore

ANN = Principal(id="ann", name="Ann", role=Role.SUBMITTER)
BEN = Principal(id="ben", name="Ben", role=Role.SUBMITTER)


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    opened = MemoryStore(SystemClock())
    await opened.open()
    yield opened
    await opened.close()


def request(**given: Any) -> JobRequest:
    return JobRequest(**({"kind": "mail"} | given))


async def hand_in(store: Store, key: str | None, who: Principal = OWNER, **given: Any) -> Stored:
    return await store_one(store, prepare(JobFactory(), who, request(**given), key))


async def count(store: Store) -> int:
    return len((await store.find(Filter(), 100)).jobs)


def test_every_field_of_a_request_reaches_the_job() -> None:
    asked = request(
        payload={"to": "you"},
        private_payload={"password": "x"},
        queue="letters",
        group="acme",
        priority=7,
        delay_seconds=2.5,
        max_attempts=9,
        timeout_seconds=4,
        backoff=FixedBackoff(seconds=3.0),
        unique=UniqueRequest(key="k", scope=UniqueScope.PERIOD, period_seconds=5),
        tags=("a", "b"),
    )
    job = prepare(JobFactory(), OWNER, asked).job
    assert (job.kind, job.queue, job.group, job.priority) == ("mail", "letters", "acme", 7)
    assert (job.payload, job.private_payload) == (b'{"to":"you"}', b'{"password":"x"}')
    assert (job.delay_seconds, job.max_attempts, job.timeout_seconds) == (2.5, 9, 4)
    assert job.backoff == Fixed(3.0)
    assert (job.unique, job.tags) == (Unique("k", UniqueScope.PERIOD, 5), ("a", "b"))


def test_a_payload_over_the_limit_is_rejected() -> None:
    with pytest.raises(PayloadTooLarge):
        prepare(JobFactory(100), OWNER, request(payload={"text": "x" * 100}))


@pytest.mark.parametrize("given", [{"tags": ("by:ben",)}, {"unique": UniqueRequest(key="idempotency:x")}])
def test_reserved_values_are_rejected(given: dict[str, Any]) -> None:
    with pytest.raises(BadOption):
        prepare(JobFactory(), OWNER, request(**given))


async def test_a_job_records_its_submitter(store: Store) -> None:
    stored = await hand_in(store, "key", ANN, tags=("red",))
    job = await store.get(stored.inserted.id)
    assert job is not None
    assert job.tags == ("red", "by:ann")
    view = job_view(job)
    assert (view.tags, view.submitted_by, view.unique_key) == (("red",), "ann", None)


async def test_the_same_key_creates_one_job(store: Store) -> None:
    first = await hand_in(store, "key", payload={"a": 1, "b": 2})
    again = await hand_in(store, "key", payload={"b": 2, "a": 1})
    assert (first.is_replay, again.is_replay) == (False, True)
    assert first.inserted.id == again.inserted.id
    assert await count(store) == 1


async def test_without_a_key_each_request_creates_a_job(store: Store) -> None:
    await hand_in(store, None)
    await hand_in(store, None)
    assert await count(store) == 2


async def test_the_same_key_with_another_request_is_rejected(store: Store) -> None:
    await hand_in(store, "key", payload={"a": 1})
    with pytest.raises(IdempotencyKeyReused):
        await hand_in(store, "key", payload={"a": 2})
    assert await count(store) == 1


async def test_a_key_belongs_to_its_principal(store: Store) -> None:
    first, second = await hand_in(store, "key", ANN), await hand_in(store, "key", BEN)
    assert first.inserted.id != second.inserted.id
    assert not second.is_replay


async def test_a_key_outlives_its_job(store: Store) -> None:
    first = await hand_in(store, "key")
    await store.change(Action.DELETE, [first.inserted.id])
    again = await hand_in(store, "key")
    assert (again.is_replay, again.inserted.id) == (True, first.inserted.id)
    assert await count(store) == 0


async def test_an_idempotency_key_with_a_unique_key(store: Store) -> None:
    unique = UniqueRequest(key="letter")
    first = await hand_in(store, "key", unique=unique)
    assert (await hand_in(store, "key", unique=unique)).is_replay
    other = await hand_in(store, "other key", unique=unique)
    assert (other.is_replay, other.inserted.id) == (False, first.inserted.id)
    await store.change(Action.CANCEL, [first.inserted.id])
    after_its_end = await hand_in(store, "key", unique=unique)
    assert (after_its_end.is_replay, after_its_end.inserted.id) == (True, first.inserted.id)
    assert await count(store) == 1


async def test_a_replay_returns_the_same_holder_of_the_unique_key(store: Store) -> None:
    unique = UniqueRequest(key="letter")
    holder = await hand_in(store, None, unique=unique)
    first = await hand_in(store, "key", unique=unique)
    assert (first.is_replay, first.inserted.created, first.inserted.id) == (False, False, holder.inserted.id)
    await store.change(Action.DELETE, [holder.inserted.id])
    again = await hand_in(store, "key", unique=unique)
    assert (again.is_replay, again.inserted.created, again.inserted.id) == (True, False, holder.inserted.id)
    assert await count(store) == 0
    assert (await hand_in(store, "another key", unique=unique)).inserted.created


async def test_a_reused_key_with_a_unique_key_is_rejected(store: Store) -> None:
    await hand_in(store, "key", unique=UniqueRequest(key="letter"))
    with pytest.raises(IdempotencyKeyReused):
        await hand_in(store, "key", unique=UniqueRequest(key="another letter"))
    assert await count(store) == 1


async def test_a_replay_works_in_a_full_queue(store: Store) -> None:
    await store.configure("default", QueueSettings(max_waiting=1))
    first = await hand_in(store, "key")
    assert (await hand_in(store, "key")).inserted.id == first.inserted.id
    with pytest.raises(QueueFull):
        await hand_in(store, "another")


async def test_only_invalid_jobs_of_a_batch_are_rejected(store: Store) -> None:
    await store.configure("small", QueueSettings(max_waiting=1))
    asked = [request(queue="small"), request(queue="small"), request()]
    responses = await store_many(store, [prepare(JobFactory(), OWNER, each) for each in asked])
    assert [isinstance(response, JobyardError) for response in responses] == [False, True, False]
    assert await count(store) == 2
