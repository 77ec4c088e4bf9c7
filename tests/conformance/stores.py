"""Factories of all stores under test, by name; the same folder means the same data."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

from tests.servers import shared
from tests.servers.fixtures import wanted
from tests.servers.schema import audit as audit_schema
from tests.servers.schema import empty_for
from tests.story.sizes import size

from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock

# Imported late, so that a store that cannot be imported does not fail the tests of the others.


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
    # Planning the statements again for each test takes longer than most tests; in the soak each session is new.
    url = wanted(size(shared.warm_sessions_url, shared.postgres_url))
    return _postgres(url, folder, clock, pooled=False)


def pgbouncer(folder: Path, clock: ManualClock) -> Store:
    return _postgres(wanted(shared.pgbouncer_url), folder, clock, pooled=True)


def _postgres(url: str, folder: Path, clock: ManualClock, *, pooled: bool) -> Store:
    from jobyard.stores.postgres import PostgresStore  # noqa: PLC0415

    schema = f"{shared.RUN}_{'pooled' if pooled else 'direct'}"
    empty_for(wanted(shared.postgres_url), schema, folder)
    return PostgresStore(url, clock=clock, pooled=pooled, schema=schema)


async def audit(store: Store) -> list[str]:
    """What `store.audit()` returns."""
    schema = getattr(store, "url", "").partition("?schema=")[2]
    if schema.startswith(shared.RUN):
        return await audit_schema(wanted(shared.postgres_url), schema)
    return await store.audit()


# A memory store is kept per folder, because its data lives as long as the object.
_memories: dict[Path, Store] = {}


def sharded(folder: Path, clock: ManualClock) -> Store:
    """The queue that the suite uses most has a store of its own: its tokens are marked, lists are merged."""
    return _sharded(folder, clock, ("default",))


def sharded_machine(folder: Path, clock: ManualClock) -> Store:
    """Put both queues of the machine into one store, where they take turns as in any store."""
    return _sharded(folder, clock, ("one", "two"))


def _sharded(folder: Path, clock: ManualClock, queues: tuple[str, ...]) -> Store:
    from jobyard.stores.sharded import ShardedStore  # noqa: PLC0415

    main = _memories.setdefault(folder, memory(folder, clock))
    return ShardedStore(main, dict.fromkeys(queues, sqlite(folder, clock)))


STORES: dict[str, Callable[[Path, ManualClock], Store]] = {
    "memory": memory,
    "sqlite": sqlite,
    "redis": redis,
    "postgres": postgres,
    "pgbouncer": pgbouncer,
    "sharded": sharded,
}

# Tests that do not apply to a store. Sharded: queues of different stores take turns by call, not by job; an exchange
# sees only the stores of its queues; its tokens carry a shard prefix.
EXCLUDED: dict[str, frozenset[str]] = {
    "sharded": frozenset(
        {
            "test_queues_take_turns",
            "test_a_queue_named_twice_has_one_turn",
            "test_a_blocked_queue_keeps_its_position_among_queues",
            "test_a_queue_without_due_jobs_joins_the_end",
            "test_the_turn_of_a_queue_is_shared_by_all_claims",
            "test_an_exchange_returns_when_the_next_job_is_due",
            "test_one_claim_has_one_token_and_each_claim_its_own",
        }
    ),
}
