"""What can be wrong with a PostgreSQL server: reachable, writable, safe, with room to go on."""

from __future__ import annotations

from collections.abc import AsyncIterator

from jobyard.ports.store import Finding, Level
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.schema import version
from jobyard.stores.postgres.statements import Statements, migrations

OLD_SNAPSHOT_SECONDS = 60
# Dead rows beyond these make claims slower; what is cleared every second holds a few thousand.
MANY_DEAD, DEAD_PER_LIVE = 200_000, 2
CROWDED = 0.85
MEBIBYTE = 1 << 20


async def findings(connection: Connection, statements: Statements) -> list[Finding]:
    return [finding async for finding in _look(connection, statements)]


async def _look(connection: Connection, statements: Statements) -> AsyncIterator[Finding]:
    row = await connection.fetchrow(statements["examine_server"])
    assert row is not None
    name, is_read_only, fsync, commit, full_pages, used, allowed = row
    yield Finding(Level.OK, "server", f"PostgreSQL {name}")
    yield await _schema(connection, statements)
    if is_read_only:
        cure = "point the URL at the primary, or lift default_transaction_read_only"
        yield Finding(Level.FAIL, "writable", "it takes no writes: a standby, or read-only by setting", cure)
    else:
        yield Finding(Level.OK, "writable", "it takes writes")
    yield _durability(fsync, commit, full_pages)
    yield _connections(used, allowed)
    culprits = await connection.fetch(statements["examine_snapshots"], float(OLD_SNAPSHOT_SECONDS))
    for what, age, cure in culprits:
        since = "" if age is None else f" for {age} s"
        says = f"{what} keeps dead rows from being cleared{since}; claims get slower until it ends"
        yield Finding(Level.WARN, "snapshot", says, cure)
    if not culprits:
        yield Finding(Level.OK, "snapshot", f"nobody keeps one for longer than {OLD_SNAPSHOT_SECONDS} s")
    for table, live, dead, size, cleared in await connection.fetch(statements["examine_tables"], statements.schema):
        if dead > MANY_DEAD and dead > DEAD_PER_LIVE * live:
            when = "never" if cleared is None else f"last at {cleared:%Y-%m-%d %H:%M:%S}"
            says = f"{table} has {dead:,} dead rows and {live:,} live ones in {size // MEBIBYTE:,} MiB, cleared {when}"
            yield Finding(Level.WARN, "dead rows", says, f"VACUUM {table}; see that autovacuum is on and keeps up")


async def _schema(connection: Connection, statements: Statements) -> Finding:
    present, newest = await version(connection, statements), migrations()[-1][0]
    if present == newest:
        return Finding(Level.OK, "schema", f"version {present}, up to date")
    cure = "run `jobyard migrate`" if present < newest else "upgrade jobyard"
    return Finding(Level.FAIL, "schema", f"version {present}; this jobyard knows {newest}", cure)


def _durability(fsync: str, commit: str, full_pages: str) -> Finding:
    if fsync == "off" or full_pages == "off":
        says = f"fsync is {fsync}, full_page_writes is {full_pages}: a power failure may damage the database"
        return Finding(Level.WARN, "durability", says, "switch both on in postgresql.conf")
    if commit == "off":
        says = "synchronous_commit is off: a crash may take back what was answered in the last moments"
        return Finding(Level.WARN, "durability", says, "switch it on, unless that is wanted")
    return Finding(Level.OK, "durability", "a commit is on the disk before it is answered")


def _connections(used: int, allowed: int) -> Finding:
    says = f"{used} of {allowed} connections in use"
    if used >= CROWDED * allowed:
        cure = "lower the pool sizes, put PgBouncer in between (pooled), or raise max_connections"
        return Finding(Level.WARN, "connections", says, cure)
    return Finding(Level.OK, "connections", says)
