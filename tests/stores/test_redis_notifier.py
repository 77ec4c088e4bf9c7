"""Notifications on Redis: waiting claims, cancel requests, ends of jobs, closing and restarts."""

from __future__ import annotations

import asyncio

import pytest
from tests.servers import RedisServer
from tests.stores.redis_support import jobs, server, store, wait_for_count

from jobyard.domain.job import QueueSettings, State
from jobyard.domain.state import Settlement, Transition
from jobyard.errors import StoreUnavailable
from jobyard.ports.admin_store import Action
from jobyard.ports.job_store import Exchange
from jobyard.stores.redis import RedisStore

__all__ = ["server", "store"]

DONE = Transition(to=State.COMPLETED, result=b"null")
FAILED = Transition(to=State.FAILED, reason="no")


async def test_the_end_of_an_awaited_job_is_published_and_its_record_stays_for_a_while(
    store: RedisStore, server: RedisServer
) -> None:
    await store.configure("default", QueueSettings(keep_completed=0, keep_completed_seconds=0))
    await store.insert(jobs("one"))
    other = RedisStore(server.url)
    await other.open()
    waiting = asyncio.create_task(other.wait_for_end("one", 30))
    await wait_for_count(store, "EXISTS", "jobyard:{default}:awaited")
    [lease] = (await store.exchange("w", [], [], 1, 15)).leases
    await store.exchange("w", [Settlement(lease.key, Transition(to=State.COMPLETED, result=b"42"))], [], 0, 15)
    await store.prune()
    job = await waiting
    assert job is not None
    assert (job.state, bytes(job.result or b"")) == (State.COMPLETED, b"42")
    assert await store.get("one") is not None, "for a waiter that missed the message"
    await other.close()


async def test_one_job_wakes_one_of_many_processes(store: RedisStore, server: RedisServer) -> None:
    handles = [RedisStore(server.url) for _ in range(4)]
    for handle in handles:
        await handle.open()
    sleeping = [asyncio.create_task(handle.wait_for_work(["default"], 30)) for handle in handles]
    await wait_for_count(store, "SCARD", "jobyard:{default}:sleepers", at_least=4)
    await store.insert(jobs("one"))
    done, asleep = await asyncio.wait(sleeping, return_when=asyncio.FIRST_COMPLETED)
    assert (len(done), len(asleep)) == (1, 3)
    # The woken process does not claim, so the jobs stay; the next inserts wake the others.
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


async def start_waiting_claim(
    store: RedisStore, worker: str = "w"
) -> tuple[asyncio.Task[Exchange], asyncio.Future[None]]:
    """An exchange that waits on the server, and the future that ends its wait."""
    until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(store.exchange(worker, [], ["default"], 5, 15, until))
    await wait_for_count(store, "HLEN", "jobyard:order")
    return waiting, until


async def test_a_waiting_claim_is_served_by_the_insert_itself(store: RedisStore, server: RedisServer) -> None:
    waiting, _ = await start_waiting_claim(store)
    server.ask("CONFIG", "RESETSTAT")
    await store.insert(jobs("one"))
    response = await waiting
    assert [lease.job_id for lease in response.leases] == ["one"]
    assert b"cmdstat_fcall:calls=1," in server.ask("INFO", "commandstats")
    assert (await store.exchange("w", [Settlement(response.leases[0].key, DONE)], [], 0, 15)).refused == ()
    assert await store.audit() == []


async def test_a_served_claim_whose_message_is_lost_is_returned_on_withdrawal(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, until = await start_waiting_claim(store)
    monkeypatch.setattr(store.client.pool.subscriber, "_dispatch", lambda data: None)
    await store.insert(jobs("one"))
    until.set_result(None)
    assert [lease.job_id for lease in (await waiting).leases] == ["one"]
    assert await store.audit() == []


async def test_a_waiting_claim_without_subscriber_is_not_served(store: RedisStore, server: RedisServer) -> None:
    other = RedisStore(server.url)
    await other.open()
    waiting, _ = await start_waiting_claim(other)
    await other.client.pool.subscriber.close(StoreUnavailable("gone"))
    with pytest.raises(StoreUnavailable):
        await waiting
    await wait_for_count(store, "HLEN", "jobyard:order")
    await store.insert(jobs("one"))
    assert [lease.job_id for lease in (await store.exchange("w", [], [], 1, 15)).leases] == ["one"]
    await other.close()


async def test_a_claim_served_after_cancellation_is_released(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is cancelled while its claim is served: the job returns without an attempt or a death."""
    waiting, _ = await start_waiting_claim(store)
    monkeypatch.setattr(store.client.pool.subscriber, "_dispatch", lambda data: None)
    await store.insert(jobs("one"))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    while not (leases := (await store.exchange("w", [], [], 1, 15)).leases):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert (leases[0].job_id, leases[0].attempt, leases[0].deaths) == ("one", 1, 0)


async def test_a_cancel_request_wakes_all_waiters(store: RedisStore, server: RedisServer) -> None:
    await store.insert(jobs("one"))
    await store.exchange("w", [], [], 1, 15)
    other = RedisStore(server.url)
    await other.open()
    waiting = asyncio.create_task(other.wait_for_work([], 30))
    await wait_for_count(store, "SCARD", "jobyard:sleepers")
    await store.change(Action.CANCEL, ["one"])
    assert await waiting
    await other.close()


async def test_closing_fails_pending_waits(server: RedisServer) -> None:
    store = RedisStore(server.url, prefix="closing")
    await store.open()
    await store.insert(jobs("one", delay_seconds=60))
    waiting = asyncio.create_task(store.wait_for_end("one", 60))
    assert not (await asyncio.wait([waiting], timeout=0.05))[0]
    await store.close()
    with pytest.raises(StoreUnavailable):
        await waiting


async def test_the_store_reconnects_after_a_restart(store: RedisStore, server: RedisServer) -> None:
    await store.insert(jobs("one"))
    server.stop()
    with pytest.raises(StoreUnavailable):
        await store.insert(jobs("two"))
    server.start()
    assert len((await store.exchange("w", [], [], 5, 15)).leases) == 1
    assert await store.audit() == []
