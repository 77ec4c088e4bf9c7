"""What administrators and applications do to the same database: dumps, scripts, open transactions, many workers."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.conformance.support import LEASE_SECONDS, new, settlement
from tests.servers import PostgresServer
from tests.servers.postgres import program
from tests.servers.proxy import Proxy
from tests.story.engines import empty_store
from tests.support import eventually

from jobyard.config.store_factory import make_store
from jobyard.domain.job import QueueSettings, Unique
from jobyard.domain.outcome import Done
from jobyard.errors import StoreUnavailable
from jobyard.ports.store import Store


def psql(url: str, text: str) -> None:
    subprocess.run([program("psql"), "-q", "-v", "ON_ERROR_STOP=1", "-1", url], input=text, text=True, check=True)


def pg_dump(url: str, schema: str) -> str:
    words = [str(program("pg_dump")), f"--schema={schema}", url]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


async def claimed(store: Store, wanted: int = 10) -> int:
    return len((await store.exchange("worker", [], [], wanted, LEASE_SECONDS)).leases)


async def test_a_claim_takes_only_from_queues_that_it_has_locked(tmp_path: Path) -> None:
    """Four queues with max_running 1, and workers that claim from all of them."""
    with empty_store("postgres", tmp_path) as url:
        store = make_store(url)
        await store.open()
        names = ["a", "b", "c", "d"]
        for name in names:
            await store.configure(name, QueueSettings(max_running=1))
        most, stop = 0, asyncio.Event()

        async def insert() -> None:
            for number in range(120):
                await store.insert([new(queue=names[number % 4], group=f"g{number % 3}")])

        async def work(worker: str) -> None:
            nonlocal most
            while not stop.is_set():
                for lease in (await store.exchange(worker, [], names, 4, LEASE_SECONDS)).leases:
                    most = max(most, *(queue.running for queue in await store.queues()))
                    await store.exchange(worker, [settlement(lease, Done())], names, 0, LEASE_SECONDS)

        async def idle() -> bool:
            return not any(queue.waiting or queue.running for queue in await store.queues())

        workers = [asyncio.create_task(work(f"worker-{number}")) for number in range(5)]
        await insert()
        await eventually(idle)
        stop.set()
        await asyncio.gather(*workers)
        assert most == 1
        assert await store.audit() == []
        await store.close()


async def test_a_dump_restored_on_another_server_works(postgres_url: str) -> None:
    """For a process that starts there, and for one that ran meanwhile and connects again."""
    connection = await asyncpg.connect(postgres_url)
    with Proxy(int(urlsplit(postgres_url).port or 0)) as proxy, PostgresServer() as server:
        running = make_store(f"{proxy.through(postgres_url)}?schema=restored")
        await running.open()
        await running.insert([new()])
        for _ in range(30):  # the new server has used fewer transaction ids
            await connection.execute("SELECT pg_current_xact_id()")
        assert await claimed(running) == 1
        psql(server.url, pg_dump(postgres_url, "restored"))
        await connection.execute("DROP SCHEMA restored CASCADE")
        proxy.move(server.port)
        await eventually(lambda: succeeds(running.insert([new(), new()])))
        assert await claimed(running) == 2
        own = await asyncpg.connect(server.url)
        async with own.transaction():
            await running.insert([new()], own)
        await own.close()
        assert await claimed(running) == 1
        started = make_store(f"{server.url}?schema=restored")
        await started.open()
        await started.insert([new(), new()])
        assert await claimed(started) == 2
        assert await started.audit() == []
        await started.close()
        await running.close()
    await connection.close()


async def succeeds(call: Awaitable[object]) -> bool:
    try:
        await call
    except StoreUnavailable:
        return False
    return True


async def test_the_printed_sql_is_complete(tmp_path: Path) -> None:
    with empty_store("postgres", tmp_path) as url:
        store = make_store(url)
        text = "\n".join(step.text for step in await store.migrations())
        psql(url.partition("?")[0], text)
        assert all(step.applied for step in await store.migrations())
        await store.open()
        await store.insert([new()])
        assert await claimed(store) == 1
        await store.close()


async def test_a_key_in_an_open_transaction_blocks_no_other_insert(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobyard.stores.postgres.pool.MAX_BACKOFF_SECONDS", 0.01)
    with empty_store("postgres", tmp_path) as url:
        store = make_store(url)
        await store.open()
        connection = await asyncpg.connect(postgres_url)
        transaction = connection.transaction()
        await transaction.start()
        await store.insert([new(unique=Unique("k"))], connection)
        same = asyncio.create_task(store.insert([new(unique=Unique("k"))]))
        async with asyncio.timeout(60):
            others = await asyncio.gather(*(store.insert([new()]) for _ in range(3)))
        assert all(one.created for [one] in others)
        assert await claimed(store) == 3
        await transaction.rollback()
        with suppress(StoreUnavailable):  # its retries may have run out before the rollback
            [response] = await same
            assert response.created
        await connection.close()
        await store.close()
