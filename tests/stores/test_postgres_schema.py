"""Migrations add up to the schema, are safe from several processes at once, and keep existing data."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from tests.conformance.support import new
from tests.stores.postgres_support import exchange, new_schema, opened, warm_processes

from jobyard.errors import NewerSchema, StoreUnavailable
from jobyard.stores.postgres import PostgresStore
from jobyard.stores.postgres.schema import script
from jobyard.stores.postgres.statements import Statements, functions, migrations

CATALOG = """
SELECT 'column', c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' '
  || coalesce(pg_get_expr(d.adbin, d.adrelid), '') || ' ' || coalesce(array_to_string(c.reloptions, ','), '')
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = $1::regnamespace AND c.relkind IN ('r', 'S')
UNION ALL
SELECT 'index', c.relname, pg_get_indexdef(c.oid) FROM pg_class c
WHERE c.relnamespace = $1::regnamespace AND c.relkind = 'i'
UNION ALL
SELECT 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid) FROM pg_proc p
WHERE p.pronamespace = $1::regnamespace
ORDER BY 1, 2
"""


async def catalog(connection: asyncpg.Connection[asyncpg.Record], schema: str) -> list[tuple[str, ...]]:
    return [tuple(str(part).replace(schema, "") for part in row) for row in await connection.fetch(CATALOG, schema)]


async def test_the_numbered_migrations_add_up_to_the_schema(postgres_url: str) -> None:
    async with new_schema(postgres_url) as fresh, new_schema(postgres_url) as stepped:
        async with opened(postgres_url, fresh) as store:
            assert all(migration.applied for migration in await store.migrations())
        connection = await asyncpg.connect(postgres_url)
        try:
            for number, _, text in migrations():
                await connection.execute(script(number, text, Statements(stepped)))
            assert await catalog(connection, fresh) == await catalog(connection, stepped)
            known = {row[1] for row in await catalog(connection, fresh) if row[0] == "function"}
        finally:
            await connection.close()
        assert len(known) == functions().count("CREATE OR REPLACE FUNCTION")
        async with opened(postgres_url, stepped) as store:
            assert await store.audit() == []


async def test_data_of_the_first_schema_is_kept(postgres_url: str) -> None:
    async with new_schema(postgres_url) as schema, new_schema(postgres_url) as fresh:
        connection = await asyncpg.connect(postgres_url)
        try:
            await connection.execute(f"CREATE SCHEMA {schema}")
            await connection.execute(f"CREATE TABLE {schema}.jobyard_schema (version int PRIMARY KEY)")
            await connection.execute(Statements(schema).qualify(migrations()[0][2]))
            # Those of its functions that were removed since, or have other parameters.
            await connection.execute(f"""
                INSERT INTO {schema}.jobyard_schema VALUES (1);
                CREATE FUNCTION {schema}.jobyard_fire(text, bigint) RETURNS void LANGUAGE sql AS '';
                CREATE FUNCTION {schema}.jobyard_hold(text[], bigint, boolean) RETURNS void LANGUAGE sql AS '';
                CREATE FUNCTION {schema}.jobyard_fold(text, bigint) RETURNS void LANGUAGE sql AS '';
                CREATE FUNCTION {schema}.jobyard_fold_in_steps(text, bigint) RETURNS void LANGUAGE sql AS '';
                INSERT INTO {schema}.jobyard_fired VALUES ('nightly', 1000, 'job');
                INSERT INTO {schema}.jobyard_log VALUES ('changes', 1, 1, 'first'), ('changes', 2, 2, 'second')""")
            async with opened(postgres_url, schema) as store, opened(postgres_url, fresh):
                assert await store.append("changes", b"third") == 3
                assert [entry.number for entry in await store.read("changes", after=1)] == [2, 3]
                assert await store.audit() == []
            assert await catalog(connection, schema) == await catalog(connection, fresh)
        finally:
            await connection.close()


async def test_listing_migrations_changes_nothing(postgres_url: str) -> None:
    async with new_schema(postgres_url) as schema:
        store = PostgresStore(postgres_url, schema=schema)
        assert [migration.applied for migration in await store.migrations()] == [False] * len(migrations())
        connection = await asyncpg.connect(postgres_url)
        assert await connection.fetchval("SELECT to_regnamespace($1)", schema) is None
        await connection.close()


def open_once(url: str, schema: str) -> None:
    async def main() -> None:
        async with opened(url, schema, connections=1):
            pass

    asyncio.run(main())


async def test_several_processes_can_open_at_once(postgres_url: str) -> None:
    async with new_schema(postgres_url) as schema:
        context = warm_processes(__name__)
        processes = [context.Process(target=open_once, args=(postgres_url, schema)) for _ in range(4)]
        for process in processes:
            process.start()
        await asyncio.gather(*(asyncio.to_thread(process.join) for process in processes))
        assert [process.exitcode for process in processes] == [0] * 4
        async with opened(postgres_url, schema) as store:
            assert all(migration.applied for migration in await store.migrations())


async def test_a_newer_schema_is_rejected(postgres_url: str) -> None:
    async with new_schema(postgres_url) as schema:
        async with opened(postgres_url, schema):
            pass
        connection = await asyncpg.connect(postgres_url)
        await connection.execute(f"INSERT INTO {schema}.jobyard_schema VALUES (9999)")
        await connection.close()
        store = PostgresStore(postgres_url, schema=schema)
        with pytest.raises(NewerSchema):
            await store.open()
        with pytest.raises(NewerSchema):
            await store.migrations()


async def test_a_connection_error_names_the_server_without_its_password() -> None:
    store = PostgresStore("postgresql://me:hidden@127.0.0.1:1/jobs")
    with pytest.raises(StoreUnavailable) as caught:
        await store.open()
    assert "127.0.0.1:1" in str(caught.value)
    assert "hidden" not in str(caught.value)
    await store.close()


async def test_cursors_of_another_server_are_reset(postgres_url: str) -> None:
    """A restored dump has a cursor over transaction ids that the new server has not reached: it must not hide jobs."""
    async with new_schema(postgres_url) as schema:
        async with opened(postgres_url, schema) as store:
            await store.insert([new()])
        connection = await asyncpg.connect(postgres_url)
        await connection.execute(f"UPDATE {schema}.jobyard_queue SET inbox_from = 1000000000000")
        await connection.close()
        async with opened(postgres_url, schema) as store:
            await store.insert([new()])
            assert len((await exchange(store, 5)).leases) == 2
            assert await store.audit() == []
