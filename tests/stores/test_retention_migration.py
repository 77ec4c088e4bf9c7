"""Queues of earlier schemas: an age that was set on purpose stays, all others get the present defaults."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import asyncpg
from tests.servers import RedisServer
from tests.stores.postgres_support import new_schema, opened
from tests.stores.redis_support import server  # noqa: F401

from jobyard.domain.job import QueueSettings
from jobyard.ports.store import Store
from jobyard.stores.postgres import schema as postgres_schema
from jobyard.stores.postgres.statements import Statements
from jobyard.stores.postgres.statements import migrations as postgres_migrations
from jobyard.stores.redis import RedisStore
from jobyard.stores.sqlite import SqliteStore, database_file
from jobyard.stores.sqlite.schema import migrations as sqlite_migrations
from jobyard.stores.sqlite.schema import schema_version

# The age of finished jobs in seconds, by queue; 0 was the default.
AGES = {"default": 0.0, "mail": 60.0, "slow": 1_209_600.0}
BEFORE = {"max_running": 7, "keep_completed": 3, "keep_failed": 4}


def expected(age: float) -> QueueSettings:
    ages = {"keep_completed_seconds": age, "keep_failed_seconds": age} if age else {}
    return QueueSettings(**BEFORE, **ages)  # type: ignore[arg-type]


async def check(store: Store, counts: Mapping[str, int]) -> None:
    found = {info.name: info for info in await store.queues()}
    assert {name: info.settings for name, info in found.items()} == {name: expected(age) for name, age in AGES.items()}
    assert {name: info.completed for name, info in found.items()} == counts
    assert {(info.removed_by_cap, info.removed_by_cap_at) for info in found.values()} == {(0, None)}
    await store.configure("default", QueueSettings(keep_failed_seconds=1.5, keep_at_most=9))
    [changed] = [info for info in await store.queues() if info.name == "default"]
    assert changed.settings == QueueSettings(keep_failed_seconds=1.5, keep_at_most=9)


async def test_a_sqlite_file_of_the_earlier_schema(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    before = [step for step in sqlite_migrations() if step[1] != "retention"]
    with closing(database_file.connect(path, "NORMAL", writer=True)) as old:
        database_file.begin(old)
        schema_version(old)
        for number, _, text in before[:3]:
            for statement in text.split(";\n"):
                old.execute(statement)
            old.execute("UPDATE jobyard_schema SET version = ?", (number,))
        for name, age in AGES.items():
            old.execute(
                "INSERT INTO jobyard_queue VALUES (?, 7, NULL, NULL, NULL, 3, 4, ?, 0, 0, 0, 0, 0, 0, 0, 0)",
                (name, age),
            )
        old.execute("COMMIT")
    store = SqliteStore(path)
    await store.open()
    await check(store, dict.fromkeys(AGES, 0))
    assert await store.audit() == []
    await store.close()


async def test_a_postgresql_schema_of_the_earlier_version(postgres_url: str) -> None:
    async with new_schema(postgres_url) as schema:
        connection = await asyncpg.connect(postgres_url)
        try:
            for number, _, text in postgres_migrations()[:5]:
                await connection.execute(postgres_schema.script(number, text, Statements(schema)))
            await connection.executemany(
                f"INSERT INTO {schema}.jobyard_queue (name, max_running, keep_completed, keep_failed, keep_seconds)"
                " VALUES ($1, 7, 3, 4, $2)",
                list(AGES.items()),
            )
        finally:
            await connection.close()
        async with opened(postgres_url, schema) as store:
            await check(store, dict.fromkeys(AGES, 0))
            assert await store.audit() == []


async def test_rows_of_the_earlier_redis_schema(server: RedisServer) -> None:  # noqa: F811
    """Also one that a process of the earlier version has written after the upgrade, with the new default age."""
    store = RedisStore(server.url, prefix="older")
    await store.open()
    for name in AGES:
        await store.configure(name, QueueSettings())
    for name, age in AGES.items():
        row = (7, -1, -1, -1, 3, 4, age * 1000, 0, 0, 0, 0, 0, 0, 0, 0)
        await store.client.execute("SET", f"older:{{{name}}}:queue", struct.pack(">15d", *row))
    await check(store, dict.fromkeys(AGES, 0))
    await store.client.execute("SET", "older:{mail}:queue", struct.pack(">15d", *row[:6], 3_600_000.0, *row[7:]))
    [mail] = [info for info in await store.queues() if info.name == "mail"]
    assert mail.settings == expected(0)
    await store.close()
