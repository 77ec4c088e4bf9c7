"""A caller's transaction by psycopg: as Django and synchronous SQLAlchemy programs have one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from tests.conformance.support import new
from tests.stores.postgres_support import done, exchange, opened, used_schema

from jobyard.domain.job import QueueSettings, State, Unique
from jobyard.errors import BadInput, LeaseLost, NotPossible, QueueFull
from jobyard.executors.python.caller_transaction import driver_connection
from jobyard.stores.postgres import PostgresStore

__all__ = ["used_schema"]


@pytest.fixture
async def store(postgres_url: str, used_schema: str) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_url, used_schema) as store:
        yield store
        assert await store.audit() == []


@pytest.fixture
def connection(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url) as connection:
        yield connection
        connection.rollback()


async def test_jobs_come_with_the_commit_and_go_with_the_rollback(
    store: PostgresStore, connection: psycopg.Connection[Any]
) -> None:
    job = new(group="a", unique=Unique("key"), tags=("x", "y"), timeout_seconds=5.0, delay_seconds=1.0)
    await store.insert([job], connection)
    connection.rollback()
    assert await store.get(job.id) is None
    await store.insert([job, new(), new(queue="mail")], connection)
    assert await store.get(job.id) is None
    connection.commit()
    stored = await store.get(job.id)
    assert stored is not None
    assert (stored.group, stored.tags, stored.timeout_seconds, stored.unique_key) == ("a", ("x", "y"), 5.0, "key")


async def test_a_rejected_insert_keeps_the_changes_of_the_caller(
    store: PostgresStore, connection: psycopg.Connection[Any]
) -> None:
    [known] = await store.insert([new()])
    await store.configure("small", QueueSettings(max_waiting=0))
    connection.execute("CREATE TEMPORARY TABLE effects AS SELECT 1")
    with pytest.raises(BadInput, match=known.id):
        await store.insert([new(id=known.id)], connection)
    with pytest.raises(QueueFull):
        await store.insert([new(queue="small")], connection)
    connection.commit()
    assert connection.execute("SELECT count(*) FROM effects").fetchone() == (1,)


async def test_a_job_is_completed_with_the_commit(store: PostgresStore, connection: psycopg.Connection[Any]) -> None:
    await store.insert([new()])
    [lease] = (await exchange(store, 1)).leases
    await store.settle(done(lease), connection)
    connection.commit()
    ended = await store.get(lease.job_id)
    assert ended is not None
    assert ended.state is State.COMPLETED
    with pytest.raises(LeaseLost):
        await store.settle(done(lease), connection)


async def test_a_connection_without_a_transaction_is_refused(
    store: PostgresStore, connection: psycopg.Connection[Any]
) -> None:
    connection.autocommit = True
    with pytest.raises(NotPossible, match="no open transaction"):
        await store.insert([new()], connection)


async def test_a_session_of_sqlalchemy(store: PostgresStore, postgres_url: str) -> None:
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    job = new()
    with Session(engine) as session, session.begin():
        session.execute(text("SELECT 1"))
        await store.insert([job], driver_connection(session))
        assert await store.get(job.id) is None
    assert await store.get(job.id) is not None
    engine.dispose()
