"""Every store, by name, with the few lines that hand it to the suite; the same folder means the same data."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

from tests.servers import shared
from tests.servers.fixtures import wanted
from tests.servers.schema import empty_for

from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock

# Imported late: a store that cannot be imported must not take the others along.


def memory(folder: Path, clock: ManualClock) -> Store:
    from jobyard.stores.memory import MemoryStore  # noqa: PLC0415

    return MemoryStore(clock)


def sqlite(folder: Path, clock: ManualClock) -> Store:
    from jobyard.stores.sqlite import SqliteStore  # noqa: PLC0415

    return SqliteStore(folder / "jobs.db", clock=clock)


def redis(folder: Path, clock: ManualClock) -> Store:
    from jobyard.stores.redis import RedisStore  # noqa: PLC0415

    prefix = f"{shared.RUN}_{zlib.crc32(str(folder).encode()):08x}"
    return RedisStore(wanted(shared.redis_url), clock=clock, prefix=prefix)


def postgres(folder: Path, clock: ManualClock) -> Store:
    return _postgres(wanted(shared.postgres_url), folder, clock, pooled=False)


def pgbouncer(folder: Path, clock: ManualClock) -> Store:
    return _postgres(wanted(shared.pgbouncer_url), folder, clock, pooled=True)


def _postgres(url: str, folder: Path, clock: ManualClock, *, pooled: bool) -> Store:
    from jobyard.stores.postgres import PostgresStore  # noqa: PLC0415

    schema = f"{shared.RUN}_{'pooled' if pooled else 'direct'}"
    empty_for(url, schema, folder)
    return PostgresStore(url, clock=clock, pooled=pooled, schema=schema)


STORES: dict[str, Callable[[Path, ManualClock], Store]] = {
    "memory": memory,
    "sqlite": sqlite,
    "redis": redis,
    "postgres": postgres,
    "pgbouncer": pgbouncer,
}
