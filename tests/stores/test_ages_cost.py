"""The cost of `ages` does not grow with the backlog; counted in steps, not timed."""

from __future__ import annotations

import json
from pathlib import Path

import asyncpg
from tests.servers import RedisServer
from tests.stores.postgres_support import new_schema, opened
from tests.stores.test_redis_cost import count, server
from tests.stores.test_sqlite_cost import File

from jobyard.domain.job import NewJob
from jobyard.ports.admin_store import MAX_HEADS_SCANNED
from jobyard.stores.postgres.statements import Statements
from jobyard.stores.redis import RedisStore
from jobyard.stores.sqlite.insert import insert_jobs
from jobyard.stores.sqlite.queues import ages

__all__ = ["server"]

FEW, MANY = 5, 2000


def jobs(name: str, each: int) -> list[NewJob]:
    """Return jobs of three groups and three priorities."""
    return [
        NewJob(id=f"{name}-{number}-{group}-{priority}", kind="k", queue="q", group=group, priority=priority)
        for number in range(each)
        for group in (None, "a", "b")
        for priority in (-1, 0, 7)
    ]


async def test_on_sqlite(tmp_path: Path) -> None:
    file = File(tmp_path / "jobs.db")
    spent = []
    for name, each in (("few", FEW), ("many", MANY)):
        file.write(lambda tx, name=name, each=each: insert_jobs(tx, jobs(name, each)))  # type: ignore[misc]
        spent.append(file.count(lambda tx: ages(file.connection))[1])
    assert spent[1] <= spent[0] * 1.2, spent


async def test_on_redis(server: RedisServer) -> None:
    store = RedisStore(server.url)
    await store.open()
    spent = []
    for name, each in (("warm", 1), ("few", FEW), ("many", MANY)):
        await store.insert(jobs(name, each))
        before, _ = count(server)
        await store.ages()
        spent.append(count(server)[0] - before)
    assert spent[2] <= spent[1] + 2, spent
    await store.close()


async def test_on_postgresql(postgres_url: str) -> None:
    async with new_schema(postgres_url) as schema, opened(postgres_url, schema) as store:
        connection = await asyncpg.connect(postgres_url)
        statement = Statements(schema)["ages"]
        spent = []
        for name, each in (("few", FEW), ("many", MANY)):
            await store.insert(jobs(name, each))
            await store.queues()
            await connection.execute(f'ANALYZE "{schema}".jobyard_ready, "{schema}".jobyard_job')
            [[plan]] = await connection.fetch(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", None, MAX_HEADS_SCANNED
            )
            top = json.loads(plan)[0]["Plan"]
            spent.append(top["Shared Hit Blocks"] + top["Shared Read Blocks"])
        await connection.close()
    assert spent[1] <= spent[0] * 2 + 20, spent  # the index trees are deeper
