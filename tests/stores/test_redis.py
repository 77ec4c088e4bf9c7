"""What only Redis has: its keys, its memory, its clock, commands that are lost, late or unknown."""

from __future__ import annotations

import asyncio
import re
import struct
from pathlib import Path

import msgspec
import pytest
from tests.conformance.support import decide_one
from tests.servers import Certificate, RedisServer
from tests.stores.redis_support import alone, jobs, keys, running, server, store

from jobyard.domain.job import NewJob, QueueSettings, State, Unique
from jobyard.domain.schedule import Verdict
from jobyard.domain.state import Settlement, Transition
from jobyard.errors import BadInput, NewerSchema, NotPossible, StoreFull, StoreReadOnly, StoreUnavailable
from jobyard.ports.admin_store import Action, Filter
from jobyard.ports.record_store import LogEntry
from jobyard.ports.store import Finding, Level
from jobyard.stores.redis import RedisStore
from jobyard.stores.redis.exchange import EXCHANGE

__all__ = ["server", "store"]

DONE = Transition(to=State.COMPLETED, result=b"null")
FAILED = Transition(to=State.FAILED, reason="no")


async def test_every_key_of_a_queue_carries_its_name_as_the_only_tag(store: RedisStore) -> None:
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


async def test_nothing_is_left_of_jobs_that_are_gone(store: RedisStore) -> None:
    await store.configure("default", QueueSettings(keep_completed=0))
    for number in range(3):
        options = {"group": f"g{number}", "tags": ("t",), "unique": Unique(f"k{number}"), "private_payload": b"1"}
        await store.insert(jobs(f"job-{number}", **options))
    leases = (await store.exchange("w", [], [], 3, 15)).leases
    await store.exchange("w", [Settlement(lease.key, DONE) for lease in leases], [], 0, 15)
    await store.prune()
    await store.reclaim()
    left = {key for key in await keys(store) if "{default}" in key}
    assert left == {"jobyard:{default}:queue"}


async def test_a_private_payload_is_erased_at_a_good_end_and_kept_for_a_redrive(store: RedisStore) -> None:
    await store.insert(jobs("good", "bad", private_payload=b'"tell nobody"'))
    good, bad = (await store.exchange("w", [], [], 2, 15)).leases
    assert good.private_payload == b'"tell nobody"'
    await store.exchange("w", [Settlement(good.key, DONE), Settlement(bad.key, FAILED)], [], 0, 15)
    assert await store._server.ask("HVALS", "jobyard:{default}:private") == [b'"tell nobody"']


async def test_there_are_no_transactions_to_join(store: RedisStore) -> None:
    assert not store.has_transactions
    with pytest.raises(NotPossible, match="no transaction"):
        await store.insert(jobs("one"), transaction=object())
    await store.insert(jobs("one"))
    [lease] = (await store.exchange("w", [], [], 1, 15)).leases
    with pytest.raises(NotPossible, match="no transaction"):
        await store.settle(Settlement(lease.key, DONE), object())


async def test_a_newer_schema_is_refused(server: RedisServer) -> None:
    server.ask("SET", "newer:schema", "3")
    store = RedisStore(server.url, prefix="newer")
    with pytest.raises(NewerSchema):
        await store.open()
    with pytest.raises(StoreUnavailable):
        await store.get("one")


async def test_migrations_are_told_without_opening(server: RedisServer) -> None:
    store = RedisStore(server.url, prefix="fresh")
    assert [one.applied for one in await store.migrations()] == [False, False]
    await store.open()
    assert [one.applied for one in await store.migrations()] == [True, True]
    await store.close()


async def test_what_the_first_layout_holds_goes_on(server: RedisServer) -> None:
    server.ask("SET", "older:schema", "1")
    for data in ("first", "second"):
        server.ask("RPUSH", "older:log:audit", struct.pack(">d", 2.0).decode() + data)
    store = RedisStore(server.url, prefix="older")
    assert [one.applied for one in await store.migrations()] == [True, False]
    await store.open()
    assert [one.applied for one in await store.migrations()] == [True, True]
    assert await store.read("audit", after=1) == [LogEntry(2, 2, b"second")]
    assert await store.append("audit", b"third") == 3
    await store.close()


# Commands that were lost, late or unknown


async def test_an_exchange_asked_again_is_done_once(store: RedisStore) -> None:
    await store.insert(jobs("one", "two", "three"))
    [first] = (await store.exchange("w", [], [], 1, 15)).leases
    home = store._homes.of(first.sequence)
    question = {
        "worker": "w",
        "token": "a" * 16,
        "lease": 15_000,
        "wanted": 1,
        "queues": [],
        "settled": [home, f"{first.sequence:015d}", first.job_id, first.token, True],
        "slot": 0,
    }
    answer = await store._server.run(EXCHANGE, dict(question))
    again = await store._server.run(EXCHANGE, dict(question))
    # All but the next due time, which is not kept.
    assert [*again[:6], *again[7:]] == [*answer[:6], *answer[7:]]
    assert (again[0], [int(seq) for seq in again[2]]) == ([], [2])
    info = (await store.queues())[0]
    assert (info.waiting, info.running, info.completed) == (1, 1, 1)


async def test_a_lost_answer_is_fetched_again(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.insert(jobs("one"))
    station = store._server.station
    link = await station.link()
    # The command goes out; the way back is cut.
    monkeypatch.setattr(link, "data_received", lambda data: link.close())
    [lease] = (await store.exchange("w", [], [], 1, 15)).leases
    assert lease.job_id == "one"
    assert (await store.exchange("w", [Settlement(lease.key, DONE)], [], 0, 15)).refused == ()
    assert await store.audit() == []


async def test_a_late_command_does_nothing(store: RedisStore) -> None:
    await store.insert(jobs("one"))
    question = {"worker": "w", "token": "a" * 16, "lease": 15_000, "wanted": 1, "queues": [], "settled": []}
    *_, packed = store._server.words(EXCHANGE, question)
    assert isinstance(packed, bytes)
    past = msgspec.msgpack.decode(packed) | {"useful_until": 1}
    with pytest.raises(StoreUnavailable, match="too long"):
        await store._server.ask("FCALL", EXCHANGE, 0, store._server.prefix, msgspec.msgpack.encode(past))
    assert (await store.queues())[0].running == 0


async def test_a_clock_that_jumps_is_read_again(store: RedisStore) -> None:
    store._server._ahead -= 3_600_000
    await store.insert(jobs("one"))
    store._server._ahead -= 3_600_000
    assert len((await store.exchange("w", [], [], 1, 15)).leases) == 1


async def test_commands_that_the_server_lost_are_brought_again(server: RedisServer, store: RedisStore) -> None:
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
        assert await store.get("nobody") is None
    assert server.connections() == before
    assert await store.audit() == []


async def test_connections_are_bounded_and_let_go(server: RedisServer) -> None:
    await alone(server)
    store = RedisStore(server.url, connections=3)
    await store.open()
    await asyncio.gather(*(store.get(str(number)) for number in range(500)))
    assert server.connections() == 3
    await store.close()
    await store.close()
    await alone(server)


async def test_calls_that_meet_travel_together_and_fail_apart(store: RedisStore, server: RedisServer) -> None:
    await store.configure("full", QueueSettings(max_waiting=0))
    server.ask("CONFIG", "RESETSTAT")
    calls = [store.insert(jobs(f"job-{number}")) for number in range(50)]
    calls += [store.insert(jobs("job-3")), store.insert(jobs("x", queue="full")), store.insert(jobs("\udc80"))]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(answer, list) for answer in answers] == [True] * 50 + [False] * 3
    assert all(isinstance(answer, BadInput) for answer in answers[50:])
    # The first goes at once, all the others together.
    assert b"cmdstat_fcall:calls=2," in server.ask("INFO", "commandstats")
    assert (await store.queues())[0].waiting == 50


async def test_password_tls_and_a_url_that_hides_them(tmp_path: Path) -> None:
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


# The engine below


def level(findings: list[Finding], what: str) -> Level:
    [found] = [finding.level for finding in findings if finding.check == what]
    return found


async def test_what_is_wrong_with_the_engine_is_found() -> None:
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


async def test_a_replica_is_not_written(server: RedisServer, store: RedisStore) -> None:
    server.ask("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(StoreReadOnly):
            await store.insert(jobs("one"))
        # Behind the name there may be another server by now: no connection to this one is kept.
        await asyncio.sleep(0)
        assert all(not link.is_open for link in store._server.station._links)
    finally:
        server.ask("REPLICAOF", "NO", "ONE")
    assert len(await store.insert(jobs("two"))) == 1


async def test_a_full_memory_refuses_new_jobs_and_lets_work_go_on() -> None:
    with running() as server:
        store = RedisStore(server.url)
        await store.open()
        await store.insert(jobs(*(f"job-{number}" for number in range(50)), group="g"))
        server.ask("CONFIG", "SET", "maxmemory", "1mb")
        with pytest.raises(StoreFull, match="maxmemory"):
            await store.insert(jobs("one"))
        leases = (await store.exchange("w", [], [], 30, 15)).leases
        assert len(leases) == 30
        assert (await store.extend("w", [lease.key for lease in leases], 15)).lost == ()
        answer = await store.exchange("w", [Settlement(lease.key, DONE) for lease in leases], [], 5, 15)
        assert (answer.refused, len(answer.leases)) == ((), 5)
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
    ("DEL", "jobyard:armed"),
    ("ZADD", "jobyard:armed", "0", "never armed"),
    ("ZADD", "jobyard:ticks:nightly", "1001", "undecided"),
    ("ZADD", "jobyard:ticks:nightly", *(word for at in range(100) for word in (str(at), str(at)))),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: " ".join(fault[:2]))
async def test_the_audit_finds_what_was_planted(store: RedisStore, fault: tuple[str, ...]) -> None:
    await store.insert(jobs("done", queue="q", group="ends"))
    [lease] = (await store.exchange("w", [], [], 1, 15)).leases
    await store.exchange("w", [Settlement(lease.key, DONE)], [], 0, 15)
    await store.insert(jobs("runs", queue="q", group="runs"))
    await store.exchange("w", [], [], 1, 15)
    await store.insert(jobs("ready", queue="q", group="ready"))
    await store.insert(jobs("later", queue="q", group="later", delay_seconds=900))
    await store.arm("nightly", 1, since=0)
    await decide_one(store, 1000, verdict=Verdict.MISSED)
    assert await store.audit() == []
    await store._server.ask(*fault)
    assert await store.audit() != []


async def test_a_page_looks_at_a_bounded_number_of_jobs(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that matches little answers short pages with a cursor, and all pages together answer everything."""
    monkeypatch.setattr("jobyard.stores.redis.people.LOOKED_AT_MOST", 10)
    monkeypatch.setattr("jobyard.stores.redis.people.LOOKED_PER_TRIP", 5)
    rare = {3, 27, 41}
    await store.insert(
        [NewJob(id=f"{n:03}", kind="rare" if n in rare else "usual", queue=f"q{n % 2}") for n in range(50)]
    )
    found: list[str] = []
    cursor, pages = None, 0
    while True:
        page = await store.find(Filter(kind="rare"), 2, cursor)
        found += [job.id for job in page.jobs]
        pages, cursor = pages + 1, page.cursor
        if cursor is None:
            break
    assert found == ["041", "027", "003"]
    assert pages >= 5


async def test_a_list_jumps_over_what_is_gone(store: RedisStore, server: RedisServer) -> None:
    await store.insert(jobs("oldest"))
    await store.insert(jobs(*(f"job-{number}" for number in range(5000)), queue="other"))
    await store.change(Action.DELETE, [f"job-{number}" for number in range(4999)])
    server.ask("CONFIG", "RESETSTAT")
    page = await store.find(Filter(), 10)
    assert ([job.id for job in page.jobs], page.cursor) == (["job-4999", "oldest"], None)
    assert b"cmdstat_fcall:calls=1," in server.ask("INFO", "commandstats")


async def test_bad_text_and_bad_cursors_are_refused(store: RedisStore) -> None:
    with pytest.raises(BadInput):
        await store.get("\udc80")
    with pytest.raises(BadInput):
        await store.signal("\udc80", "go")
    with pytest.raises(BadInput):
        await store.find(Filter(), cursor="zzz")
