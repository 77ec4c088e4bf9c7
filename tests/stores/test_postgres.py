"""PostgreSQL only: connections, notifications across processes, server faults, text that it cannot store."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from tests.conformance.support import new
from tests.servers.postgres import program
from tests.stores.postgres_support import connection, done, exchange, opened, schema, store, until_blocking
from tests.support import PATIENCE_SECONDS, eventually

from jobyard.domain.job import QueueSettings, State
from jobyard.domain.outcome import Failed
from jobyard.errors import BadInput, StoreReadOnly, StoreUnavailable
from jobyard.ports.admin_store import Action
from jobyard.ports.store import Level
from jobyard.stores.postgres import PostgresStore

__all__ = ["connection", "schema", "store"]

T = TypeVar("T")


async def backends(connection: Any, name: str) -> int:
    return int(await connection.fetchval("SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", name))


async def test_connections_are_bounded_and_all_are_closed(postgres_url: str, schema: str, connection: Any) -> None:
    url = f"{postgres_url}?application_name=bounded"
    async with opened(url, schema, connections=3) as store:
        await asyncio.gather(*(store.get(new().id) for _ in range(50)))
        assert 1 <= await backends(connection, "bounded") <= 3
        waiting = asyncio.create_task(store.wait_for_work(["default"], 30))
        while await backends(connection, "bounded") < 2:  # noqa: ASYNC110  # the server sends no signal
            await asyncio.sleep(0.01)
        waiting.cancel()
    while await backends(connection, "bounded"):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_an_exhausted_pool_raises(
    postgres_url: str, schema: str, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobyard.stores.postgres.pool.ACQUIRE_SECONDS", 0.2)
    async with opened(postgres_url, schema, connections=1) as store:
        await store.insert([new()])
        async with connection.transaction():
            await connection.execute(f"LOCK {schema}.jobyard_queue IN ACCESS EXCLUSIVE MODE")
            held = asyncio.create_task(exchange(store, 1))
            await until_blocking(connection)
            with pytest.raises(StoreUnavailable):
                await store.get(new().id)
        assert len((await held).leases) == 1


async def test_a_cancelled_caller_leaks_nothing(postgres_url: str, schema: str, connection: Any) -> None:
    async with opened(postgres_url, schema, connections=2) as store:
        await store.insert([new()])
        async with connection.transaction():
            await connection.execute(f"LOCK {schema}.jobyard_queue IN ACCESS EXCLUSIVE MODE")
            for _ in range(4):
                call = asyncio.create_task(store.exchange("w", [], ["default"], 0, 30.0))
                await until_blocking(connection)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
        assert len((await exchange(store, 1)).leases) == 1


def count_queries(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The named queries that have been answered: a waiter waits once it has found no work."""
    answered: Counter[str] = Counter()
    fetch = store._connection.fetch

    async def counted(name: str, *arguments: Any) -> Any:
        rows = await fetch(name, *arguments)
        answered[name] += 1
        return rows

    monkeypatch.setattr(store._connection, "fetch", counted)
    return answered


async def once_available(call: Callable[[], Awaitable[T]]) -> T:
    """The result of the first call that succeeds: each session that was killed may fail one."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await call()
            except StoreUnavailable:
                await asyncio.sleep(0.05)


async def test_a_killed_session_is_replaced(
    store: PostgresStore, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.insert([new()])
    answered = count_queries(store, monkeypatch)
    waiting = asyncio.create_task(store.wait_for_work(["other"], PATIENCE_SECONDS))
    await eventually(lambda: answered["has_work"])
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'jobyard'"
    )
    assert len((await once_available(lambda: exchange(store, 1))).leases) == 1
    await once_available(lambda: store.insert([new(queue="other")]))
    assert await waiting
    assert await store.audit() == []


def end_sessions(url: str, name: str) -> None:
    end = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = '{name}'"
    subprocess.run([program("psql"), "-q", url, "-c", end], check=True, stdout=subprocess.DEVNULL)


async def test_a_session_that_ended_while_it_was_idle_fails_no_call(postgres_url: str, schema: str) -> None:
    """Nothing of the call was sent, so it runs on another connection."""
    async with opened(f"{postgres_url}?application_name=idle", schema) as store:
        await store.queues()
        # Blocks the event loop, so that the driver does not notice the end before the call below.
        end_sessions(postgres_url, "idle")
        await asyncio.sleep(0)  # the driver reads the server's farewell, and not yet the end of the stream
        assert await store.queues() == []


async def test_an_insert_wakes_a_waiter_of_another_process(
    store: PostgresStore, postgres_url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second store shares only the server with the first, as another process would."""
    monkeypatch.setattr("jobyard.stores.postgres.notifier.LISTENER_POLL_SECONDS", 3600.0)
    answered = count_queries(store, monkeypatch)
    async with opened(postgres_url, schema) as other:
        for queue in ("a", "b"):
            answered.clear()
            waiting = asyncio.create_task(store.wait_for_work([queue], 3600))
            await eventually(lambda: answered["has_work"])
            await other.insert([new(queue=queue)])
            assert await asyncio.wait_for(waiting, PATIENCE_SECONDS)


async def test_a_cancel_and_an_end_reach_another_process(
    store: PostgresStore, postgres_url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = count_queries(store, monkeypatch)
    async with opened(postgres_url, schema) as other:
        await store.insert([new()])
        [lease] = (await exchange(store, 1)).leases
        waiting = asyncio.create_task(store.wait_for_work(["default"], PATIENCE_SECONDS))
        await eventually(lambda: answered["has_work"])
        await other.change(Action.CANCEL, [lease.job_id])
        assert await waiting
        ending = asyncio.create_task(other.wait_for_end(lease.job_id, PATIENCE_SECONDS))
        await eventually(lambda: lease.job_id in other._connection.waiters.ends.awaited)
        await exchange(store, 0, [done(lease)])
        job = await ending
        assert job is not None
        assert job.state is State.COMPLETED


async def test_a_waiter_sees_the_end_of_a_job_that_retention_removes_at_once(store: PostgresStore) -> None:
    await store.configure(
        "default", QueueSettings(keep_completed=0, keep_failed=0, keep_completed_seconds=0, keep_failed_seconds=0)
    )
    jobs = [new() for _ in range(50)]
    await store.insert(jobs)
    waiting = [asyncio.create_task(store.wait_for_end(job.id, PATIENCE_SECONDS)) for job in jobs]
    await eventually(lambda: len(store._connection.waiters.ends.awaited) == len(jobs))
    leases = (await exchange(store, 50)).leases
    await exchange(
        store,
        0,
        [done(lease, None if number % 2 else Failed(message="no", retry=False)) for number, lease in enumerate(leases)],
    )
    ends = [job.state for job in await asyncio.gather(*waiting) if job is not None]
    assert sorted(ends) == [State.COMPLETED] * 25 + [State.FAILED] * 25
    assert await store.audit() == []


async def test_text_that_cannot_be_stored(store: PostgresStore) -> None:
    with pytest.raises(BadInput):
        await store.insert([new(group="a\0b")])
    await store.insert([new()])
    [lease] = (await exchange(store, 1)).leases
    await exchange(store, 0, [done(lease, Failed(message="a\0b", retry=False))])
    job = await store.get(lease.job_id)
    assert job is not None
    assert (job.reason, job.errors[0].message) == ("a␀b", "a\0b")


async def test_a_private_payload_is_erased_on_completion(store: PostgresStore, schema: str, connection: Any) -> None:
    await store.configure("default", QueueSettings(keep_completed=10, keep_completed_seconds=0))
    await store.insert([new(private_payload=b'"secret"'), new(private_payload=b'"secret"')])
    good, bad = (await exchange(store, 2)).leases
    await exchange(store, 0, [done(good), done(bad, Failed(message="no", retry=False))])
    rows = await connection.fetch(f"SELECT id, private_payload FROM {schema}.jobyard_job")
    assert dict(rows) == {good.job_id: None, bad.job_id: b'"secret"'}


async def test_a_read_only_server(store: PostgresStore, postgres_url: str, schema: str) -> None:
    url = f"{postgres_url}?default_transaction_read_only=on"
    async with opened(url, schema) as reader:
        with pytest.raises(StoreReadOnly):
            await reader.insert([new()])
        assert any(finding.level is Level.FAIL and finding.check == "writable" for finding in await reader.diagnose())


async def test_prune_deletes_rows_of_idle_groups(store: PostgresStore, schema: str, connection: Any) -> None:
    await store.insert([new(group=f"g{number}") for number in range(30)])
    await exchange(store, 0, [done(lease) for lease in (await exchange(store, 30)).leases])
    await store.set_limit("default", "kept", 3)
    await store.prune()
    await store.prune()
    assert [row[0] for row in await connection.fetch(f"SELECT name FROM {schema}.jobyard_group")] == ["kept"]


async def test_without_a_schema_the_search_path_decides(postgres_url: str, schema: str, connection: Any) -> None:
    await connection.execute(f"CREATE SCHEMA {schema}")
    async with opened(f"{postgres_url}?search_path={schema}", None) as store:  # type: ignore[arg-type]
        await store.insert([new()])
    assert await connection.fetchval(f"SELECT count(*) FROM {schema}.jobyard_job") == 1


async def test_close_is_idempotent_and_a_closed_store_raises(postgres_url: str, schema: str) -> None:
    store = PostgresStore(postgres_url, schema=schema)
    with pytest.raises(StoreUnavailable):
        await store.get("x")
    await store.open()
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.insert([new()])
    await store.open()
    await store.insert([new()])
    await store.close()


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
async def test_a_waiting_claim_is_served_by_the_insert(
    postgres_url: str, pgbouncer_url: str, schema: str, pooled: bool
) -> None:
    async with opened(pgbouncer_url if pooled else postgres_url, schema, pooled=pooled) as store:
        await store.configure("limited", QueueSettings(max_waiting=1))
        # A new queue, a known one, a limited one, and jobs that are not plain.
        for job in (new(), new(), new(queue="limited"), new(tags=("a",)), new(priority=5, group="g")):
            until = asyncio.get_running_loop().create_future()
            waiting = asyncio.create_task(store.exchange("w", (), (), 5, 30.0, until))
            await eventually(lambda: len(store.waiting_claims))
            [inserted] = await store.insert([job])
            [lease] = (await waiting).leases
            assert (lease.job_id, lease.sequence, lease.priority) == (job.id, inserted.sequence, job.priority)
            assert (await exchange(store, 0, [done(lease)])).refused == ()
        assert await store.audit() == []


async def test_a_duplicate_id_does_not_disturb_a_waiting_claim(store: PostgresStore) -> None:
    known = new()
    await store.insert([known])
    [lease] = (await exchange(store, 1)).leases
    until = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(store.exchange("w", (), (), 5, 30.0, until))
    await eventually(lambda: len(store.waiting_claims))
    with pytest.raises(BadInput):
        await store.insert([known])
    job = new()
    await store.insert([job])
    assert [one.job_id for one in (await waiting).leases] == [job.id]
    assert (await exchange(store, 0, [done(lease)])).refused == ()


FAULTS = [
    "UPDATE {}.jobyard_queue SET waiting = waiting + 1, running = 7, completed = 9",
    "UPDATE {}.jobyard_group SET delayed = delayed + 5, open = NOT open",
    "DELETE FROM {0}.jobyard_group",
    "UPDATE {0}.jobyard_queue SET delayed_after = 1000, delayed_from = (SELECT min(run_at) FROM {0}.jobyard_delayed)",
    "UPDATE {}.jobyard_queue SET line_from = 1000, delayed_from = 9000000000000, completed_from = 1000",
    "INSERT INTO {}.jobyard_unique VALUES ('q', 'k', 'gone', NULL)",
    "DELETE FROM {}.jobyard_queue",
    "UPDATE {}.jobyard_scope SET entries = 7, taken = 3",
    "DELETE FROM {}.jobyard_scope",
    "UPDATE {}.jobyard_job SET flags = 0",
    "INSERT INTO {}.jobyard_history VALUES (999, '', 'a', 999, 1, '1')",
    "INSERT INTO {}.jobyard_scope VALUES (999, '')",
]


async def test_repair_mends_stored_counts_and_cursors(store: PostgresStore, connection: Any, schema: str) -> None:
    await store.insert([new(queue="q"), new(queue="q", group="g")])
    [lease, _] = (await store.exchange("w", [], ["q"], 2, 15)).leases
    await store.exchange("w", [done(lease)], ["q"], 0, 15)
    ready = new(queue="q")
    await store.insert([ready, new(queue="q", delay_seconds=60)])
    await store.signal(ready.id, "go")
    await store.prune()  # what waits in the inbox is folded in
    for fault in FAULTS:
        assert await store.audit() == []
        await connection.execute(fault.format(schema))
        found = await store.audit()
        assert found != []
        assert await store.repair() == found
    assert await store.repair() == []
    assert [lease.job_id for lease in (await store.exchange("w", [], ["q"], 2, 15)).leases] == [ready.id]
