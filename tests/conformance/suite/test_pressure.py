"""Back-pressure: a queue or a group that holds its maximum takes no more."""

from __future__ import annotations

import pytest
from tests.conformance.support import claim_one, configure, insert, insert_one, new, queue_info, settle

from jobyard.domain.job import Unique
from jobyard.domain.outcome import Release
from jobyard.errors import QueueFull
from jobyard.ports.store import Store


async def test_a_full_queue_takes_nothing_of_the_call(store: Store) -> None:
    await configure(store, max_waiting=3)
    await insert(store, new(), new())
    elsewhere = new(queue="elsewhere")
    with pytest.raises(QueueFull, match="default") as caught:
        await store.insert([elsewhere, new(), new()])
    assert "3" in str(caught.value)
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
    # What is handed back may go beyond: the limit is for what comes in.
    await settle(store, lease, Release())
    assert (await queue_info(store)).waiting == 2


async def test_a_full_group_is_named(store: Store) -> None:
    await configure(store, max_waiting_per_group=2)
    await insert(store, new(group="acme"), new(group="acme", delay_seconds=5))
    with pytest.raises(QueueFull, match="acme") as caught:
        await insert_one(store, group="acme")
    assert "2" in str(caught.value)
    await insert_one(store, group="other")


async def test_the_group_limit_is_not_for_jobs_without_a_group(store: Store) -> None:
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
