"""Live events as an iterator: a snapshot, what changes, and again after a lost connection."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.support import Site
from tests.servers.proxy import Mode, Proxy
from tests.support import eventually

from jobyard.client import Client, CloudEvent
from jobyard.errors import JobNotFound, Unauthorized


async def listen(client: Client, received: list[CloudEvent]) -> None:
    async for event in client.events(types=["enqueued", "completed"]):
        received.append(event)  # noqa: PERF401  # one by one, as they come


async def test_a_snapshot_then_what_happens(here: Site, client: Client) -> None:
    received: list[CloudEvent] = []
    listening = asyncio.ensure_future(listen(client, received))
    await eventually(lambda: received)
    assert received[0].type == "io.jobyard.snapshot.v1"
    handle = await client.enqueue("send", {"to": "ann"}, queue="mail")
    async with here.yard.worker():
        await handle.result(60)
        await eventually(lambda: [event for event in received if event.type == "io.jobyard.job.completed.v1"])
    assert received[-1].subject == handle.id
    assert received[-1].data["queue"] == "mail"
    listening.cancel()


async def test_it_reconnects(here: Site) -> None:
    with Proxy(int(here.url.rpartition(":")[2])) as proxy:
        async with here.client(url=proxy.through(here.url)) as client:
            received: list[CloudEvent] = []
            listening = asyncio.ensure_future(listen(client, received))
            await eventually(lambda: len(received) == 1)
            proxy.mode = Mode.REFUSE
            proxy.cut()
            await eventually(lambda: proxy.refused >= 1)
            proxy.mode = Mode.PASS
            await eventually(lambda: len(received) == 2)
            assert received[1].type == "io.jobyard.snapshot.v1"
            listening.cancel()


async def test_a_refusal_ends_it(here: Site, client: Client) -> None:
    with pytest.raises(JobNotFound):
        await anext(aiter(client.job_events("nothing")))
    async with Client(here.url) as anonymous:
        with pytest.raises(Unauthorized):
            await anext(aiter(anonymous.events()))
