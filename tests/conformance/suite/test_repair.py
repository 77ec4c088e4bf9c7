"""Repair: a healthy store stays as it is."""

from __future__ import annotations

from tests.conformance.support import claim_one, insert, new, running, settle

from jobyard.domain.job import Unique
from jobyard.domain.outcome import Done, Failed
from jobyard.ports.admin_store import Filter
from jobyard.ports.store import Store


async def test_repair_leaves_a_healthy_store_alone(store: Store) -> None:
    await settle(store, await running(store), Done())
    await settle(store, await running(store, max_attempts=1), Failed(message="no"))
    await running(store, group="g")
    await insert(store, new(), new(group="g"), new(delay_seconds=60), new(unique=Unique("k"), tags=("t",)))
    before = (await store.queues(), await store.groups("default"), await store.find(Filter()))
    assert await store.repair() == []
    assert (await store.queues(), await store.groups("default"), await store.find(Filter())) == before
    await claim_one(store)
