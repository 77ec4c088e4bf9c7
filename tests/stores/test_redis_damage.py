"""Lost keys, as after an eviction: the damaged queue is set aside by name, others go on, and repair restores it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.servers import RedisServer
from tests.stores.redis_support import keys, server

from jobyard.domain.history import Delivery, HistoryEntry, Wake
from jobyard.domain.job import NewJob, Parent, QueueSettings, State, Unique
from jobyard.domain.state import Settlement, Transition
from jobyard.errors import StoreError
from jobyard.ports.admin_store import Action
from jobyard.ports.workflow_store import Checkpoint
from jobyard.stores.redis import RedisStore
from jobyard.testing.clock import ManualClock

__all__ = ["server"]

DONE = Transition(to=State.COMPLETED, result=b"null")
RETRY = Transition(to=State.PENDING, delay_seconds=5.0)
FAILED = Transition(to=State.FAILED, reason="no")
HISTORY_KEYS = ["extra", "history", "history_order", "signals", "signals_order"]
PARENT = Parent("p", "s", "k")
QUEUE_KEYS = [
    *("queue", "jobs", "ids", "past", "private", "groups", "names", "line", "ready:g", "ready:", "delayed", "leases"),
    *("lease:w", "holders", "stop", "done", "completed", "failed", "unique", "marks", "block", "blocks"),
    *("parents", "ended", "ended_order", "extras", *(f"{key}:000000000000009" for key in HISTORY_KEYS)),
]
PREFIX_KEYS = ["counter", "queues", "turns", "due", "ended"]
OF_HISTORIES = [key for key in QUEUE_KEYS if key in ("parents", "ended", "ended_order") or ":000" in key]
GOOD = 20


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(server: RedisServer, clock: ManualClock) -> AsyncIterator[RedisStore]:
    server.ask("FLUSHALL")
    store = RedisStore(server.url, clock)
    await store.open()
    yield store
    await store.close()


def job(job_id: str, queue: str = "bad", **options: object) -> NewJob:
    return NewJob(id=job_id, kind="k", queue=queue, **options)  # type: ignore[arg-type]


async def settle(store: RedisStore, transition: Transition, wanted: int = 1) -> None:
    leases = (await store.exchange("w", [], ["bad"], wanted, 10.0)).leases
    assert len(leases) == wanted
    await store.exchange("w", [Settlement(lease.key, transition) for lease in leases], ["bad"], 0, 10.0)


async def fill_histories(store: RedisStore) -> None:
    """A child that ended, and a parked workflow, a child too, with entries and signals."""
    await store.insert([job("c1", parent=PARENT)])
    await settle(store, DONE)
    await store.insert([job("flow", parent=PARENT, is_workflow=True)])
    [lease] = (await store.exchange("w", [], ["bad"], 1, 10.0)).leases
    await store.checkpoint([Checkpoint(key=lease.key, entries=(HistoryEntry(key="a"), HistoryEntry(key="b")))])
    await store.signal("flow", "go")
    park = Transition(to=State.PENDING, signal="kids", wake=(Wake("kids", 2),))
    await store.exchange("w", [Settlement(lease.key, park)], ["bad"], 0, 10.0)


async def fill(store: RedisStore) -> None:
    """A queue with jobs in every place, and a healthy one."""
    await store.configure(
        "bad", QueueSettings(keep_completed=2, keep_failed=2, keep_completed_seconds=0, keep_failed_seconds=0)
    )
    for number, transition in enumerate((DONE, FAILED, FAILED, DONE, RETRY)):
        await store.insert([job(f"e{number}", unique=Unique("k"))])
        await settle(store, transition)
    await store.insert([job("r1", tags=("t",), unique=Unique("u"), private_payload=b"1"), job("r2", group="g")])
    leases = (await store.exchange("w", [], ["bad"], 2, 10.0)).leases
    await store.change(Action.CANCEL, [leases[0].job_id], reason="stop")
    await fill_histories(store)
    await store.insert([job(f"w{number}", group="g" if number % 2 else None) for number in range(6)])
    await store.insert([job(f"d{number}", delay_seconds=5) for number in range(4)])
    await store.insert([job("w-unique", unique=Unique("w"), priority=3)])
    await store.insert(
        [job(f"good{number}", "good", delay_seconds=number % 3, parent=PARENT) for number in range(GOOD)]
    )


async def work(store: RedisStore, clock: ManualClock) -> list[str]:
    """What a worker, its housekeeping and a dashboard do; returns the ids of completed jobs."""
    ended: list[str] = []
    for _ in range(7):
        clock.advance(5.0)
        leases = (await store.exchange("w2", [], [], 20, 60.0)).leases
        ended += [lease.job_id for lease in leases]
        await store.exchange("w2", [Settlement(lease.key, DONE) for lease in leases], [], 0, 60.0)
        await store.reclaim()
        await store.prune()
    await store.deliver([Delivery("flow", "kids", key, b"1") for key in ("a", "b")])
    await store.history("flow")
    await store.queues()
    await store.ages()
    await store.groups("bad")
    await store.change(Action.RETRY, ["r1", "w1", "d1"])
    return ended


@pytest.mark.parametrize("key", [f"{{bad}}:{key}" for key in QUEUE_KEYS] + PREFIX_KEYS)
async def test_a_lost_key_stops_no_other_queue_and_repair_restores_it(
    store: RedisStore, clock: ManualClock, key: str
) -> None:
    await fill(store)
    assert await store.audit() == []
    assert f"jobyard:{key}" in await keys(store)
    await store.client.execute("DEL", f"jobyard:{key}")
    ended = await work(store, clock)
    if key in PREFIX_KEYS:
        await store.repair()
        ended += await work(store, clock)
    assert sum(job_id.startswith("good") for job_id in ended) == GOOD
    ends = [end.job_id for end in await store.ended_jobs() if end.job_id.startswith("good")]
    assert len(ends) == GOOD
    await store.forget_ended(ends)
    await store.insert([job("another", "good")])
    await store.repair()
    assert await store.audit() == []
    await store.insert([job("after")])
    assert "after" in await work(store, clock)
    assert await store.audit() == []


async def test_a_queue_that_is_set_aside_is_named(store: RedisStore, clock: ManualClock) -> None:
    await fill(store)
    await store.client.execute("DEL", "jobyard:{bad}:jobs")
    await work(store, clock)
    with pytest.raises(StoreError, match=r"queue bad is set aside, because its stored data is damaged: job .* no rec"):
        await store.insert([job("x")])
    assert any(sentence.startswith("queue bad is set aside") for sentence in await store.audit())
    assert any(sentence.startswith("queue bad is set aside") for sentence in await store.repair())
    assert await store.repair() == []
    await store.insert([job("x")])


@pytest.mark.parametrize(
    "key", ["ready:", "jobs", "queue", "line", "groups", "leases", "delayed", "done", *OF_HISTORIES]
)
async def test_a_key_of_another_type_stops_no_other_queue(store: RedisStore, clock: ManualClock, key: str) -> None:
    await fill(store)
    await store.client.execute("DEL", f"jobyard:{{bad}}:{key}")
    await store.client.execute("RPUSH", f"jobyard:{{bad}}:{key}", "x")
    assert sum(job_id.startswith("good") for job_id in await work(store, clock)) == GOOD


async def test_an_exchange_that_names_9_000_queues(store: RedisStore, clock: ManualClock) -> None:
    await store.insert([job("a", "one", delay_seconds=1.0), job("b", "two")])
    clock.advance(2.0)
    names = ["one", "two", *(f"queue-{number}" for number in range(9_000))]
    leases = (await store.exchange("w", [], names, 5, 60.0)).leases
    assert sorted(lease.job_id for lease in leases) == ["a", "b"]
    await store.exchange("w", [Settlement(lease.key, DONE) for lease in leases], names, 5, 60.0)
    assert await store.audit() == []
