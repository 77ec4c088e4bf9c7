"""Schema version and migrations; when several processes migrate at once, one does and the others wait."""

from __future__ import annotations

from jobyard.errors import NewerSchema, StoreError
from jobyard.ports.store import Migration
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.statements import Statements, migrations

# Long enough to wait for another process that migrates a large database.
MIGRATE_SECONDS = 600.0
TABLE = "jobyard_schema"
# The first version with pg_current_xact_id() and pg_xact_status() on 64-bit ids.
OLDEST_SERVER = 13


async def find_schema(connection: Connection, wanted: str | None) -> str:
    """The schema of our tables: the given one, else the first of the search path."""
    if wanted is not None:
        return wanted
    present: str | None = await connection.fetchval("SELECT current_schema()")
    return present or "public"


async def version(connection: Connection, statements: Statements) -> int:
    table = f"{statements.quoted}.{TABLE}"
    if not await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", table):
        return 0
    return int(await connection.fetchval(f"SELECT coalesce(max(version), 0) FROM {table}"))  # noqa: S608  # quoted above


async def is_behind(connection: Connection, statements: Statements) -> bool:
    return await version(connection, statements) < migrations()[-1][0]


async def migrate(connection: Connection, statements: Statements, url: str) -> None:
    if connection.get_server_version().major < OLDEST_SERVER:
        raise StoreError(f"Cannot use {url}: jobyard needs PostgreSQL {OLDEST_SERVER} or later. Upgrade the server.")
    steps, table = migrations(), f"{statements.quoted}.{TABLE}"
    newest = steps[-1][0]
    present = await version(connection, statements)
    if present < newest:
        async with connection.transaction():
            # A transaction-level lock: it also works behind PgBouncer, where a session-level one could leak.
            lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
            await connection.execute(lock, f"jobyard {statements.schema}", timeout=MIGRATE_SECONDS)
            # Not IF NOT EXISTS, which fails without the right to create schemas even when the schema exists.
            if not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", statements.quoted):
                await connection.execute(f"CREATE SCHEMA {statements.quoted}")
            await connection.execute(f"CREATE TABLE IF NOT EXISTS {table} (version integer PRIMARY KEY)")
            present = await version(connection, statements)
            for number, _, text in steps:
                if present < number:
                    # One string: a migration may consist of comments, which alone are not a statement.
                    step = f"{statements.qualify(text)}\nINSERT INTO {table} VALUES ({number})"  # our own number
                    await connection.execute(step, timeout=MIGRATE_SECONDS)
    reject_newer(present, url)


def reject_newer(present: int, url: str) -> None:
    newest = migrations()[-1][0]
    if present > newest:
        raise NewerSchema(
            f"Cannot open {url}: its schema has version {present}, this jobyard knows {newest}. Upgrade jobyard."
        )


async def known_migrations(connection: Connection, statements: Statements, url: str) -> list[Migration]:
    present = await version(connection, statements)
    reject_newer(present, url)
    return [
        Migration(number, name, script(number, text, statements), number <= present)
        for number, name, text in migrations()
    ]


def script(number: int, text: str, statements: Statements) -> str:
    """All that `migrate` does, as a script for psql."""
    table = f"{statements.quoted}.{TABLE}"
    return (
        f"CREATE SCHEMA IF NOT EXISTS {statements.quoted};\n"
        f"CREATE TABLE IF NOT EXISTS {table} (version integer PRIMARY KEY);\n"
        f"{statements.qualify(text).rstrip()}\n"
        f"INSERT INTO {table} VALUES ({number});\n"  # our own number
    )
