"""A handler completes its job in a transaction of its own: effects and completion together, or neither."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support import Events, eventually

from jobyard import Context, Jobyard
from jobyard.domain import events as e
from jobyard.domain.job import State
from jobyard.errors import JobFailed, LeaseLost, NotPossible
from jobyard.operations.queries import Queries


class Shop:
    """An application's own table, in the same file as the jobs."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("CREATE TABLE IF NOT EXISTS sent (id INTEGER PRIMARY KEY)")

    def sent(self) -> int:
        [count] = self.connection.execute("SELECT count(*) FROM sent").fetchone()
        return int(count)


@pytest.fixture
async def yard(tmp_path: Path, events: Events) -> AsyncIterator[Jobyard]:
    async with Jobyard(f"sqlite:///{tmp_path}/jobs.db", observer=events) as yard:
        yield yard
        assert await yard.store.audit() == []


@pytest.fixture
def shop(yard: Jobyard, tmp_path: Path) -> Shop:
    return Shop(tmp_path / "jobs.db")


async def test_effects_and_completion_come_together(yard: Jobyard, shop: Shop, events: Events) -> None:
    after_commit = asyncio.Event()

    @yard.job(transactional=True)
    async def send(ctx: Context, number: int) -> int:
        shop.connection.execute("BEGIN IMMEDIATE")
        shop.connection.execute("INSERT INTO sent VALUES (?)", (number,))
        await ctx.complete(number * 2, transaction=shop.connection)
        shop.connection.execute("COMMIT")
        await after_commit.wait()
        return 0  # not used

    # A lease that is renewed several times after the commit: its absence must not look like a loss.
    async with yard.worker(lease=0.6):
        handle = await send.enqueue(7)
        assert await handle.result(60) == 14
        await asyncio.sleep(1.0)
        after_commit.set()
        await eventually(lambda: events.of(e.JobSettled))
    assert shop.sent() == 1
    [settled] = events.of(e.JobSettled)
    assert settled.to is State.COMPLETED
    assert events.of(e.SettlementRefused) == []
    assert events.of(e.JobLeaseLost) == []


async def test_a_rollback_takes_the_completion_back(yard: Jobyard, shop: Shop) -> None:
    runs = 0

    @yard.job(transactional=True, backoff=0.01)
    async def send(ctx: Context) -> None:
        nonlocal runs
        runs += 1
        shop.connection.execute("BEGIN IMMEDIATE")
        shop.connection.execute("INSERT INTO sent VALUES (1)")
        await ctx.complete(runs, transaction=shop.connection)
        shop.connection.execute("ROLLBACK" if runs == 1 else "COMMIT")

    async with yard.worker():
        handle = await send.enqueue()
        assert await Queries(yard.store).result(handle.id, 60) == b"2"
    assert shop.sent() == 1
    [error] = (await handle.info()).errors
    assert error.type == "NotCommitted"


async def test_an_error_after_the_commit_changes_nothing(yard: Jobyard, shop: Shop) -> None:
    @yard.job(transactional=True)
    async def send(ctx: Context) -> None:
        shop.connection.execute("BEGIN IMMEDIATE")
        await ctx.complete("sent", transaction=shop.connection)
        shop.connection.execute("COMMIT")
        raise RuntimeError("too late to matter")

    async with yard.worker():
        handle = await send.enqueue()
        assert await Queries(yard.store).result(handle.id, 60) == b'"sent"'
    assert (await handle.info()).errors == ()


async def test_an_error_before_the_commit_is_an_error(yard: Jobyard, shop: Shop) -> None:
    @yard.job(transactional=True, max_attempts=1)
    async def send(ctx: Context) -> None:
        shop.connection.execute("BEGIN IMMEDIATE")
        shop.connection.execute("INSERT INTO sent VALUES (1)")
        await ctx.complete(transaction=shop.connection)
        shop.connection.execute("ROLLBACK")
        raise RuntimeError("no connection to the printer")

    async with yard.worker():
        handle = await send.enqueue()
        with pytest.raises(JobFailed, match="printer"):
            await handle.result(60)
    assert shop.sent() == 0


async def test_a_lost_lease_cannot_complete(yard: Jobyard, shop: Shop) -> None:
    refused: list[LeaseLost] = []

    @yard.job(transactional=True)
    async def send(ctx: Context) -> None:
        # As if another worker held it now.
        shop.connection.execute("UPDATE jobyard_lease SET token = 'stolen'")
        shop.connection.execute("BEGIN IMMEDIATE")
        try:
            await ctx.complete(transaction=shop.connection)
        except LeaseLost as error:
            refused.append(error)
            shop.connection.execute("ROLLBACK")
            raise

    async with yard.worker(lease=60):
        handle = await send.enqueue()
        await eventually(lambda: refused)
    assert (await handle.info()).state is State.RUNNING


async def test_only_a_kind_that_says_so_may(yard: Jobyard, shop: Shop) -> None:
    @yard.job(max_attempts=1)
    async def send(ctx: Context) -> None:
        await ctx.complete(transaction=shop.connection)

    async with yard.worker():
        with pytest.raises(JobFailed, match="transactional=True"):
            await (await send.enqueue()).result(60)


async def test_a_store_without_transactions_refuses_at_the_start() -> None:
    yard = Jobyard("memory://")

    @yard.job(transactional=True)
    async def send(ctx: Context) -> None: ...

    async with yard:
        with pytest.raises(NotPossible, match=r"send: a transactional handler needs .* memory:// has none"):
            yard.worker()
