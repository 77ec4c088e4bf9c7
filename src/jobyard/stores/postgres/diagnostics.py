"""Diagnostics of a PostgreSQL server: version, schema, durability, connections, old snapshots, dead rows."""

from __future__ import annotations

from collections.abc import AsyncIterator

from jobyard.ports.store import Finding, Level
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.schema import version
from jobyard.stores.postgres.statements import Statements, migrations

OLD_SNAPSHOT_SECONDS = 60
# More dead rows than these slow claims down; tables that are vacuumed every second have a few thousand.
MAX_DEAD, MAX_DEAD_PER_LIVE = 200_000, 2
MAX_CONNECTIONS_USED = 0.85
MEBIBYTE = 1 << 20


async def findings(connection: Connection, statements: Statements) -> list[Finding]:
    return [finding async for finding in _findings(connection, statements)]


async def _findings(connection: Connection, statements: Statements) -> AsyncIterator[Finding]:
    row = await connection.fetchrow(statements["diagnose_server"])
    assert row is not None
    name, is_read_only, fsync, commit, full_pages, used, allowed = row
    yield Finding(Level.OK, "server", f"PostgreSQL {name}")
    yield await _schema(connection, statements)
    if is_read_only:
        advice = "use the URL of the primary, or turn off default_transaction_read_only"
        yield Finding(Level.FAIL, "writable", "the server is read-only: a standby, or by its settings", advice)
    else:
        yield Finding(Level.OK, "writable", "the server accepts writes")
    yield _durability(fsync, commit, full_pages)
    yield _connections(used, allowed)
    holders = await connection.fetch(statements["diagnose_snapshots"], float(OLD_SNAPSHOT_SECONDS))
    for what, age, advice in holders:
        since = "" if age is None else f" for {age} s"
        message = f"{what} has kept VACUUM from removing dead rows{since}; claims get slower until it ends"
        yield Finding(Level.WARN, "snapshot", message, advice)
    if not holders:
        yield Finding(Level.OK, "snapshot", f"no snapshot is older than {OLD_SNAPSHOT_SECONDS} s")
    for table, live, dead, size, vacuumed in await connection.fetch(statements["diagnose_tables"], statements.schema):
        if dead > MAX_DEAD and dead > MAX_DEAD_PER_LIVE * live:
            when = "never vacuumed" if vacuumed is None else f"last vacuumed at {vacuumed:%Y-%m-%d %H:%M:%S}"
            message = f"{table} has {dead:,} dead and {live:,} live rows in {size // MEBIBYTE:,} MiB, {when}"
            yield Finding(Level.WARN, "dead rows", message, f"VACUUM {table}; check that autovacuum is on and keeps up")


async def _schema(connection: Connection, statements: Statements) -> Finding:
    present, newest = await version(connection, statements), migrations()[-1][0]
    if present == newest:
        return Finding(Level.OK, "schema", f"version {present}, up to date")
    advice = "run `jobyard migrate`" if present < newest else "upgrade jobyard"
    return Finding(Level.FAIL, "schema", f"version {present}; this jobyard needs {newest}", advice)


def _durability(fsync: str, commit: str, full_pages: str) -> Finding:
    if fsync == "off" or full_pages == "off":
        message = f"fsync is {fsync}, full_page_writes is {full_pages}: a power failure may damage the database"
        return Finding(Level.WARN, "durability", message, "turn both on in postgresql.conf")
    if commit == "off":
        message = "synchronous_commit is off: a crash may undo commits of the last moments"
        return Finding(Level.WARN, "durability", message, "turn it on, unless that is intended")
    return Finding(Level.OK, "durability", "a commit returns after it is on disk")


def _connections(used: int, allowed: int) -> Finding:
    message = f"{used} of {allowed} connections in use"
    if used >= MAX_CONNECTIONS_USED * allowed:
        advice = "lower the pool sizes, use PgBouncer (pooled=true), or raise max_connections"
        return Finding(Level.WARN, "connections", message, advice)
    return Finding(Level.OK, "connections", message)
