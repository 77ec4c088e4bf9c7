"""A claim that waits in this process, and the insert that takes it along: no job may be given to nobody."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
from tests.conformance.support import LEASE_SECONDS, new
from tests.servers import PostgresServer
from tests.stores.postgres_support import connection, exchange, schema, store
from tests.support import eventually

from jobyard.domain.job import State
from jobyard.ports.job_store import Exchange
from jobyard.stores.postgres import PostgresStore
from jobyard.stores.postgres.ordering import Order, Orders

__all__ = ["connection", "schema", "store"]


class Waiting:
    """A worker's claim that found nothing."""

    def __init__(self, store: PostgresStore) -> None:
        self.until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answer = asyncio.create_task(store.exchange("w", (), (), 5, LEASE_SECONDS, self.until))

    async def end(self) -> Exchange:
        if not self.until.done():
            self.until.set_result(None)
        return await self.answer


async def parked(store: PostgresStore) -> Waiting:
    waiting = Waiting(store)
    await eventually(lambda: store._orders._waiting)
    return waiting


async def test_an_order_that_was_called_off_is_not_taken() -> None:
    """Whoever left it has yet to wake up, and would never see an answer."""
    orders = Orders()
    left, stays = (Order("w", (), 1, LEASE_SECONDS) for _ in range(2))
    orders.add(left)
    orders.add(stays)
    left.call_off()
    assert orders.take([new()]) is stays
    assert orders.take([new()]) is None


async def test_a_claim_called_off_in_the_same_turn_takes_no_job_with_it(store: PostgresStore) -> None:
    await store.insert([new()])
    await exchange(store, 1)
    for _ in range(5):
        waiting = await parked(store)
        job = new()
        waiting.until.set_result(None)  # heard in the next turn of the loop; the insert begins right behind it
        await asyncio.create_task(store.insert([job]))
        given = {lease.job_id for lease in (await waiting.answer).leases}
        found = await store.get(job.id)
        assert found is not None
        assert (found.state is State.RUNNING) == (job.id in given)
        await exchange(store, 5)


async def test_an_insert_that_is_cancelled_still_tells_the_worker(store: PostgresStore) -> None:
    await store.insert([new()])
    await exchange(store, 1)
    for turns in range(1, 9):
        waiting = await parked(store)
        job = new()
        inserting = asyncio.create_task(store.insert([job]))
        for _ in range(turns):
            await asyncio.sleep(0)
        inserting.cancel()
        await asyncio.gather(inserting, return_exceptions=True)
        if store._coach is not None:
            await store._coach.finish()
        given = {lease.job_id for lease in (await waiting.end()).leases}
        found = await store.get(job.id)
        assert found is None or (found.state is State.RUNNING) == (job.id in given)
        await exchange(store, 5)


async def test_a_bulk_joins_the_line_by_its_due_jobs(store: PostgresStore) -> None:
    later, due, after = new(group="g1", delay_seconds=1000), new(group="g2"), new(group="g1")
    await store.insert([later, due, after, *(new(group="z") for _ in range(250))])
    assert [lease.job_id for lease in (await exchange(store, 2)).leases] == [due.id, after.id]


async def test_the_straight_way_holds_the_queue_for_seconds_at_most(store: PostgresStore) -> None:
    """Behind a pooler its transaction spans several trips: a client that is frozen meanwhile must not keep the row."""
    await store.insert([new()])
    await exchange(store, 1)
    statement = store._open_parts().statements["insert_for"]
    plain = (None, "straight", "k", "default", "", 0, b"{}", 3, None, None)

    async def look(connection: Any) -> str:
        async with connection.transaction():
            assert len(await connection.fetch(statement, *plain, "w", "token", ["default"], 1, 10_000)) == 3
            return str(await connection.fetchval("SHOW idle_in_transaction_session_timeout"))

    assert await store._open_parts().pool.run(look) == "5s"


async def test_what_was_answered_survives_the_server_although_its_worker_did_not_wait_for_the_disk() -> None:
    # Nobody writes the log out for us within the test: neither in the background nor by another commit.
    with PostgresServer(wal_writer_delay="10s", autovacuum="off") as server:
        store = PostgresStore(server.url)
        await store.open()
        await store.insert([new()])
        await exchange(store, 1)
        await asyncio.sleep(0)
        waiting, job = await parked(store), new()
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


async def test_an_id_in_somebodys_open_transaction_holds_up_nobody_else(
    store: PostgresStore, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    await store.insert([new()])
    await exchange(store, 1)
    waiting, held, other = await parked(store), new(), new()
    transaction = connection.transaction()
    await transaction.start()
    await store.insert([held], transaction=connection)
    [first] = store._orders._waiting
    async with asyncio.timeout(10):
        # The same id once more: it waits for the caller's commit or rollback, alone.
        inserting = asyncio.create_task(store.insert([held]))
        await eventually(lambda: store._orders._waiting and first not in store._orders._waiting)
        await store.insert([other])
        assert [lease.job_id for lease in (await waiting.answer).leases] == [other.id]
        assert not inserting.done()
        await transaction.rollback()
        assert [one.id for one in await inserting] == [held.id]
