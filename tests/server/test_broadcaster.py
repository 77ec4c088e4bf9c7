"""Stalled clients are dropped, and many streams cost one reader of the store."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest
from tests.server.sse import Reader, listening
from tests.server.support import ApiServer, serving
from tests.support import Watched, eventually

from jobyard import Context, Jobyard
from jobyard.domain.job import State
from jobyard.live_events.event import LiveEvent, LiveEventType
from jobyard.ports.clock import SystemClock
from jobyard.server.dependencies import OpenAccess
from jobyard.server.routes import events
from jobyard.server.streaming import throttle
from jobyard.server.streaming.broadcaster import EventUpdate
from jobyard.server.streaming.subscriber import MAX_BACKLOG_BYTES, Subscriber, Subscription
from jobyard.server.streaming.throttle import Throttle
from jobyard.stores.memory import MemoryStore

STREAMS = 200


def hint(number: int) -> LiveEvent:
    return LiveEvent(
        type=LiveEventType.PROGRESS, job_id=f"j{number}", queue="q", state=State.RUNNING, attempt=1, message="x" * 500
    )


async def test_stalled_client_is_dropped_and_others_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "BYTES_PER_SECOND", 1 << 40)  # no throttling: each event must arrive
    api = ApiServer(MemoryStore(SystemClock()), [events.ROUTES], authenticator=OpenAccess())
    streams = api.dependencies.broadcaster
    async with (
        serving(api.app) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as client,
        listening(client, "/v1/events?type=progress") as reader,
    ):
        parts = urlsplit(url)
        stuck = socket.socket()
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(stuck, (parts.hostname, parts.port))
        await loop.sock_sendall(stuck, b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        await eventually(lambda: len(streams) == 2)
        sent = 0
        while len(streams) == 2:  # fills the socket buffers, then the backlog
            assert sent < 100_000, "it was never let go"
            await streams._broadcast([EventUpdate(hint(number)) for number in range(sent, sent + 100)])
            sent += 100
            await asyncio.sleep(0)
            await eventually(lambda sent=sent: len(reader.events) > sent or reader.is_over)  # type: ignore[misc]
        assert sent * 500 > MAX_BACKLOG_BYTES
        assert not reader.is_over
        await streams._broadcast([EventUpdate(hint(sent))])
        await eventually(lambda: reader.first("job.progress", lambda data: data["job_id"] == f"j{sent}"))
        stuck.close()
        api.dependencies.draining.set()


async def test_backlog_is_bounded() -> None:
    dropped: list[bool] = []
    listener = Subscriber(Subscription(), "p", lambda: dropped.append(True))
    for _ in range(1000):
        listener.offer(b"x" * 1000)
    assert dropped == [True]
    assert listener.was_dropped
    assert await listener.next(1) is None


def test_flood_is_throttled_and_sampled() -> None:
    limit, text = Throttle(0.0), b"x" * 400
    sent: list[int] = []
    for tick in range(200):  # ten seconds of 8,000 events each
        sent.append(len(limit.take([text] * 400, streams=1000, now=tick * 0.05)))
        assert not limit.take_resync()
    share = throttle.BYTES_PER_SECOND / 1000
    assert 0.5 * share * 10 < sum(sent) * 400 < 1.5 * share * 10
    assert sum(1 for number in sent if number) < 30  # few large pieces
    assert limit.take([], 1000, 11.0) == []
    assert limit.take_resync()
    assert not limit.take_resync()
    assert len(limit.take([text] * 10, 1000, 11.0)) == 10


def test_single_stream_gets_everything() -> None:
    limit, text = Throttle(0.0), b"x" * 400
    for tick in range(1, 200):
        assert len(limit.take([text] * 400, streams=1, now=tick * 0.05)) == 400
    assert not limit.has_dropped


def has_ended(reader: Reader) -> bool:
    """Events arrive as published or, if one was lost, by polling."""
    seen = reader.first("snapshot", lambda data: data["job"]["state"] == "COMPLETED")
    return bool(reader.first("job.completed") or seen)


async def test_two_hundred_streams_while_jobs_flow() -> None:
    store = Watched(MemoryStore(SystemClock()))
    yard = Jobyard(store=store.as_store())
    yard.queue("default", keep_completed=10 * STREAMS)

    @yard.job()
    async def quick(ctx: Context, number: int) -> int:
        return number

    api = ApiServer(store.as_store(), [events.ROUTES], authenticator=OpenAccess())
    async with yard, serving(api.app) as url, AsyncExitStack() as stack:
        handles = [await yard.enqueue("quick", {"number": number}) for number in range(STREAMS)]
        limits = httpx.Limits(max_connections=None)
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=url, limits=limits, timeout=60))
        readers: list[Reader] = []
        for number, handle in enumerate(handles):
            path = f"/v1/jobs/{handle.id}/events" if number % 2 else "/v1/events"
            readers.append(await stack.enter_async_context(listening(client, path)))
        await eventually(lambda: all(reader.first("snapshot") for reader in readers), timeout=60)
        store.calls.clear()
        turns = api.dependencies.broadcaster
        assert len(turns) == STREAMS
        async with yard.worker(concurrency=10):
            for handle in handles:
                assert await handle.result(60) is not None
            await eventually(lambda: all(has_ended(readers[number]) for number in range(1, STREAMS, 2)), timeout=60)
            await eventually(
                lambda: all(
                    readers[number].first("queue.changed", lambda data: data["completed"] == STREAMS)
                    for number in range(0, STREAMS, 2)
                ),
                timeout=60,
            )
        # Reads grow with time, not with the number of streams: one reader serves all.
        assert store.calls["fetch_all"] < STREAMS * 5
        assert store.calls["queues"] < STREAMS
        api.dependencies.draining.set()
