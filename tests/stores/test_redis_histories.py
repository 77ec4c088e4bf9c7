"""Histories on Redis: keys, bounded commands, replays, waiting claims, and signals of an older schema."""

from __future__ import annotations

import asyncio

import pytest
from tests.servers import RedisServer
from tests.stores.redis_support import jobs, keys, server, store, wait_for_count

from jobyard.domain.history import MAX_SIGNALS, Delivery, HistoryEntry, Wake
from jobyard.domain.job import NewJob, Parent, QueueSettings, State
from jobyard.domain.lease import Lease
from jobyard.domain.state import Settlement, Transition
from jobyard.errors import NotPossible
from jobyard.ports.admin_store import Action
from jobyard.ports.workflow_store import Checkpoint, Restart
from jobyard.stores.redis import RedisStore

__all__ = ["server", "store"]

DONE = Transition(to=State.COMPLETED, result=b"null")
PARENT = Parent("the parent", "1:scan", "7")


async def claim(store: RedisStore, wanted: int = 1) -> tuple[Lease, ...]:
    return (await store.exchange("w", [], [], wanted, 15)).leases


async def settle(store: RedisStore, transition: Transition, *leases: Lease) -> None:
    settlements = [Settlement(lease.key, transition) for lease in leases]
    assert (await store.exchange("w", settlements, [], 0, 15)).refused == ()


def commands(server: RedisServer) -> int:
    """Commands that functions have executed since the statistics were reset."""
    stats = server.ask("INFO", "commandstats").decode().splitlines()
    calls = [
        line for line in stats if line.startswith("cmdstat_") and not line.startswith(("cmdstat_info", "cmdstat_fcall"))
    ]
    return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in calls)


async def test_a_removed_workflow_leaves_no_keys(store: RedisStore) -> None:
    await store.configure("default", QueueSettings(keep_completed=0, keep_completed_seconds=0))
    await store.insert(jobs("flow", is_workflow=True, parent=PARENT))
    [lease] = await claim(store)
    await store.checkpoint([Checkpoint(key=lease.key, entries=(HistoryEntry(key="a"),))])
    await store.signal("flow", "go")
    await settle(store, DONE, lease)
    await store.prune()
    await store.forget_ended([end.job_id for end in await store.ended_jobs()])
    await store.reclaim()
    assert {key for key in await keys(store) if "{default}" in key} == {"jobyard:{default}:queue"}
    assert "jobyard:ended" not in await keys(store)


async def test_children_are_settled_in_one_batch(store: RedisStore, server: RedisServer) -> None:
    spent = []
    for count in (10, 1000):
        await store.insert(jobs(*(f"{count}-{number}" for number in range(count)), parent=PARENT))
        leases = await claim(store, count)
        assert {lease.parent for lease in leases} == {PARENT}
        server.ask("CONFIG", "RESETSTAT")
        await settle(store, DONE, *leases)
        spent.append(commands(server))
        await store.forget_ended([end.job_id for end in await store.ended_jobs()])
        assert await store.ended_jobs() == []
    assert spent[1] <= spent[0] + 10


async def test_a_repeated_exchange_returns_the_parents(store: RedisStore) -> None:
    await store.insert(jobs("one", "two", parent=PARENT))
    request = {"worker": "w", "token": "a" * 16, "lease": 15_000, "wanted": 2, "queues": [], "settled": [], "slot": 0}
    response = await store.client.call("exchange", dict(request))
    again = await store.client.call("exchange", dict(request))
    assert len(response[10]) == 4
    assert again[10] == response[10]


async def test_a_repeated_settlement_of_a_child_records_one_end(store: RedisStore) -> None:
    await store.insert(jobs("one", parent=PARENT))
    [lease] = await claim(store)
    settled = [False, f"{lease.sequence:015d}", lease.job_id, lease.token, True]
    request = {"worker": "w", "token": "a" * 16, "lease": 1, "wanted": 0, "queues": [], "settled": settled, "slot": 0}
    await store.client.call("exchange", dict(request))
    await store.forget_ended(["one"])
    assert (await store.client.call("exchange", dict(request)))[0] == []
    assert await store.ended_jobs() == []


async def test_a_waiting_claim_gets_parents_and_requests(store: RedisStore, server: RedisServer) -> None:
    await store.insert(jobs("flow", is_workflow=True, parent=PARENT))
    [lease] = await claim(store)
    await store.checkpoint([Checkpoint(key=lease.key, entries=(HistoryEntry(key="a"),))])
    await settle(store, Transition(to=State.PENDING, delay_seconds=60), lease)
    other = RedisStore(server.url)
    await other.open()
    until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(other.exchange("w2", [], [], 1, 15, until))
    await wait_for_count(store, "SCARD", "jobyard:orders")
    await store.change(Action.CANCEL, ["flow"], reason="enough")
    [lease] = (await waiting).leases
    assert (lease.is_workflow, lease.parent, lease.cancel_requested) == (True, PARENT, "enough")
    await other.close()


async def test_a_checkpoint_is_repeated_when_its_reply_is_lost(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.insert(jobs("flow", is_workflow=True))
    [lease] = await claim(store)
    connection = await store.client.pool.connection()
    # The command is sent; the connection closes when the reply arrives.
    monkeypatch.setattr(connection, "data_received", lambda data: connection.close())
    [recorded] = await store.checkpoint([Checkpoint(key=lease.key, entries=(HistoryEntry(key="a", data=b"1"),))])
    assert recorded is not None
    assert await store.history("flow") == list(recorded)


@pytest.mark.parametrize("size", [0, 20, 200, 300, 70_000])
async def test_a_restart_replaces_only_the_payload(store: RedisStore, size: int) -> None:
    text = "x" * (size % 1000)
    job = NewJob(id=f"id-{text}", kind=f"k-{text}", payload=b"p" * size, max_attempts=7, is_workflow=True, group="g")
    await store.insert([job])
    [lease] = await claim(store)
    payload = b'"' + b"q" * (70_000 - size) + b'"'
    [recorded] = await store.checkpoint([Checkpoint(key=lease.key, restart=Restart(payload))])
    assert recorded == ()
    found = await store.get(job.id)
    assert found is not None
    assert (bytes(found.payload), found.kind, found.max_attempts, found.group) == (payload, job.kind, 7, "g")


async def test_a_later_checkpoint_of_the_same_call_keeps_the_payload(store: RedisStore) -> None:
    await store.insert(jobs("one"))
    [lease] = await claim(store)
    entry = HistoryEntry(key="a")
    await store.checkpoint(
        [Checkpoint(key=lease.key, restart=Restart(b'"new"')), Checkpoint(key=lease.key, entries=(entry,))]
    )
    job = await store.get("one")
    assert job is not None
    assert (bytes(job.payload), job.is_workflow) == (b'"new"', True)


async def test_large_and_many_entries_are_read_completely(store: RedisStore) -> None:
    await store.insert(jobs("flow", is_workflow=True))
    [lease] = await claim(store)
    checkpoints = [
        Checkpoint(key=lease.key, entries=tuple(HistoryEntry(key=f"{part}-{n}", data=b"1" * 3000) for n in range(700)))
        for part in range(2)
    ]
    recorded = await store.checkpoint(checkpoints)
    assert await store.history("flow", limit=2000) == [entry for part in recorded for entry in part or ()]
    assert len(await store.history("flow", limit=1100)) == 1100


async def test_many_ends_of_several_queues_are_read_in_order(store: RedisStore) -> None:
    ids = [f"job-{number}" for number in range(1300)]
    await store.insert([NewJob(id=job_id, kind="k", queue=f"q{n % 3}", parent=PARENT) for n, job_id in enumerate(ids)])
    for lease in await claim(store, len(ids)):
        await settle(store, Transition(to=State.COMPLETED, result=b"1" * 2000), lease)
    assert {end.job_id for end in await store.ended_jobs(2000)} == set(ids)
    first = await store.ended_jobs(1000)
    assert len(first) == 1000
    await store.forget_ended([end.job_id for end in first])
    rest = await store.ended_jobs()
    assert [end.job_id for end in first + rest] == [f"job-{number}" for number in range(1300)]


async def test_an_end_outlives_its_queue(store: RedisStore) -> None:
    await store.insert(jobs("child", queue="q", parent=PARENT))
    await store.change(Action.DELETE, ["child"])
    assert await store.remove_queue("q")
    [end] = await store.ended_jobs()
    assert (end.job_id, end.state) == ("child", None)
    await store.forget_ended(["child"])
    assert {key for key in await keys(store) if "{q}" in key} == set()


async def test_the_number_of_signals_is_bounded(store: RedisStore) -> None:
    await store.insert(jobs("one"))
    await store.deliver([Delivery("one", "signal:go", str(number), b"1") for number in range(MAX_SIGNALS)])
    with pytest.raises(NotPossible):
        await store.signal("one", "go")
    assert await store.signal("one", "other") is False
    [lease] = await claim(store)
    await settle(store, Transition(to=State.PENDING, counted=False, signal="go"), lease)
    assert await store.signal("one", "go", b"2") is False


async def test_signals_kept_by_schema_2_are_taken_first(store: RedisStore) -> None:
    await store.insert(jobs("one"))
    await store.client.execute("HSET", "jobyard:{default}:extra:000000000000001", "signal:go", b"1")
    await store.client.execute("SADD", "jobyard:{default}:extras", "000000000000001")
    await store.signal("one", "go", b"2")
    for expected in (b"1", b"2"):
        [lease] = await claim(store)
        await settle(store, Transition(to=State.PENDING, signal="go"), lease)
        [lease] = await claim(store)
        assert lease.signal == expected
        await settle(store, Transition(to=State.PENDING), lease)


async def test_repair_restores_the_order_of_a_history(store: RedisStore) -> None:
    await store.insert(jobs("flow", is_workflow=True))
    [lease] = await claim(store)
    await store.checkpoint([Checkpoint(key=lease.key, entries=tuple(HistoryEntry(key=str(n)) for n in range(30)))])
    await settle(store, Transition(to=State.PENDING, signal="s", wake=(Wake("kids", 1),)), lease)
    before = await store.history("flow")
    for key in ("history_order", "extra"):
        await store.client.execute("DEL", f"jobyard:{{default}}:{key}:000000000000001")
    assert len(await store.repair()) == 1
    assert await store.audit() == []
    assert await store.history("flow") == before
    await store.deliver([Delivery("flow", "kids", "a", b"1")])
    [entry] = await store.history("flow", "kids")
    assert entry.number > before[-1].number
