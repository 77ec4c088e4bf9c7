"""A handler's own PostgreSQL transaction: by asyncpg and by SQLAlchemy, and while it is open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from tests.story.engines import empty_store
from tests.support import Events, eventually

from jobyard import Context, Jobyard
from jobyard.domain import events as e
from jobyard.domain.job import State
from jobyard.operations.queries import Queries

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
async def yard(tmp_path: Path, events: Events) -> AsyncIterator[Jobyard]:
    with empty_store("postgres", tmp_path, may_be_used=True) as url:
        async with Jobyard(url, observer=events) as yard:
            yield yard
            assert await yard.store.audit() == []


@pytest.fixture
async def shop(yard: Jobyard, postgres_url: str) -> AsyncIterator[Connection]:
    connection: Connection = await asyncpg.connect(postgres_url)
    await connection.execute("CREATE TABLE IF NOT EXISTS sent (number integer)")
    await connection.execute("DELETE FROM sent")
    yield connection
    await connection.close()


@pytest.fixture
async def engine(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(postgres_url.replace("postgresql://", "postgresql+asyncpg://"))
    yield engine
    await engine.dispose()


async def sent(shop: Connection) -> int:
    count: int = await shop.fetchval("SELECT count(*) FROM sent")
    return count


async def test_asyncpg(yard: Jobyard, shop: Connection, postgres_url: str, events: Events) -> None:
    @yard.job(transactional=True)
    async def send(ctx: Context, number: int) -> int:
        connection: Any = await asyncpg.connect(postgres_url)
        try:
            async with connection.transaction():
                await connection.execute("INSERT INTO sent VALUES ($1)", number)
                await ctx.complete(number * 2, transaction=connection)
        finally:
            await connection.close()
        return number * 2

    async with yard.worker(concurrency=4):
        handles = [await send.enqueue(number) for number in range(10)]
        assert [await handle.result(60) for handle in handles] == [2 * number for number in range(10)]
        await eventually(lambda: len(events.of(e.JobSettled)) == 10)
    assert await sent(shop) == 10
    assert {event.to for event in events.of(e.JobSettled)} == {State.COMPLETED}
    assert events.of(e.SettlementRefused) == []


async def test_a_rollback_takes_both_back(yard: Jobyard, shop: Connection, engine: AsyncEngine) -> None:
    runs = 0

    @yard.job(transactional=True, backoff=0.01)
    async def send(ctx: Context) -> None:
        nonlocal runs
        runs += 1
        async with AsyncSession(engine) as session:
            await session.execute(text("INSERT INTO sent VALUES (1)"))
            await ctx.complete(transaction=session)
            await (session.rollback() if runs == 1 else session.commit())

    async with yard.worker():
        handle = await send.enqueue()
        await handle.result(60)
    assert await sent(shop) == 1
    assert [error.type for error in (await handle.info()).errors] == ["NotCommitted"]


async def test_an_open_transaction_does_not_block_other_jobs(
    yard: Jobyard, shop: Connection, engine: AsyncEngine
) -> None:
    """Not the queue's other jobs, not the renewal of leases, not the counts."""
    gate = asyncio.Event()

    @yard.job(transactional=True)
    async def slow(ctx: Context) -> None:
        async with engine.begin() as connection:
            await connection.execute(text("INSERT INTO sent VALUES (1)"))
            await ctx.complete(transaction=connection)
            await gate.wait()

    @yard.job()
    async def other(ctx: Context, number: int) -> int:
        await asyncio.sleep(0.05)
        return number

    async with yard.worker(concurrency=4, lease=0.9):
        first = await slow.enqueue()
        for number in range(25):  # longer than a lease
            assert await (await other.enqueue(number)).result(60) == number
        assert (await first.info()).state is State.RUNNING
        gate.set()
        await first.result(60)
    job = await first.info()
    assert (job.state, job.deaths, job.errors) == (State.COMPLETED, 0, ())
    assert await sent(shop) == 1


async def test_enqueued_in_the_handlers_transaction(yard: Jobyard, shop: Connection, engine: AsyncEngine) -> None:
    """A step and the next one: the second exists if and only if the first is done."""

    @yard.job()
    async def second(ctx: Context, number: int) -> int:
        return number + 1

    ids: list[str] = []

    @yard.job(transactional=True)
    async def first(ctx: Context, number: int) -> None:
        async with AsyncSession(engine) as session, session.begin():
            ids.append((await second.options(transaction=session).enqueue(number)).id)
            await ctx.complete(transaction=session)

    async with yard.worker():
        await (await first.enqueue(1)).result(60)
        assert await Queries(yard.store).result(ids[0], 60) == b"2"
