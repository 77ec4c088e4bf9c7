"""The same verbs for synchronous programs, from any number of threads."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest
from tests.client.support import Site
from tests.support import python

from jobyard.client import BlockingClient, Client, JobFilter, job_request
from jobyard.errors import BadOption, JobNotFound


def test_it_has_every_verb() -> None:
    verbs = {name for name, value in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}
    assert verbs - {"close"} <= set(dir(BlockingClient))


async def in_thread(here: Site, work: Callable[[BlockingClient], None]) -> None:
    token = await here.token()

    def body() -> None:
        with BlockingClient(here.url, token) as client:
            work(client)

    await asyncio.to_thread(body)


async def test_a_job_from_begin_to_end(here: Site) -> None:
    def work(client: BlockingClient) -> None:
        handle = client.enqueue("send", {"to": "ann"}, queue="mail")
        assert handle.result(60) == {"to": "ann", "copies": 1}
        assert handle.info().id == handle.id
        with pytest.raises(JobNotFound):
            client.get("nothing")
        with pytest.raises(BadOption):
            client.enqueue("send", prioritty=1)  # type: ignore[call-arg]

    async with here.yard.worker():
        await in_thread(here, work)


async def test_lists_are_plain_iterators(here: Site) -> None:
    def work(client: BlockingClient) -> None:
        client.enqueue_many([job_request("send", {"number": number}, queue="mail") for number in range(5)])
        assert [job.payload["number"] for job in client.jobs(JobFilter(queue="mail"), page_size=2)] == [4, 3, 2, 1, 0]
        for job in client.jobs(page_size=2):  # left early
            assert job.payload == {"number": 4}
            break
        assert [queue.name for queue in client.queues()] == ["mail"]

    await in_thread(here, work)


async def test_many_threads_share_one_client(here: Site) -> None:
    def work(client: BlockingClient) -> None:
        with ThreadPoolExecutor(16) as pool:
            ids = list(pool.map(lambda number: client.enqueue("send", {"number": number}).id, range(100)))
        assert len(set(ids)) == 100
        assert sum(1 for _ in client.jobs()) == 100

    await in_thread(here, work)


async def test_closing_cancels_waiting_calls(here: Site) -> None:
    ended = threading.Event()

    def work(client: BlockingClient) -> None:
        begun = threading.Event()

        def listen() -> None:
            with pytest.raises((CancelledError, RuntimeError)):
                for _ in client.events():
                    begun.set()
            ended.set()

        threading.Thread(target=listen, daemon=True).start()
        assert begun.wait(10)

    await in_thread(here, work)
    assert await asyncio.to_thread(ended.wait, 10)


def test_not_opened_it_says_so_instead_of_waiting_for_ever() -> None:
    client = BlockingClient("http://127.0.0.1:9")
    with pytest.raises(RuntimeError):
        client.me()
    client.open()
    client.close()
    client.close()
    with pytest.raises(RuntimeError):
        list(client.jobs())


def test_without_its_package_it_says_what_to_install(tmp_path_factory: pytest.TempPathFactory) -> None:
    code = "import sys; sys.modules['httpx2'] = None\nimport jobyard.client"
    response = python("-c", code, cwd=tmp_path_factory.mktemp("none"))
    assert response.returncode != 0
    assert "pip install 'jobyard[client]'" in response.stderr
