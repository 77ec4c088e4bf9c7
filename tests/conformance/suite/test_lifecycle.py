"""Lifecycle: open and close twice, handles on other threads' event loops, concurrent callers."""

from __future__ import annotations

import asyncio
import threading

from tests.conformance.support import LEASE_SECONDS, claim, insert, insert_one, new, queue_info, settlement

from jobyard.domain.outcome import Done
from jobyard.domain.state import Settlement
from jobyard.ports.store import Store


async def test_opening_twice_is_safe(store: Store) -> None:
    await store.open()
    job_id = await insert_one(store)
    assert await store.get(job_id) is not None


async def test_a_store_has_a_url(store: Store) -> None:
    assert ":" in store.url


async def test_a_handle_on_another_thread_sees_the_same_jobs(store: Store) -> None:
    waiting = asyncio.create_task(store.wait_for_work(["default"], 30))
    await asyncio.sleep(0)

    async def elsewhere() -> str:
        return await insert_one(store.for_event_loop())

    job_id = await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
    assert await waiting is True
    assert [lease.job_id for lease in await claim(store)] == [job_id]


async def test_no_job_is_claimed_twice_by_workers_on_many_threads(store: Store) -> None:
    ids = await insert(store, *(new(group=str(number % 7)) for number in range(200)))
    taken: list[str] = []
    refused: list[object] = []
    start = threading.Barrier(4)

    async def work(worker: str) -> None:
        handle = store.for_event_loop()
        start.wait()
        settlements: list[Settlement] = []
        while True:
            response = await handle.exchange(worker, settlements, ["default"], 5, LEASE_SECONDS)
            refused.extend(response.refused)
            taken.extend(lease.job_id for lease in response.leases)
            settlements = [settlement(lease, Done()) for lease in response.leases]
            if not settlements:
                return

    def run(worker: str) -> None:
        asyncio.run(work(worker))

    await asyncio.gather(*(asyncio.to_thread(run, f"w{number}") for number in range(4)))
    assert sorted(taken) == sorted(ids)
    assert refused == []
    assert (await queue_info(store)).running == 0


async def test_concurrent_inserts_are_all_stored(store: Store) -> None:
    responses = await asyncio.gather(*(store.insert([new()]) for _ in range(50)))
    assert len({inserted.sequence for [inserted] in responses}) == 50
    assert (await queue_info(store)).waiting == 50
