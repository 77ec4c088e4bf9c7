"""Ticks on Redis: one command per batch, constant cost, little memory, no keys after disarming."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.conformance.support import armed, decide_one, fired, insert_one, new, tick
from tests.servers import RedisServer
from tests.stores.redis_support import keys, running
from tests.story.sizes import size

from jobyard.domain.job import QueueSettings, Unique
from jobyard.domain.schedule import Verdict
from jobyard.errors import BadInput, StoreFull
from jobyard.ports.schedule_store import KEPT_TICKS, ArmedSchedule, Decided, Decision
from jobyard.stores.redis import RedisStore
from jobyard.testing.clock import ManualClock

MANY = size(5_000, 20_000)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A private server: all its commands are counted."""
    with running(appendonly="no") as server:
        yield server


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStore]:
    server.ask("FLUSHALL")
    store = RedisStore(server.url)
    await store.open()
    await store.arm("nightly", 1, since=0)
    yield store
    assert await store.audit() == []
    await store.close()


def calls(server: RedisServer) -> dict[str, int]:
    """How often each command was executed so far, including those inside functions."""
    found = re.findall(r"cmdstat_(\S+?):calls=(\d+)", server.ask("INFO", "commandstats").decode())
    return {name: int(count) for name, count in found if name != "info"}


async def arm_many(store: RedisStore, count: int) -> list[str]:
    names = [f"schedule-{number:05}" for number in range(count)]
    for start in range(0, count, 500):
        await asyncio.gather(*(store.arm(name, 1, since=0) for name in names[start : start + 500]))
    return names


async def test_a_thousand_ticks_are_one_command(server: RedisServer, store: RedisStore) -> None:
    names = await arm_many(store, 1000)
    jobs = [new(unique=Unique(name), tags=(name,)) for name in names]
    ticks = [tick(7, job, schedule=name, skip_if_held=True) for name, job in zip(names, jobs, strict=True)]
    before = calls(server)["fcall"]
    assert await store.decide(ticks) == [fired(job.id) for job in jobs]
    assert calls(server)["fcall"] == before + 1


async def spent(server: RedisServer, store: RedisStore, at: int) -> int:
    before = sum(calls(server).values())
    assert (await decide_one(store, at, new(unique=Unique(f"at {at}")))).decision is Decision.MADE
    return sum(calls(server).values()) - before


async def test_tick_cost_is_independent_of_schedules_and_history(server: RedisServer, store: RedisStore) -> None:
    await spent(server, store, 1)
    few = await spent(server, store, 2)
    names = await arm_many(store, MANY)
    for start in range(0, MANY, 1000):
        await store.decide([tick(5, schedule=name, verdict=Verdict.MISSED) for name in names[start : start + 1000]])
    await store.decide([tick(at, verdict=Verdict.MISSED) for at in range(10, 10 + 2 * KEPT_TICKS)])
    assert await spent(server, store, 1000) == few


async def test_kept_ticks_take_little_memory(server: RedisServer, store: RedisStore) -> None:
    for at in range(1, KEPT_TICKS + 20):
        await decide_one(store, at)
    key = "jobyard:ticks:nightly"
    assert await store.client.execute("ZCARD", key) == KEPT_TICKS
    # As a skip list they would take about 20 kB.
    assert await store.client.execute("OBJECT", "ENCODING", key) == b"listpack"
    assert await store.client.execute("MEMORY", "USAGE", key) < 10_000


async def test_a_disarmed_schedule_leaves_no_keys(store: RedisStore) -> None:
    await decide_one(store, 1000, verdict=Verdict.MISSED)
    assert {"jobyard:schedules", "jobyard:armed", "jobyard:ticks:nightly"} <= await keys(store)
    assert await store.disarm("nightly")
    assert not [key for key in await keys(store) if re.search("schedules|armed|ticks", key)]


async def test_schedule_names_may_contain_any_characters(store: RedisStore) -> None:
    for name in ("a{b}%:c", "täglich", "🕛"):
        await store.arm(name, 1, since=0)
        job = new(unique=Unique(name))
        assert await decide_one(store, 1000, job, schedule=name) == fired(job.id)
        assert [each.job_id for each in await store.ticks(name)] == [job.id]
        assert await armed(store, name) == ArmedSchedule(name, 1, 1000)
    with pytest.raises(BadInput):
        await store.arm("half a \ud800", 1)


async def test_a_trimmed_log_leaves_no_key(store: RedisStore) -> None:
    for _ in range(3):
        await store.append("changes", b"x" * 100)
    assert await store.trim("changes", 3) == 3
    assert "jobyard:log:changes" not in await keys(store)
    assert await store.append("changes", b"y") == 4


async def test_a_rejected_decide_still_promotes_due_jobs(server: RedisServer) -> None:
    """A command that changed rows in memory must write them even when it rejects the call."""
    clock = ManualClock()
    store = RedisStore(server.url, clock, prefix="manual")
    await store.open()
    await store.arm("nightly", 1, since=0)
    taken = await insert_one(store)
    await insert_one(store, delay_seconds=5)
    clock.advance(5)
    with pytest.raises(BadInput):
        await store.decide([tick(1000), tick(2000, new(id=taken))])
    assert await store.client.execute("ZCARD", "manual:{default}:ready:") == 2
    assert await store.audit() == []
    assert await armed(store) == ArmedSchedule("nightly", 1, 0)
    await store.close()


async def test_full_memory_rejects_ticks_but_not_disarming() -> None:
    with running() as server:
        store = RedisStore(server.url)
        await store.open()
        await store.configure("default", QueueSettings(max_waiting=10))
        for name in ("nightly", "hourly"):
            await store.arm(name, 1, since=0)
        await store.append("changes", b"x")
        server.ask("CONFIG", "SET", "maxmemory", "1mb")
        with pytest.raises(StoreFull):
            await decide_one(store, 1000)
        assert await armed(store) == ArmedSchedule("nightly", 1, 0)
        assert await store.disarm("hourly")
        assert await store.trim("changes", 1) == 1
        server.ask("CONFIG", "SET", "maxmemory", "0")
        job = new()
        assert await decide_one(store, 1000, job) == fired(job.id)
        assert await decide_one(store, 1000) == Decided(Decision.KNOWN)
        assert await store.audit() == []
        await store.close()
