"""Rare cases: locked rows, restricted servers, closing, other event loops, lost responses."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import asyncpg
import pytest
from tests.conformance.support import LEASE_SECONDS, new, settlement
from tests.servers import PostgresServer
from tests.stores.postgres_support import connection, schema, store
from tests.support import eventually

from jobyard.config.store_factory import make_store
from jobyard.domain.job import QueueSettings
from jobyard.domain.outcome import Done
from jobyard.errors import NotPossible, StoreUnavailable
from jobyard.stores.postgres import PostgresStore
from jobyard.stores.postgres.claim import PostgresClaim

__all__ = ["connection", "schema", "store"]

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


async def test_an_exchange_does_not_touch_a_queue_created_while_it_waits(
    store: PostgresStore, schema: str, postgres_url: str, connection: Any
) -> None:
    other = await asyncpg.connect(postgres_url)
    hold = f"SELECT FROM {schema}.jobyard_queue WHERE name = $1 FOR UPDATE"
    await store.insert([new(queue="a")])
    [lease] = (await store.exchange("w", [], ["a", "b"], 1, LEASE_SECONDS)).leases
    async with connection.transaction():
        await connection.fetch(hold, "a")
        waiting = asyncio.create_task(store.exchange("w", [settlement(lease, Done())], ["a", "b"], 10, LEASE_SECONDS))

        async def is_blocked() -> bool:
            return bool(await other.fetchval(WAITING))

        await eventually(is_blocked)
        await store.insert([new(queue="b")])
        # Another worker folds the job into queue b, which the waiting exchange has not seen.
        await store.exchange("v", [], ["b"], 0, LEASE_SECONDS)
        # Queue b is locked from here on; the exchange continues when the block ends.
        await other.execute("BEGIN")
        await other.fetch(hold, "b")
    response = await asyncio.wait_for(waiting, 60)
    assert (response.leases, response.refused) == ((), ())
    await other.execute("ROLLBACK")
    await other.close()
    assert len((await store.exchange("w", [], ["a", "b"], 10, LEASE_SECONDS)).leases) == 1
    assert await store.audit() == []


async def test_a_server_that_hides_its_system_identifier() -> None:
    with PostgresServer() as server:
        owner = await asyncpg.connect(server.url)
        await owner.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
        await owner.execute("CREATE ROLE app LOGIN; CREATE SCHEMA app AUTHORIZATION app")
        await owner.close()
        url = server.url.replace("postgres@", "app@")
        store = make_store(f"{url}?schema=app")
        assert store.url.endswith("?schema=app")
        await store.open()
        own = await asyncpg.connect(url)
        async with own.transaction():
            await store.insert([new()], own)
        assert len((await store.exchange("w", [], [], 10, LEASE_SECONDS)).leases) == 1
        await own.close()
        await store.close()


async def test_close_sends_pending_inserts(postgres_url: str, schema: str, connection: Any) -> None:
    store = make_store(f"{postgres_url}?schema={schema}")
    await store.open()
    inserts = [asyncio.create_task(store.insert([new()])) for _ in range(50)]
    await asyncio.sleep(0)
    await store.close()
    assert all(inserted.created for response in await asyncio.gather(*inserts) for inserted in response)
    assert await connection.fetchval(f'SELECT count(*) FROM "{schema}".jobyard_job') == 50


async def test_another_event_loop_is_rejected(store: PostgresStore) -> None:
    errors: list[NotPossible] = []

    def elsewhere() -> None:
        for verb in (store.insert([new()]), store.queues()):
            try:
                asyncio.run(verb)
            except NotPossible as error:
                errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert len(errors) == 2


async def test_a_failed_transaction_is_rejected(store: PostgresStore, connection: Any) -> None:
    transaction = connection.transaction()
    await transaction.start()
    with pytest.raises(asyncpg.PostgresError):
        await connection.execute("SELECT 1 / 0")
    with pytest.raises(NotPossible):
        await store.insert([new()], connection)
    await transaction.rollback()


async def test_leases_of_a_lost_response_are_returned_by_the_next_exchange(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.configure("q", QueueSettings(max_running=2))
    await store.insert([new(queue="q"), new(queue="q")])
    send = PostgresClaim.send

    async def lose_response(*arguments: Any) -> Any:
        await send(*arguments)
        raise StoreUnavailable("the network lost the response")

    monkeypatch.setattr(PostgresClaim, "send", lose_response)
    with pytest.raises(StoreUnavailable):
        await store.exchange("w", [], ["q"], 2, LEASE_SECONDS)
    monkeypatch.undo()
    assert [queue.running for queue in await store.queues()] == [2]
    response = await store.exchange("w", [], ["q"], 2, LEASE_SECONDS)
    # As if the leases had expired, but at once.
    assert [(lease.attempt, lease.deaths) for lease in response.leases] == [(1, 1), (1, 1)]
    assert response.refused == ()
    # Leases of a response that arrived are not returned.
    again = await store.exchange("w", [settlement(lease, Done()) for lease in response.leases], ["q"], 2, LEASE_SECONDS)
    assert (again.leases, again.refused) == ((), ())
    assert await store.audit() == []
