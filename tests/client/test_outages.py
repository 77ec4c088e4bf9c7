"""Lost responses, lost connections, a killed server: one job, and waiting calls continue."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests import fork_server
from tests.client.support import Site, make_yard
from tests.fork_server import ForkedProcess
from tests.server.support import ApiServer, serving
from tests.servers.ports import free_port
from tests.servers.proxy import Mode, Proxy
from tests.support import ROOT, Watched, eventually

from jobyard.client import Client, RemoteJob, job_request
from jobyard.errors import NotFound, ResultNotReady, ServerUnavailable, StoreUnavailable
from jobyard.ports.clock import SystemClock
from jobyard.server.routes.table import ALL_ROUTES
from jobyard.stores.memory import MemoryStore


@contextlib.asynccontextmanager
async def through_proxy(here: Site) -> AsyncIterator[tuple[Proxy, Client]]:
    port = int(here.url.rpartition(":")[2])
    with Proxy(port) as proxy:
        async with here.client(url=proxy.through(here.url)) as client:
            yield proxy, client


async def test_one_job_although_the_first_answer_was_lost(here: Site) -> None:
    async with through_proxy(here) as (proxy, client):
        await client.me()
        proxy.mode = Mode.HALF_OPEN
        handing_in = asyncio.ensure_future(client.enqueue("send", {"to": "ann"}, queue="mail"))
        [stored] = await eventually(lambda: jobs_of(here))
        assert not handing_in.done()
        proxy.cut()
        proxy.mode = Mode.PASS
        handle = await handing_in
        assert (handle.id, handle.created) == (stored, True)
        assert await jobs_of(here) == [stored]


async def test_one_batch_although_the_first_answer_was_lost(here: Site) -> None:
    async with through_proxy(here) as (proxy, client):
        await client.me()
        proxy.mode = Mode.HALF_OPEN
        jobs = [job_request("send", {"to": str(number)}) for number in range(3)]
        handing_in = asyncio.ensure_future(client.enqueue_many(jobs))
        await eventually(lambda: three_jobs(here))
        proxy.cut()
        proxy.mode = Mode.PASS
        found = [each for each in await handing_in if isinstance(each, RemoteJob)]
        assert {each.id for each in found} == set(await jobs_of(here))
        assert all(each.created for each in found)


async def test_a_change_is_not_sent_twice(here: Site) -> None:
    async with through_proxy(here) as (proxy, client):
        handle = await client.enqueue("send", {"to": "ann"})
        proxy.mode = Mode.HALF_OPEN
        changing = asyncio.ensure_future(client.cancel(handle.id))
        await eventually(lambda: is_final(here, handle.id))
        proxy.cut()
        proxy.mode = Mode.PASS
        with pytest.raises(ServerUnavailable):
            await changing


async def test_reads_are_retried_after_refused_connections(here: Site) -> None:
    async with through_proxy(here) as (proxy, client):
        proxy.mode = Mode.REFUSE
        asking = asyncio.ensure_future(client.queues())
        await eventually(lambda: proxy.refused >= 2)
        proxy.mode = Mode.PASS
        assert await asking == []


async def test_a_change_that_was_not_sent_is_retried(here: Site) -> None:
    port = free_port()
    async with here.client(url=f"http://127.0.0.1:{port}") as client:
        changing = asyncio.ensure_future(client.configure("mail", max_running=3))
        assert (await asyncio.wait([changing], timeout=0.3))[1] == {changing}
        with Proxy(int(here.url.rpartition(":")[2]), own_port=port):
            assert (await changing).settings.max_running == 3


async def test_a_store_that_is_unavailable_for_a_while() -> None:
    store = Watched(MemoryStore(SystemClock()))
    await store.open()
    api = ApiServer(store.as_store(), ALL_ROUTES)
    async with serving(api.app) as url, Client(url, await api.token()) as client:
        await client.configure("mail")
        verbs = ("queues", "insert", "set_paused")
        store.failing, store.failing_verbs = StoreUnavailable("it is away"), verbs
        looking = asyncio.ensure_future(client.queues())
        handing_in = asyncio.ensure_future(client.enqueue("send"))
        with pytest.raises(StoreUnavailable, match="it is away"):
            await client.set_limit("mail", "team-a", 1)  # a change is not sent again
        store.failing_verbs = (*verbs, "fetch")

        async def is_unavailable() -> bool:  # checks are kept for a second
            return (await client.health()).status == "unavailable"

        await eventually(is_unavailable)
        store.failing_verbs = verbs  # tokens can be read again
        await eventually(lambda: store.calls["insert"] >= 2)
        store.failing = None
        assert "mail" in {queue.name for queue in await looking}
        assert (await handing_in).id in {job.id async for job in client.jobs()}
    await store.close()


async def test_polling_a_server_that_does_not_wait_has_a_backoff() -> None:
    store = Watched(MemoryStore(SystemClock()))
    await store.open()
    api = ApiServer(store.as_store(), ALL_ROUTES)
    async with serving(api.app) as url, Client(url, await api.token()) as client:
        handle = await client.enqueue("send")
        api.dependencies.draining.set()
        with pytest.raises(ResultNotReady):
            await handle.result(1.0)
        assert store.calls["get"] < 30
    await store.close()


async def test_an_unreachable_server_raises_server_unavailable() -> None:
    port = free_port()
    async with Client(f"http://127.0.0.1:{port}", patience=0.3) as client:
        with pytest.raises(ServerUnavailable, match=rf"127.0.0.1:{port}: connection refused\..*server is running"):
            await client.queues()


async def test_an_unknown_host_raises_server_unavailable() -> None:
    async with Client("http://jobyard.invalid", patience=0.0) as client:
        with pytest.raises(ServerUnavailable, match=r"http://jobyard\.invalid: the host name does not resolve"):
            await client.queues()


async def test_https_to_a_server_without_tls(here: Site) -> None:
    async with Client(here.url.replace("http:", "https:"), patience=0.0) as client:
        with pytest.raises(ServerUnavailable, match=r"Use http://\."):
            await client.queues()


async def test_a_path_that_the_server_does_not_have(here: Site) -> None:
    async with Client(f"{here.url}/nested", patience=0.0) as client:
        with pytest.raises(NotFound, match=r"/nested/v1/queues.*Check the path in the server URL\."):
            await client.queues()


async def test_a_server_killed_and_started_again_while_the_client_waits(tmp_path: Path) -> None:
    port = free_port()
    async with make_yard(tmp_path) as yard:
        first = start_server(tmp_path, port)
        try:
            async with Client(f"http://127.0.0.1:{port}", patience=60) as client:
                handle = await client.enqueue("send", {"to": "ann"}, queue="mail")
                received: list[str] = []
                listening = asyncio.ensure_future(listen(client, handle.id, received))
                waiting = asyncio.ensure_future(handle.result(90))
                await eventually(lambda: received == ["snapshot"], 30)
                first.send_signal(signal.SIGKILL)
                first.wait()
                assert not waiting.done()
                second = start_server(tmp_path, port)
                try:
                    await eventually(lambda: received == ["snapshot", "snapshot"], 60)
                    async with yard.worker():
                        assert await waiting == {"to": "ann", "copies": 1}
                    await eventually(lambda: received[-1] == "completed", 30)
                finally:
                    second.kill()
                    second.wait()
                listening.cancel()
        finally:
            first.kill()
            first.wait()
        assert len((await yard.page()).items) == 1


def start_server(folder: Path, port: int) -> ForkedProcess:
    words = ["--store", f"sqlite:///{folder}/jobs.db", "server", "--port", str(port), "--insecure"]
    with (folder / "server.log").open("ab") as log:
        return fork_server.start(
            "jobyard", words, environment=os.environ, folder=ROOT, stdout=log.fileno(), stderr=log.fileno()
        )


async def listen(client: Client, job_id: str, received: list[str]) -> None:
    async for event in client.job_events(job_id):
        found = re.fullmatch(r"io\.jobyard\.(?:job\.)?(\w+)\.v1", event.type)
        assert found is not None
        received.append(found[1])


async def jobs_of(here: Site) -> list[str]:
    return [job.id async for job in here.yard.jobs()]


async def three_jobs(here: Site) -> bool:
    return len(await jobs_of(here)) == 3


async def is_final(here: Site, job_id: str) -> bool:
    return (await here.yard.get(job_id)).state.is_final
