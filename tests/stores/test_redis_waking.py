"""Waking on Redis: standing orders, cancels, and the end of a job."""

from __future__ import annotations

import asyncio

import pytest
from tests.servers import RedisServer
from tests.stores.redis_support import jobs, server, store, until_there

from jobyard.domain.job import QueueSettings, State
from jobyard.domain.state import Settlement, Transition
from jobyard.errors import StoreUnavailable
from jobyard.ports.admin_store import Action
from jobyard.ports.job_store import Exchange
from jobyard.stores.redis import RedisStore

__all__ = ["server", "store"]

DONE = Transition(to=State.COMPLETED, result=b"null")
FAILED = Transition(to=State.FAILED, reason="no")


async def test_another_process_is_told_of_the_end_of_a_job_that_retention_drops_at_once(
    store: RedisStore, server: RedisServer
) -> None:
    await store.configure("default", QueueSettings(keep_completed=0))
    await store.insert(jobs("one"))
    there = RedisStore(server.url)
    await there.open()
    waiting = asyncio.create_task(there.wait_for_end("one", 30))
    await until_there(store, "EXISTS", "jobyard:{default}:awaited")
    [lease] = (await store.exchange("w", [], [], 1, 15)).leases
    await store.exchange("w", [Settlement(lease.key, Transition(to=State.COMPLETED, result=b"42"))], [], 0, 15)
    await store.prune()
    job = await waiting
    assert job is not None
    assert (job.state, bytes(job.result or b"")) == (State.COMPLETED, b"42")
    assert await store.get("one") is None
    await there.close()


async def test_one_job_wakes_one_of_many_handles(store: RedisStore, server: RedisServer) -> None:
    handles = [RedisStore(server.url) for _ in range(4)]
    for handle in handles:
        await handle.open()
    sleeping = [asyncio.create_task(handle.wait_for_work(["default"], 30)) for handle in handles]
    await until_there(store, "SCARD", "jobyard:{default}:sleepers", at_least=4)
    await store.insert(jobs("one"))
    done, asleep = await asyncio.wait(sleeping, return_when=asyncio.FIRST_COMPLETED)
    assert (len(done), len(asleep)) == (1, 3)
    # It does not take the job: who looks finds it, and whoever takes a part tells the next.
    await store.insert(jobs("two", "three"))
    for _ in range(2):
        done, asleep = await asyncio.wait(asleep, return_when=asyncio.FIRST_COMPLETED)
        if len(done) == 2:
            break
    for handle in handles:
        await handle.close()
    for task in asleep:
        with pytest.raises(StoreUnavailable):
            await task


async def ordered(store: RedisStore, worker: str = "w") -> tuple[asyncio.Task[Exchange], asyncio.Future[None]]:
    """An exchange that waits on the server, and the end of its patience."""
    until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(store.exchange(worker, [], ["default"], 5, 15, until))
    await until_there(store, "HLEN", "jobyard:order")
    return waiting, until


async def test_an_order_is_filled_by_the_insert_itself(store: RedisStore, server: RedisServer) -> None:
    waiting, _ = await ordered(store)
    server.ask("CONFIG", "RESETSTAT")
    await store.insert(jobs("one"))
    answer = await waiting
    assert [lease.job_id for lease in answer.leases] == ["one"]
    assert b"cmdstat_fcall:calls=1," in server.ask("INFO", "commandstats")
    assert (await store.exchange("w", [Settlement(answer.leases[0].key, DONE)], [], 0, 15)).refused == ()
    assert await store.audit() == []


async def test_an_order_whose_answer_is_lost_is_told_when_withdrawn(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, until = await ordered(store)
    monkeypatch.setattr(store._server.station.ear, "_told", lambda data: None)
    await store.insert(jobs("one"))
    until.set_result(None)
    assert [lease.job_id for lease in (await waiting).leases] == ["one"]
    assert await store.audit() == []


async def test_an_order_of_somebody_who_has_gone_is_not_filled(store: RedisStore, server: RedisServer) -> None:
    there = RedisStore(server.url)
    await there.open()
    waiting, _ = await ordered(there)
    await there._server.station.ear.close(StoreUnavailable("gone"))
    with pytest.raises(StoreUnavailable):
        await waiting
    await until_there(store, "HLEN", "jobyard:order")
    await store.insert(jobs("one"))
    assert [lease.job_id for lease in (await store.exchange("w", [], [], 1, 15)).leases] == ["one"]
    await there.close()


async def test_an_order_that_came_too_late_is_handed_back(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller goes away while its order is filled: the job is untouched, and nobody has died."""
    waiting, _ = await ordered(store)
    monkeypatch.setattr(store._server.station.ear, "_told", lambda data: None)
    await store.insert(jobs("one"))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    while not (leases := (await store.exchange("w", [], [], 1, 15)).leases):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert (leases[0].job_id, leases[0].attempt, leases[0].deaths) == ("one", 1, 0)


async def test_a_cancel_wakes_everybody(store: RedisStore, server: RedisServer) -> None:
    await store.insert(jobs("one"))
    await store.exchange("w", [], [], 1, 15)
    there = RedisStore(server.url)
    await there.open()
    waiting = asyncio.create_task(there.wait_for_work([], 30))
    await until_there(store, "SCARD", "jobyard:sleepers")
    await store.change(Action.CANCEL, ["one"])
    assert await waiting
    await there.close()


async def test_closing_wakes_those_who_wait(server: RedisServer) -> None:
    store = RedisStore(server.url, prefix="closing")
    await store.open()
    await store.insert(jobs("one", delay_seconds=60))
    waiting = asyncio.create_task(store.wait_for_end("one", 60))
    assert not (await asyncio.wait([waiting], timeout=0.05))[0]
    await store.close()
    with pytest.raises(StoreUnavailable):
        await waiting


async def test_a_restart_is_survived(store: RedisStore, server: RedisServer) -> None:
    await store.insert(jobs("one"))
    server.stop()
    with pytest.raises(StoreUnavailable):
        await store.insert(jobs("two"))
    server.start()
    assert len((await store.exchange("w", [], [], 5, 15)).leases) == 1
    assert await store.audit() == []
