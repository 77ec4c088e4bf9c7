"""Concurrent inserts and claims from several processes: limits hold, no job is leased twice, counts agree."""

from __future__ import annotations

import asyncio
from collections import Counter
from multiprocessing.queues import Queue as Pipe

import pytest
from tests.conformance.support import new
from tests.stores.postgres_support import done, exchange, new_schema, opened, warm_processes
from tests.story.sizes import size

from jobyard.domain.job import QueueSettings, Unique
from jobyard.domain.state import Settlement
from jobyard.errors import QueueFull

GROUPS, PER_GROUP, RUNNING = 7, 2, 9
JOBS = size(200, 400)


def insert_some(url: str, schema: str, pooled: bool) -> None:
    async def main() -> None:
        async with opened(url, schema, pooled=pooled, connections=4) as store:

            async def one(start: int) -> None:
                for number in range(start, JOBS, 4):
                    await store.insert([new(group=str(number % GROUPS), queue=("q", "r")[number % 2])])

            await asyncio.gather(*map(one, range(4)))

    asyncio.run(main())


def claim_some(
    url: str, schema: str, pooled: bool, name: str, wanted: int, responses: Pipe[tuple[str, list[str]]]
) -> None:
    async def main() -> list[str]:
        taken: list[str] = []
        async with opened(url, schema, pooled=pooled, connections=3) as store:
            settlements: list[Settlement] = []
            idle = 0
            while idle < 20:
                response = await store.exchange(name, settlements, (), wanted, 30.0)
                assert response.refused == ()
                running = Counter((lease.queue, lease.group) for lease in response.leases)
                assert not running or max(running.values()) <= PER_GROUP
                taken += [lease.job_id for lease in response.leases]
                settlements = [done(lease) for lease in response.leases]
                idle = 0 if response.leases else idle + 1
                if not response.leases:
                    await asyncio.sleep(0.05)
        return taken

    responses.put((name, asyncio.run(main())))


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
@pytest.mark.timeout(300)
async def test_inserts_and_claims_from_several_processes(postgres_url: str, pgbouncer_url: str, pooled: bool) -> None:
    url = pgbouncer_url if pooled else postgres_url
    async with new_schema(postgres_url) as schema, opened(url, schema, pooled=pooled) as store:
        for queue in ("q", "r"):
            await store.configure(
                queue, QueueSettings(max_running=RUNNING, max_per_group=PER_GROUP, keep_completed=9999)
            )
        context = warm_processes(__name__)
        responses: Pipe[tuple[str, list[str]]] = context.Queue()
        processes = [context.Process(target=insert_some, args=(url, schema, pooled)) for _ in range(2)]
        processes += [
            context.Process(target=claim_some, args=(url, schema, pooled, f"w{number}", 5 + number, responses))
            for number in range(2)
        ]
        for process in processes:
            process.start()
        watching = asyncio.create_task(watch(store))
        found = dict([await asyncio.to_thread(responses.get, True, 90) for _ in range(2)])
        for process in processes:
            await asyncio.to_thread(process.join)
        watching.cancel()
        assert [process.exitcode for process in processes] == [0] * 4
        taken = [job_id for ids in found.values() for job_id in ids]
        assert len(taken) == len(set(taken)) == 2 * JOBS
        assert await store.audit() == []
        assert [queue.completed for queue in await store.queues()] == [JOBS, JOBS]


async def watch(store: object) -> None:
    """The audit passes at any time, not only at the end."""
    while True:
        assert await store.audit() == []  # type: ignore[attr-defined]
        for queue in ("q", "r"):
            for group in await store.groups(queue):  # type: ignore[attr-defined]
                assert group.running <= PER_GROUP
        await asyncio.sleep(size(0.2, 0.05))  # it takes longer than most of what it watches


async def test_max_waiting_is_exact_with_concurrent_inserts(postgres_url: str) -> None:
    async with (
        new_schema(postgres_url) as schema,
        opened(postgres_url, schema) as store,
        opened(postgres_url, schema) as other,
    ):
        await store.configure("q", QueueSettings(max_waiting=50))

        async def one(handle: object, number: int) -> bool:
            try:
                await handle.insert([new(queue="q", group=str(number))])  # type: ignore[attr-defined]
            except QueueFull:
                return False
            return True

        results = await asyncio.gather(*(one((store, other)[number % 2], number) for number in range(120)))
        assert sum(results) == 50
        assert await store.audit() == []


async def test_one_of_many_inserts_gets_a_unique_key(postgres_url: str) -> None:
    async with (
        new_schema(postgres_url) as schema,
        opened(postgres_url, schema) as store,
        opened(postgres_url, schema) as other,
    ):
        calls = [handle.insert([new(unique=Unique("key"))]) for _ in range(20) for handle in (store, other)]
        responses = [response for [response] in await asyncio.gather(*calls)]
        [winner] = [response for response in responses if response.created]
        assert {response.id for response in responses} == {winner.id}
        assert len((await exchange(store, 5)).leases) == 1


async def test_a_rejected_insert_does_not_fail_the_others_of_its_batch(postgres_url: str) -> None:
    async with new_schema(postgres_url) as schema, opened(postgres_url, schema) as store:
        await store.configure("full", QueueSettings(max_waiting=0))
        known = new()
        await store.insert([known])
        jobs = [new(), known, new(queue="full"), new(), new(kind="\ud800")]
        responses = await asyncio.gather(*(store.insert([job]) for job in jobs), return_exceptions=True)
        assert [type(response).__name__ for response in responses] == [
            "list",
            "BadInput",
            "QueueFull",
            "list",
            "BadInput",
        ]
        assert await store.audit() == []
