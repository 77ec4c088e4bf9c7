"""Redis store: keys, schema, lost and late commands, connections, diagnostics, audit."""

from __future__ import annotations

import asyncio
import re
import struct
from pathlib import Path

import msgspec
import pytest
from tests.conformance.support import decide_one
from tests.servers import Certificate, RedisServer
from tests.stores.redis_support import jobs, keys, running, server, store, wait_until_disconnected

from jobyard import Jobyard
from jobyard.domain.history import HistoryEntry
from jobyard.domain.job import NewJob, Parent, QueueSettings, State, Unique
from jobyard.domain.schedule import Verdict
from jobyard.domain.state import Settlement, Transition
from jobyard.errors import BadInput, NewerSchema, NotPossible, StoreFull, StoreReadOnly, StoreUnavailable
from jobyard.ports.admin_store import Action, Filter
from jobyard.ports.record_store import LogEntry
from jobyard.ports.store import Finding, Level
from jobyard.ports.workflow_store import Checkpoint
from jobyard.stores.redis import RedisStore
from jobyard.stores.redis.scripts import library

__all__ = ["server", "store"]

DONE = Transition(to=State.COMPLETED, result=b"null")
FAILED = Transition(to=State.FAILED, reason="no")


async def test_every_key_of_a_queue_has_its_name_as_hash_tag(store: RedisStore) -> None:
    name = "a{b}%c"
    await store.insert(jobs("one", "two", queue=name, group="{g}", tags=("t",), unique=Unique("k")))
    await store.insert(jobs("later", queue=name, delay_seconds=60, private_payload=b"1"))
    [lease] = (await store.exchange("w", [], [name], 1, 15)).leases
    assert (lease.queue, lease.group) == (name, "{g}")
    await store.exchange("w", [Settlement(lease.key, DONE)], [name], 0, 15)
    shared = {"counter", "queues", "turns", "due", "schema", "answer:w:0"}
    tags = set()
    for key in await keys(store):
        _, _, rest = key.partition("jobyard:")
        if rest not in shared:
            tags.add(re.match(r"\{([^}]*)\}", rest)[1])  # type: ignore[index]
    assert tags == {"a%7Bb%7D%25c"}
    assert [info.name for info in await store.queues()] == [name]


async def test_pruned_jobs_leave_no_keys(store: RedisStore) -> None:
    await store.configure("default", QueueSettings(keep_completed=0, keep_completed_seconds=0))
    for number in range(3):
        options = {"group": f"g{number}", "tags": ("t",), "unique": Unique(f"k{number}"), "private_payload": b"1"}
        await store.insert(jobs(f"job-{number}", **options))
    leases = (await store.exchange("w", [], [], 3, 15)).leases
    await store.exchange("w", [Settlement(lease.key, DONE) for lease in leases], [], 0, 15)
    await store.prune()
    await store.reclaim()
    left = {key for key in await keys(store) if "{default}" in key}
    assert left == {"jobyard:{default}:queue"}


async def test_private_payload_is_erased_on_completion_and_kept_on_failure(store: RedisStore) -> None:
    await store.insert(jobs("good", "bad", private_payload=b'"secret"'))
    good, bad = (await store.exchange("w", [], [], 2, 15)).leases
    assert good.private_payload == b'"secret"'
    await store.exchange("w", [Settlement(good.key, DONE), Settlement(bad.key, FAILED)], [], 0, 15)
    assert await store.client.execute("HVALS", "jobyard:{default}:private") == [b'"secret"']


async def test_transactions_are_rejected(store: RedisStore) -> None:
    assert not store.has_transactions
    with pytest.raises(NotPossible):
        await store.insert(jobs("one"), transaction=object())
    await store.insert(jobs("one"))
    [lease] = (await store.exchange("w", [], [], 1, 15)).leases
    with pytest.raises(NotPossible):
        await store.settle(Settlement(lease.key, DONE), object())


async def test_newer_schema_is_rejected(server: RedisServer) -> None:
    server.ask("SET", "newer:schema", "99")
    store = RedisStore(server.url, prefix="newer")
    with pytest.raises(NewerSchema):
        await store.open()
    with pytest.raises(StoreUnavailable):
        await store.get("one")


async def test_migrations_are_listed_without_opening(server: RedisServer) -> None:
    store = RedisStore(server.url, prefix="fresh")
    assert [one.applied for one in await store.migrations()] == [False] * 4
    await store.open()
    assert [one.applied for one in await store.migrations()] == [True] * 4
    await store.close()


async def test_data_of_schema_1_is_upgraded(server: RedisServer) -> None:
    server.ask("SET", "older:schema", "1")
    for data in ("first", "second"):
        server.ask("RPUSH", "older:log:audit", struct.pack(">d", 2.0).decode() + data)
    store = RedisStore(server.url, prefix="older")
    assert [one.applied for one in await store.migrations()] == [True, False, False, False]
    await store.open()
    assert [one.applied for one in await store.migrations()] == [True] * 4
    assert await store.read("audit", after=1) == [LogEntry(2, 2, b"second")]
    assert await store.append("audit", b"third") == 3
    await store.close()


# Lost, late and unknown commands


async def test_a_repeated_exchange_is_replayed(store: RedisStore) -> None:
    await store.insert(jobs("one", "two", "three"))
    [first] = (await store.exchange("w", [], [], 1, 15)).leases
    request = {
        "worker": "w",
        "token": "a" * 16,
        "lease": 15_000,
        "wanted": 1,
        "queues": [],
        "settled": [False, f"{first.sequence:015d}", first.job_id, first.token, True],
        "slot": 0,
    }
    response = await store.client.call("exchange", dict(request))
    again = await store.client.call("exchange", dict(request))
    # Everything but the next due time, which is not stored with the response.
    assert [*again[:6], *again[7:]] == [*response[:6], *response[7:]]
    assert (again[0], [int(seq) for seq in again[2]]) == ([], [2])
    info = (await store.queues())[0]
    assert (info.waiting, info.running, info.completed) == (1, 1, 1)


async def test_an_exchange_is_retried_when_its_reply_is_lost(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.insert(jobs("one"))
    connection = await store.client.pool.connection()
    # The command is sent; the connection closes when the reply arrives.
    monkeypatch.setattr(connection, "data_received", lambda data: connection.close())
    [lease] = (await store.exchange("w", [], [], 1, 15)).leases
    assert lease.job_id == "one"
    assert (await store.exchange("w", [Settlement(lease.key, DONE)], [], 0, 15)).refused == ()
    assert await store.audit() == []


async def test_a_late_command_is_not_executed(store: RedisStore) -> None:
    await store.insert(jobs("one"))
    request = {"worker": "w", "token": "a" * 16, "lease": 15_000, "wanted": 1, "queues": [], "settled": []}
    *_, packed = store.client.encode_call("exchange", request)
    assert isinstance(packed, bytes)
    late = msgspec.msgpack.decode(packed) | {"deadline": 1}
    with pytest.raises(StoreUnavailable):
        await store.client.execute(
            "FCALL", f"{library().name}_exchange", 0, store.client.prefix, msgspec.msgpack.encode(late)
        )
    assert (await store.queues())[0].running == 0


async def test_the_clock_offset_is_measured_again_after_a_jump(store: RedisStore) -> None:
    store.client._clock_offset_ms -= 3_600_000
    await store.insert(jobs("one"))
    store.client._clock_offset_ms -= 3_600_000
    assert len((await store.exchange("w", [], [], 1, 15)).leases) == 1


async def test_the_library_is_loaded_again_after_a_flush(server: RedisServer, store: RedisStore) -> None:
    server.ask("FUNCTION", "FLUSH")
    await store.insert(jobs("one"))
    server.ask("FUNCTION", "FLUSH")
    assert len((await store.exchange("w", [], [], 1, 15)).leases) == 1


# Connections


async def test_a_cancelled_caller_leaves_the_connection_usable(store: RedisStore, server: RedisServer) -> None:
    await store.get("warm")
    before = server.connections()
    for number in range(200):
        task = asyncio.create_task(store.insert(jobs(f"job-{number}")))
        await asyncio.sleep(0)
        if number % 2:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert await store.get("missing") is None
    assert server.connections() == before
    assert await store.audit() == []


async def test_connections_are_limited_and_closed(server: RedisServer) -> None:
    await wait_until_disconnected(server)
    store = RedisStore(server.url, connections=3)
    await store.open()
    await asyncio.gather(*(store.get(str(number)) for number in range(500)))
    assert server.connections() == 3
    await store.close()
    await store.close()
    await wait_until_disconnected(server)


async def test_concurrent_inserts_share_a_command_and_fail_separately(store: RedisStore, server: RedisServer) -> None:
    await store.configure("full", QueueSettings(max_waiting=0))
    server.ask("CONFIG", "RESETSTAT")
    calls = [store.insert(jobs(f"job-{number}")) for number in range(50)]
    calls += [store.insert(jobs("job-3")), store.insert(jobs("x", queue="full")), store.insert(jobs("\udc80"))]
    responses = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(response, list) for response in responses] == [True] * 50 + [False] * 3
    assert all(isinstance(response, BadInput) for response in responses[50:])
    # The first call is sent at once, the others in one batch.
    assert b"cmdstat_fcall:calls=2," in server.ask("INFO", "commandstats")
    assert (await store.queues())[0].waiting == 50


async def test_password_and_tls_and_a_url_without_credentials(tmp_path: Path) -> None:
    certificate = Certificate(tmp_path)
    with running(password="s3cret word", certificate=certificate) as server:
        host = f"127.0.0.1:{server.port}/2"
        good = f"rediss://:s3cret%20word@{host}?ssl_ca_certs={certificate.authority}"
        store = RedisStore(good)
        await store.open()
        await store.insert(jobs("one"))
        assert store.url == f"rediss://{host}"
        await store.close()
        for bad in (good.replace("s3cret", "other"), good.replace(":s3cret%20word@", ""), f"rediss://:x@{host}"):
            with pytest.raises(StoreUnavailable) as caught:
                await RedisStore(bad).open()
            assert "s3cret" not in str(caught.value)


# Diagnostics and server faults


def level(findings: list[Finding], what: str) -> Level:
    [found] = [finding.level for finding in findings if finding.check == what]
    return found


async def test_diagnose_reports_persistence_memory_and_role() -> None:
    with running(appendonly="no") as server:
        store = RedisStore(server.url)
        findings = await store.diagnose()
        assert level(findings, "persistence") is Level.WARN
        assert level(findings, "memory") is Level.OK
        server.ask("CONFIG", "SET", "appendonly", "yes")
        server.ask("CONFIG", "SET", "maxmemory", "3mb")
        server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        findings = await store.diagnose()
        assert level(findings, "persistence") is Level.OK
        assert level(findings, "eviction") is Level.FAIL
        server.ask("REPLICAOF", "127.0.0.1", "1")
        assert level(await store.diagnose(), "role") is Level.FAIL
        server.kill()
    with pytest.raises(StoreUnavailable):
        await store.diagnose()


async def test_a_worker_warns_of_a_redis_that_may_lose_jobs(caplog: pytest.LogCaptureFixture) -> None:
    with running(appendonly="no") as server:
        caplog.set_level("WARNING", "jobyard.store")
        yard = Jobyard(server.url)
        async with yard, yard.worker():
            assert "no append-only file" in caplog.text
            assert "eviction" not in caplog.text
        caplog.clear()
        server.ask("CONFIG", "SET", "appendonly", "yes")
        server.ask("CONFIG", "SET", "maxmemory", "100mb")
        server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        yard = Jobyard(server.url)
        async with yard, yard.worker():
            [record] = [record for record in caplog.records if record.name == "jobyard.store"]
        assert "allkeys-lru: when memory is full, Redis deletes jobs. Set maxmemory-policy" in record.getMessage()
        caplog.clear()
        server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
        yard = Jobyard(server.url)
        async with yard, yard.worker():
            assert caplog.text == ""


async def test_a_replica_is_rejected_and_disconnected(server: RedisServer, store: RedisStore) -> None:
    server.ask("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(StoreReadOnly):
            await store.insert(jobs("one"))
        # The host name may point to another server by now, so no connection to this one is kept.
        await wait_until_disconnected(server)
    finally:
        server.ask("REPLICAOF", "NO", "ONE")
    assert len(await store.insert(jobs("two"))) == 1


async def test_too_few_replicas_are_an_outage(server: RedisServer, store: RedisStore) -> None:
    await store.insert(jobs("one"))
    server.ask("CONFIG", "SET", "min-replicas-to-write", "1")
    try:
        with pytest.raises(StoreUnavailable, match="min-replicas-to-write"):
            await store.insert(jobs("two"))
        with pytest.raises(StoreUnavailable, match="min-replicas-to-write"):
            await store.exchange("w", [], [], 1, 15)
        assert [job.id for job in (await store.find(Filter())).jobs] == ["one"]
    finally:
        server.ask("CONFIG", "SET", "min-replicas-to-write", "0")
    assert len((await store.exchange("w", [], [], 1, 15)).leases) == 1
    assert await store.audit() == []


async def test_full_memory_rejects_inserts_but_not_exchanges() -> None:
    with running() as server:
        store = RedisStore(server.url)
        await store.open()
        await store.insert(jobs(*(f"job-{number}" for number in range(50)), group="g"))
        server.ask("CONFIG", "SET", "maxmemory", "1mb")
        with pytest.raises(StoreFull):
            await store.insert(jobs("one"))
        leases = (await store.exchange("w", [], [], 30, 15)).leases
        assert len(leases) == 30
        assert (await store.extend("w", [lease.key for lease in leases], 15)).lost == ()
        response = await store.exchange("w", [Settlement(lease.key, DONE) for lease in leases], [], 5, 15)
        assert (response.refused, len(response.leases)) == ((), 5)
        server.ask("CONFIG", "SET", "maxmemory", "0")
        await store.insert(jobs("one"))
        assert await store.audit() == []
        await store.close()


FAULTS = [
    ("HDEL", "jobyard:{q}:jobs", "000000000000001"),
    ("HDEL", "jobyard:{q}:ids", "done"),
    ("DEL", "jobyard:{q}:ready:ready"),
    ("DEL", "jobyard:{q}:delayed"),
    ("DEL", "jobyard:{q}:leases"),
    ("DEL", "jobyard:{q}:lease:w"),
    ("DEL", "jobyard:{q}:done"),
    ("DEL", "jobyard:{q}:completed"),
    ("DEL", "jobyard:{q}:groups"),
    ("HDEL", "jobyard:{q}:groups", "later"),
    ("DEL", "jobyard:{q}:names"),
    ("DEL", "jobyard:{q}:line"),
    ("ZADD", "jobyard:{q}:line", "5", "runs"),
    ("DEL", "jobyard:{q}:queue"),
    ("DEL", "jobyard:{q}:block"),
    ("DEL", "jobyard:turns"),
    ("DEL", "jobyard:due"),
    ("ZADD", "jobyard:{q}:ready:ready", "0", "000000000000999"),
    ("ZADD", "jobyard:{q}:ready:ready", "0", "000000000000002"),
    ("ZADD", "jobyard:{q}:delayed", "1", "000000000000999"),
    ("HSET", "jobyard:{q}:past", "000000000000999", "x"),
    ("SADD", "jobyard:{q}:extras", "000000000000999"),
    ("HSET", "jobyard:{q}:unique", "k", "12345678\x01gone"),
    ("HSET", "jobyard:{q}:parents", "000000000000999", "{}"),
    ("DEL", "jobyard:{q}:parents"),
    ("DEL", "jobyard:{q}:history:000000000000002"),
    ("DEL", "jobyard:{q}:signals_order:000000000000002"),
    ("DEL", "jobyard:{q}:ended"),
    ("DEL", "jobyard:{q}:ended_order"),
    ("DEL", "jobyard:ended"),
    ("DEL", "jobyard:armed"),
    ("ZADD", "jobyard:armed", "0", "never armed"),
    ("ZADD", "jobyard:ticks:nightly", "1001", "undecided"),
    ("ZADD", "jobyard:ticks:nightly", *(word for at in range(100) for word in (str(at), str(at)))),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: " ".join(fault[:2]))
async def test_audit_finds_planted_faults(store: RedisStore, fault: tuple[str, ...]) -> None:
    await store.insert(jobs("done", queue="q", group="ends", parent=Parent("p", "s", "k")))
    [lease] = (await store.exchange("w", [], [], 1, 15)).leases
    await store.exchange("w", [Settlement(lease.key, DONE)], [], 0, 15)
    await store.insert(jobs("runs", queue="q", group="runs", is_workflow=True))
    [lease] = (await store.exchange("w", [], [], 1, 15)).leases
    await store.checkpoint([Checkpoint(key=lease.key, entries=(HistoryEntry(key="a"),))])
    await store.signal("runs", "go")
    await store.insert(jobs("ready", queue="q", group="ready"))
    await store.insert(jobs("later", queue="q", group="later", delay_seconds=900))
    await store.arm("nightly", 1, since=0)
    await decide_one(store, 1000, verdict=Verdict.MISSED)
    assert await store.audit() == []
    await store.client.execute(*fault)
    assert await store.audit() != []


async def test_a_page_examines_a_limited_number_of_jobs(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that matches few jobs returns short pages with a cursor; all pages together are complete."""
    monkeypatch.setattr("jobyard.stores.redis.jobs.MAX_EXAMINED", 10)
    monkeypatch.setattr("jobyard.stores.redis.jobs.EXAMINED_PER_COMMAND", 5)
    rare = {3, 27, 41}
    await store.insert(
        [
            NewJob(id=f"{n:03}", kind="k", queue=f"q{n % 2}", payload=b'"rare"' if n in rare else b'"usual"')
            for n in range(50)
        ]
    )
    found: list[str] = []
    cursor, pages = None, 0
    while True:
        page = await store.find(Filter(text="rare"), 2, cursor)
        found += [job.id for job in page.jobs]
        pages, cursor = pages + 1, page.cursor
        if cursor is None:
            break
    assert found == ["041", "027", "003"]
    assert pages >= 5


async def test_find_skips_blocks_of_deleted_jobs(store: RedisStore, server: RedisServer) -> None:
    await store.insert(jobs("oldest"))
    await store.insert(jobs(*(f"job-{number}" for number in range(5000)), queue="other"))
    await store.change(Action.DELETE, [f"job-{number}" for number in range(4999)])
    server.ask("CONFIG", "RESETSTAT")
    page = await store.find(Filter(), 10)
    assert ([job.id for job in page.jobs], page.cursor) == (["job-4999", "oldest"], None)
    assert b"cmdstat_fcall:calls=1," in server.ask("INFO", "commandstats")


async def test_invalid_text_and_cursors_are_rejected(store: RedisStore) -> None:
    with pytest.raises(BadInput):
        await store.get("\udc80")
    with pytest.raises(BadInput):
        await store.signal("\udc80", "go")
    with pytest.raises(BadInput):
        await store.find(Filter(), cursor="zzz")
