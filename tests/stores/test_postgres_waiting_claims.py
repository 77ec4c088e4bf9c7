"""A waiting claim and the insert that serves it: no job may be leased to a claim that is gone."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import asyncpg
from tests.conformance.support import LEASE_SECONDS, new
from tests.servers import PostgresServer
from tests.stores.postgres_support import connection, exchange, schema, store
from tests.support import eventually

from jobyard.domain.job import State
from jobyard.ports.job_store import Exchange
from jobyard.stores.postgres import PostgresStore
from jobyard.stores.postgres.codec import ClaimRequest, PlainJob
from jobyard.stores.postgres.statements import Statements
from jobyard.stores.postgres.waiting_claims import PostgresWaitingClaim, PostgresWaitingClaims

__all__ = ["connection", "schema", "store"]


class Waiting:
    """A worker's claim that found no job."""

    def __init__(self, store: PostgresStore) -> None:
        self.until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answer = asyncio.create_task(store.exchange("w", (), (), 5, LEASE_SECONDS, self.until))

    async def end(self) -> Exchange:
        if not self.until.done():
            self.until.set_result(None)
        return await self.answer


async def waiting_claim(store: PostgresStore) -> Waiting:
    waiting = Waiting(store)
    await eventually(lambda: len(store.waiting_claims))
    return waiting


async def test_a_withdrawn_claim_is_not_taken() -> None:
    """Its caller has not run yet, and would never see another answer."""
    claims = PostgresWaitingClaims()
    withdrawn, waits = (PostgresWaitingClaim("w", (), 1, LEASE_SECONDS) for _ in range(2))
    claims.add(withdrawn)
    claims.add(waits)
    withdrawn.withdraw()
    assert claims.take([new()]) is waits
    assert claims.take([new()]) is None


async def test_a_claim_withdrawn_in_the_same_turn_of_the_loop_loses_no_job(store: PostgresStore) -> None:
    await store.insert([new()])
    await exchange(store, 1)
    for _ in range(5):
        waiting = await waiting_claim(store)
        job = new()
        waiting.until.set_result(None)  # its callbacks run in the next turn of the loop, in which the insert starts
        await asyncio.create_task(store.insert([job]))
        given = {lease.job_id for lease in (await waiting.answer).leases}
        found = await store.get(job.id)
        assert found is not None
        assert (found.state is State.RUNNING) == (job.id in given)
        await exchange(store, 5)


async def test_a_cancelled_insert_still_serves_the_claim(store: PostgresStore) -> None:
    await store.insert([new()])
    await exchange(store, 1)
    for turns in range(1, 9):
        waiting = await waiting_claim(store)
        job = new()
        inserting = asyncio.create_task(store.insert([job]))
        for _ in range(turns):
            await asyncio.sleep(0)
        inserting.cancel()
        await asyncio.gather(inserting, return_exceptions=True)
        await eventually(partial(store.get, job.id))
        given = {lease.job_id for lease in (await waiting.end()).leases}
        found = await store.get(job.id)
        assert found is not None
        assert (found.state is State.RUNNING) == (job.id in given)
        await exchange(store, 5)


async def test_groups_of_a_bulk_insert_get_turns_by_their_due_jobs(store: PostgresStore) -> None:
    later, due, after = new(group="g1", delay_seconds=1000), new(group="g2"), new(group="g1")
    await store.insert([later, due, after, *(new(group="z") for _ in range(250))])
    assert [lease.job_id for lease in (await exchange(store, 2)).leases] == [due.id, after.id]


async def test_a_frozen_client_keeps_the_queue_locked_for_seconds_at_most(
    store: PostgresStore, schema: str, connection: Any
) -> None:
    """Behind a pooler the transaction of an insert with a claim spans several trips."""
    await store.insert([new()])
    await exchange(store, 1)
    job = PlainJob("straight", "k", "default", "", 0, b"{}", 3, None, None)
    request = ClaimRequest("w", "token", ["default"], 1, 10_000)
    async with connection.transaction():
        assert len(await connection.fetch(Statements(schema)["insert_for"], None, *job, *request)) == 3
        assert await connection.fetchval("SHOW idle_in_transaction_session_timeout") == "5s"


async def test_an_acknowledged_job_survives_a_server_crash_though_its_worker_did_not_wait_for_the_disk() -> None:
    # Nothing else flushes the WAL within the test: neither the background writer nor another commit.
    with PostgresServer(wal_writer_delay="10s", autovacuum="off") as server:
        store = PostgresStore(server.url)
        await store.open()
        await store.insert([new()])
        await exchange(store, 1)
        waiting, job = await waiting_claim(store), new()
        await store.insert([job])
        server.kill()
        assert [lease.job_id for lease in (await waiting.answer).leases] == [job.id]
        await store.close()
        server.start()
        store = PostgresStore(server.url)
        await store.open()
        found = await store.get(job.id)
        await store.close()
    assert found is not None
    assert found.state is State.RUNNING


async def test_an_id_in_an_open_transaction_blocks_no_other_insert(
    store: PostgresStore, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    await store.insert([new()])
    await exchange(store, 1)
    waiting, held, other = await waiting_claim(store), new(), new()
    transaction = connection.transaction()
    await transaction.start()
    await store.insert([held], transaction=connection)
    async with asyncio.timeout(60):
        # The same id again: this insert alone waits for the caller's commit or rollback.
        inserting = asyncio.create_task(store.insert([held]))
        await eventually(lambda: not len(store.waiting_claims))  # it takes the claim, which then waits anew
        await eventually(lambda: len(store.waiting_claims))
        await store.insert([other])
        assert [lease.job_id for lease in (await waiting.answer).leases] == [other.id]
        assert not inserting.done()
        await transaction.rollback()
        assert [one.id for one in await inserting] == [held.id]
