"""Back-pressure: a queue or group with its maximum of waiting jobs rejects inserts."""

from __future__ import annotations

import pytest
from tests.conformance.support import claim_one, configure, insert, insert_one, new, queue_info, settle

from jobyard.domain.job import Unique
from jobyard.domain.outcome import Release
from jobyard.errors import QueueFull
from jobyard.ports.store import Store


async def test_a_full_queue_rejects_the_whole_call(store: Store) -> None:
    await configure(store, max_waiting=3)
    await insert(store, new(), new())
    elsewhere = new(queue="elsewhere")
    with pytest.raises(QueueFull, match=r"default.* 3 "):
        await store.insert([elsewhere, new(), new()])
    assert await store.get(elsewhere.id) is None
    assert (await queue_info(store)).waiting == 2
    await insert_one(store)
    assert (await queue_info(store)).waiting == 3


async def test_delayed_jobs_count(store: Store) -> None:
    await configure(store, max_waiting=1)
    await insert_one(store, delay_seconds=60)
    with pytest.raises(QueueFull):
        await insert_one(store)


async def test_running_jobs_do_not_count(store: Store) -> None:
    await configure(store, max_waiting=1)
    await insert_one(store)
    lease = await claim_one(store)
    await insert_one(store)
    # A released job may exceed the limit, which applies to inserts only.
    await settle(store, lease, Release())
    assert (await queue_info(store)).waiting == 2


async def test_a_full_group_rejects_the_call(store: Store) -> None:
    await configure(store, max_waiting_per_group=2)
    await insert(store, new(group="acme"), new(group="acme", delay_seconds=5))
    with pytest.raises(QueueFull, match=r"acme.* 2 "):
        await insert_one(store, group="acme")
    await insert_one(store, group="other")


async def test_the_group_limit_does_not_apply_to_ungrouped_jobs(store: Store) -> None:
    await configure(store, max_waiting_per_group=1)
    assert len(await insert(store, new(), new(), new())) == 3


async def test_the_jobs_of_one_call_count_together(store: Store) -> None:
    await configure(store, max_waiting_per_group=1)
    with pytest.raises(QueueFull):
        await store.insert([new(group="acme"), new(group="acme")])


async def test_duplicates_do_not_count(store: Store) -> None:
    await configure(store, max_waiting=1)
    first = await insert_one(store, unique=Unique("key"))
    assert await insert(store, new(unique=Unique("key"))) == [first]
