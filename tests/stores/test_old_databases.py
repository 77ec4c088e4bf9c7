"""Databases that an older version wrote are migrated with their jobs in flight, and go on.

The files in `old` are the rows and keys that the version before workflow histories (SQLite 2, PostgreSQL 4, Redis 2)
left behind when a worker was killed at work.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import asyncpg
import pytest
from tests.servers import RedisServer
from tests.stores.postgres_support import new_schema
from tests.stores.redis_support import server

from jobyard import Context, Jobyard
from jobyard.domain.job import State
from jobyard.errors import JobFailed
from jobyard.stores.postgres.schema import script
from jobyard.stores.postgres.statements import Statements
from jobyard.stores.postgres.statements import migrations as postgres_migrations
from jobyard.stores.sqlite import database_file
from jobyard.stores.sqlite.schema import migrations as sqlite_migrations
from jobyard.stores.sqlite.schema import schema_version

__all__ = ["server"]

OLD = Path(__file__).with_name("old")
Ids = dict[str, str]


def read_sql(name: str) -> tuple[Ids, str]:
    """The ids are a comment in the first line."""
    first, _, rest = (OLD / name).read_text("utf-8").partition("\n")
    return json.loads(first.removeprefix("-- ")), rest


def old_sqlite(path: Path) -> Ids:
    ids, rows = read_sql("sqlite-2.sql")
    with closing(database_file.connect(path, "NORMAL", writer=True)) as old:
        database_file.begin(old)
        schema_version(old)
        for _, _, text in sqlite_migrations()[:2]:
            for statement in text.split(";\n"):
                old.execute(statement)
        old.execute("UPDATE jobyard_schema SET version = 2")
        old.execute("DELETE FROM jobyard_counter")  # its only row is in the file
        old.execute("COMMIT")
        old.executescript(rows)
    return ids


async def old_postgres(url: str, schema: str) -> Ids:
    ids, rows = read_sql("postgres-4.sql")
    connection = await asyncpg.connect(url)
    try:
        for number, _, text in postgres_migrations()[:4]:
            await connection.execute(script(number, text, Statements(schema)))
        # What the migrations themselves wrote is in the file, too.
        written = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
        for (table,) in written:
            if table != "jobyard_schema":
                await connection.execute(f"DELETE FROM {schema}.{table}")
        await connection.execute(rows.replace("{schema}", schema))
    finally:
        await connection.close()
    return ids


def old_redis(server: RedisServer) -> Ids:
    import redis  # noqa: PLC0415  # an extra

    old = json.loads((OLD / "redis-2.json").read_text("utf-8"))
    with closing(redis.Redis.from_url(server.url)) as client:
        client.flushall()
        for command, *words in old["commands"]:
            client.execute_command(command, *map(base64.b64decode, words))  # type: ignore[no-untyped-call]
    ids: Ids = old["ids"]
    return ids


@asynccontextmanager
async def old_store(name: str, request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[tuple[str, Ids]]:
    if name == "sqlite":
        path = folder / "jobs.db"
        yield f"sqlite:///{path}", old_sqlite(path)
    elif name == "redis":
        server = request.getfixturevalue("server")
        yield server.url, old_redis(server)
    else:
        url = request.getfixturevalue("postgres_url")
        async with new_schema(url) as schema:
            mark = "&" if "?" in url else "?"
            yield f"{url}{mark}schema={schema}", await old_postgres(url, schema)


def application(url: str, done: list[str]) -> Jobyard:
    """As the old version ran it."""
    yard = Jobyard(url)
    yard.queue("mail", max_running=10, max_per_group=1, keep_failed=7)
    yard.queue("slow")

    @yard.job(queue="mail")
    async def send(ctx: Context, to: str) -> dict[str, str]:
        done.append(to)
        return {"to": to}

    @yard.job(queue="mail", max_attempts=1)
    async def fail(ctx: Context) -> None:
        raise ValueError("no way")

    @yard.job(queue="slow")
    async def hang(ctx: Context, name: str) -> str:
        done.append(name)
        return name

    return yard


async def states(yard: Jobyard, ids: Ids) -> dict[str, str]:
    return {name: str((await yard.get(job_id)).state) for name, job_id in ids.items()}


@pytest.mark.parametrize("name", ["sqlite", "postgres", "redis"])
async def test_jobs_of_an_older_version_go_on(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    async with old_store(name, request, tmp_path) as (url, ids):
        done: list[str] = []
        yard = application(url, done)
        before = await yard.store.migrations()
        assert not before[-1].applied, "it is old"
        async with yard:
            assert all(each.applied for each in await yard.store.migrations())
            assert await yard.store.audit() == []
            assert await states(yard, ids) == {
                "completed": "COMPLETED",
                "dead": "FAILED",
                "low": "PENDING",
                "high": "PENDING",
                "unique": "PENDING",
                "delayed": "PENDING",
                "cancelled": "CANCELLED",
                "running": "RUNNING",
            }
            await check_records(yard, ids)
            async with yard.worker(concurrency=1, lease=1):
                for job in ("low", "high", "unique", "running"):
                    await yard.job_handle(ids[job]).result(60)
                handle = yard.job_handle(ids["dead"])
                await handle.retry()
                with pytest.raises(JobFailed):
                    await handle.result(60)
            assert done.index("high") < done.index("low"), "priority and place are kept"
            assert sorted(done) == ["high", "in flight", "low", "unique"], "each ran once; the delayed one waits"
            running = await yard.get(ids["running"])
            assert (running.state, running.deaths) == (State.COMPLETED, 1)
            assert (await yard.get(ids["delayed"])).state is State.PENDING
            assert await yard.store.audit() == []


async def check_records(yard: Jobyard, ids: Ids) -> None:
    """What the old version wrote is readable: results, errors, logs, limits, unique keys, schedules."""
    assert await yard.job_handle(ids["completed"]).result(60) == {"to": "done"}
    dead = await yard.get(ids["dead"])
    assert (dead.reason, [error.type for error in dead.errors]) == ("no way", ["ValueError"])
    [group] = [each async for each in yard.groups("mail") if each.name == "team-b"]
    assert group.limit == 3
    assert [schedule.name async for schedule in yard.schedules()] == ["nightly"]
    held = await yard.enqueue("send", {"to": "again"}, unique="nightly")
    assert held.id == ids["unique"]


async def test_processes_that_start_together_migrate_once(tmp_path: Path) -> None:
    """A deployment starts several workers on the old file at the same time."""
    path = tmp_path / "jobs.db"
    old_sqlite(path)
    yards = [Jobyard(f"sqlite:///{path}") for _ in range(4)]
    await asyncio.gather(*(yard.open() for yard in yards))
    for yard in yards:
        await yard.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version FROM jobyard_schema").fetchall() == [(sqlite_migrations()[-1][0],)]
        assert connection.execute("SELECT count(*) FROM jobyard_lease").fetchone() == (1,)
