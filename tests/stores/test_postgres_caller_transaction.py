"""The caller's own transaction: jobs inserted and settled in it count when it commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from tests.conformance.support import new
from tests.stores.postgres_support import done, exchange, new_schema, opened, used_schema

from jobyard.domain.job import QueueSettings, State, Unique
from jobyard.domain.lease import Lease
from jobyard.domain.outcome import Failed, Release, Snooze
from jobyard.errors import BadInput, LeaseLost, NotPossible, QueueFull, StoreUnavailable
from jobyard.stores.postgres import PostgresStore

__all__ = ["used_schema"]


@pytest.fixture(params=["direct", "pooled"])
async def store(
    request: pytest.FixtureRequest, postgres_url: str, pgbouncer_url: str, used_schema: str
) -> AsyncIterator[PostgresStore]:
    url = pgbouncer_url if request.param == "pooled" else postgres_url
    async with opened(url, used_schema, pooled=request.param == "pooled") as store:
        yield store
        assert await store.audit() == []


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("CREATE TEMPORARY TABLE effects (what text)")
    yield connection
    await connection.close()


@pytest.fixture
async def engine(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(postgres_url.replace("postgresql://", "postgresql+asyncpg://"))
    yield engine
    await engine.dispose()


async def running(store: PostgresStore, **options: Any) -> Lease:
    await store.insert([new(**options)])
    [lease] = (await exchange(store, 1)).leases
    return lease


async def test_jobs_appear_with_the_commit(store: PostgresStore, connection: Any) -> None:
    job = new(group="a")
    async with connection.transaction():
        [response] = await store.insert([job], connection)
        assert response.created
        assert await store.get(job.id) is None
        assert (await exchange(store, 1)).leases == ()
    assert [lease.job_id for lease in (await exchange(store, 1)).leases] == [job.id]


async def test_jobs_disappear_with_the_rollback(store: PostgresStore, connection: Any) -> None:
    job = new(unique=Unique("key"))
    transaction = connection.transaction()
    await transaction.start()
    await store.insert([job], connection)
    await transaction.rollback()
    assert await store.get(job.id) is None
    assert (await exchange(store, 1)).leases == ()
    assert (await store.insert([new(unique=Unique("key"))]))[0].created


async def test_a_commit_wakes_waiters(store: PostgresStore, connection: Any) -> None:
    async with connection.transaction():
        await store.insert([new()], connection)
        waiting = asyncio.create_task(store.wait_for_work(["default"], 30))
        await asyncio.sleep(0)
    assert await waiting


async def test_an_open_transaction_blocks_no_other_call(store: PostgresStore, connection: Any) -> None:
    lease = await running(store, group="a")
    async with connection.transaction():
        await store.insert([new(group="a")], connection)
        await store.settle(done(lease), connection)
        # Insert, claim, settle, renew, reclaim, prune: none waits for the caller's commit.
        async with asyncio.timeout(60):
            other = await running(store, group="a")
            await exchange(store, 0, [done(other)])
            assert (await store.extend("w", [lease.key], 30.0)).lost == ()
            assert await store.reclaim() == []
            await store.prune()
    assert [one.group for one in (await exchange(store, 5)).leases] == ["a"]


async def test_a_queue_is_not_removed_under_an_open_transaction(store: PostgresStore, connection: Any) -> None:
    await store.configure("mail", QueueSettings())
    async with connection.transaction():
        await store.insert([new(id="a", queue="mail")], connection)
        removing = asyncio.ensure_future(store.remove_queue("mail"))
        await asyncio.wait([removing], timeout=0.05)
        assert not removing.done() or removing.exception() is not None
    with pytest.raises((NotPossible, StoreUnavailable)):
        await removing
    with pytest.raises(NotPossible):
        await store.remove_queue("mail")
    assert [info.name for info in await store.queues()] == ["mail"]


async def test_a_rejected_insert_keeps_the_changes_of_the_caller(store: PostgresStore, connection: Any) -> None:
    known = (await running(store)).job_id
    await store.configure("small", QueueSettings(max_waiting=0))
    async with connection.transaction():
        await connection.execute("INSERT INTO effects VALUES ('kept')")
        with pytest.raises(BadInput):
            await store.insert([new(id=known)], connection)
        with pytest.raises(QueueFull):
            await store.insert([new(queue="small")], connection)
    assert await connection.fetchval("SELECT count(*) FROM effects") == 1


@pytest.mark.parametrize("session", [False, True], ids=["connection", "session"])
async def test_sqlalchemy(store: PostgresStore, engine: AsyncEngine, session: bool) -> None:
    lease, job = await running(store), new()
    async with AsyncSession(engine) if session else engine.connect() as mine:
        await mine.execute(text("SELECT 1"))
        await store.insert([new()], mine)
        await store.settle(done(lease), mine)
        await mine.rollback()
        assert (await store.get(lease.job_id) or job).state is State.RUNNING  # type: ignore[union-attr]
        await store.insert([job], mine)
        await store.settle(done(lease), mine)
        await mine.commit()
    ended = await store.get(lease.job_id)
    assert ended is not None
    assert ended.state is State.COMPLETED
    assert [one.job_id for one in (await exchange(store, 5)).leases] == [job.id]


async def test_unusable_transactions_are_rejected(store: PostgresStore, connection: Any, engine: AsyncEngine) -> None:
    with pytest.raises(NotPossible):
        await store.insert([new()], connection)
    with pytest.raises(NotPossible):
        await store.insert([new()], object())
    async with AsyncSession(engine) as session:
        with pytest.raises(NotPossible):
            await store.insert([new()], session.sync_session)


async def test_a_transaction_of_another_database_is_rejected(store: PostgresStore, postgres_url: str) -> None:
    async with new_schema(postgres_url) as schema, opened(postgres_url, schema):
        connection = await asyncpg.connect(postgres_url, database="template1")
        try:
            async with connection.transaction():
                with pytest.raises(NotPossible):
                    await store.insert([new()], connection)
        finally:
            await connection.close()


async def test_a_settlement_counts_only_with_the_commit(store: PostgresStore, connection: Any) -> None:
    await store.configure("default", QueueSettings(max_running=1))
    lease = await running(store)
    await store.insert([new()])
    transaction = connection.transaction()
    await transaction.start()
    await store.settle(done(lease), connection)
    assert (await exchange(store, 1)).leases == ()
    await transaction.rollback()
    job = await store.get(lease.job_id)
    assert job is not None
    assert job.state is State.RUNNING
    # After the rollback the same token still settles.
    assert (await exchange(store, 0, [done(lease)])).refused == ()
    assert len((await exchange(store, 1)).leases) == 1


async def test_a_private_payload_is_erased_on_completion(store: PostgresStore, connection: Any) -> None:
    await store.configure("default", QueueSettings(keep_completed=10, keep_completed_seconds=0))
    good, bad = await running(store, private_payload=b"1"), await running(store, private_payload=b"2")
    async with connection.transaction():
        await store.settle(done(good), connection)
        await store.settle(done(bad, Failed(message="no", retry=False)), connection)
    schema = store.url.rpartition("=")[2]
    rows = await connection.fetch(f"SELECT id, private_payload FROM {schema}.jobyard_job")
    assert dict(rows) == {good.job_id: None, bad.job_id: b"2"}


async def test_a_settled_job_frees_its_slot(store: PostgresStore, connection: Any) -> None:
    await store.configure("default", QueueSettings(max_running=1))
    lease = await running(store)
    await store.insert([new()])
    async with connection.transaction():
        await store.settle(done(lease), connection)
    assert len((await exchange(store, 5)).leases) == 1
    assert (await exchange(store, 0, [done(lease)])).refused == (lease.key,)


@pytest.mark.parametrize("outcome", [Failed(message="no"), Failed(message="no", retry=False), Snooze(60), Release()])
async def test_other_outcomes(store: PostgresStore, connection: Any, outcome: Any) -> None:
    lease = await running(store)
    async with connection.transaction():
        await store.settle(done(lease, outcome), connection)
    job = await store.get(lease.job_id)
    assert job is not None
    final = isinstance(outcome, Failed) and not outcome.retry
    assert job.state is (State.FAILED if final else State.PENDING)
    assert (await store.queues())[0].running == 0


async def test_a_lost_lease_raises(store: PostgresStore, connection: Any) -> None:
    lease = await running(store)
    await exchange(store, 0, [done(lease, Release())])
    async with connection.transaction():
        with pytest.raises(LeaseLost):
            await store.settle(done(lease), connection)


async def test_a_second_settlement_is_refused_while_the_transaction_is_open(
    store: PostgresStore, connection: Any
) -> None:
    lease = await running(store)
    async with connection.transaction():
        await store.settle(done(lease), connection)
        # The worker gave up on the handler while its transaction is open; the exchange must not wait for it.
        response = await exchange(store, 0, [done(lease, Failed(message="late"))])
        assert response.refused == (lease.key,)
