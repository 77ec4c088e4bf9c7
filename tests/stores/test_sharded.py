"""Sharded store: routing of verbs to the stores of their queues, and merging of their answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.stores import EXCLUDED
from tests.conformance.support import insert, new, settlement
from tests.stores.sharded_support import ShardedSetup
from tests.story.engines import empty_store
from tests.support import ROOT, eventually

from jobyard import Context, Jobyard
from jobyard.config.store_factory import make_store
from jobyard.domain.job import QueueSettings, State
from jobyard.domain.outcome import Done
from jobyard.errors import BadInput, NotPossible, QueueFull, StoreUnavailable
from jobyard.ports.admin_store import Action, Filter
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.ports.store import Level
from jobyard.stores.sharded import ShardedStore


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[ShardedSetup]:
    async with ShardedSetup(tmp_path) as setup:
        yield setup


async def test_jobs_are_inserted_into_the_store_of_their_queue(setup: ShardedSetup) -> None:
    ids = await insert(setup.store, new(queue="mail"), new(), new(queue="mail"))
    stores = [setup.mail.as_store(), setup.main.as_store(), setup.mail.as_store()]
    for job_id, store in zip(ids, stores, strict=True):
        assert await setup.store.get(job_id) == await store.get(job_id) is not None
    assert [(info.name, info.waiting) for info in await setup.store.queues()] == [("default", 1), ("mail", 2)]
    assert [info.name for info in await setup.main.as_store().queues()] == ["default"]


async def test_only_the_stores_of_the_wanted_queues_are_called(setup: ShardedSetup) -> None:
    await insert(setup.store, new(queue="mail"), new())
    setup.main.calls.clear()
    assert await setup.claim(5, "mail") == ["mail"]
    assert setup.main.calls["exchange"] == 0
    setup.mail.calls.clear()
    assert await setup.claim(5, "default") == ["default"]
    assert setup.mail.calls["exchange"] == 0


async def test_no_store_starves_with_few_slots(setup: ShardedSetup) -> None:
    await insert(setup.store, *(new(queue=queue) for queue in ("mail", "default") for _ in range(4)))
    claimed = [queue for _ in range(8) for queue in await setup.claim(1)]
    assert (claimed[:4].count("mail"), len(claimed)) == (2, 8)


async def test_settlements_go_to_the_store_of_their_lease(setup: ShardedSetup) -> None:
    ids = await insert(setup.store, new(queue="mail"), new())
    response = await setup.store.exchange("w", [], (), 5, 15)
    # Another process settles, which has no state from the claim.
    other = ShardedStore(setup.main.as_store(), {"mail": setup.mail.as_store()})
    settled = await other.exchange("w", [settlement(lease, Done()) for lease in response.leases], (), 0, 15)
    assert settled.refused == ()
    for job_id in ids:
        job = await setup.store.get(job_id)
        assert job is not None
        assert job.state is State.COMPLETED
    again = await other.exchange("w", [settlement(lease, Done()) for lease in response.leases], (), 0, 15)
    assert set(again.refused) == {lease.key for lease in response.leases}


async def test_a_lease_of_an_unknown_store_is_refused(setup: ShardedSetup) -> None:
    await insert(setup.store, new(queue="mail"))
    [lease] = (await setup.store.exchange("w", [], (), 5, 15)).leases
    alone = ShardedStore(setup.main.as_store(), {})
    response = await alone.exchange("w", [settlement(lease, Done())], (), 0, 15)
    assert response.refused == (lease.key,)
    assert (await alone.extend("w", [lease.key], 15)).lost == (lease.key,)
    assert (await setup.store.extend("w", [lease.key], 15)).lost == ()


@pytest.mark.parametrize("queue", ["mail", "default"])
async def test_a_waiting_exchange_is_woken_by_every_store(setup: ShardedSetup, queue: str) -> None:
    until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(setup.store.exchange("w", (), (), 5, 15, until))
    await eventually(lambda: setup.mail.calls["wait_for_work"] and setup.main.calls["wait_for_work"])
    [job_id] = await insert(setup.store, new(queue=queue))
    response = await asyncio.wait_for(waiting, 60)
    assert [lease.job_id for lease in response.leases] == [job_id]


async def test_a_waiting_exchange_returns_when_until_is_done(setup: ShardedSetup) -> None:
    until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(setup.store.exchange("w", (), (), 5, 15, until))
    await eventually(lambda: setup.main.calls["wait_for_work"])
    until.set_result(None)
    assert (await asyncio.wait_for(waiting, 60)).leases == ()


async def test_claimed_jobs_are_returned_when_another_store_fails(setup: ShardedSetup) -> None:
    await insert(setup.store, new(queue="mail"), new(queue="mail"))
    setup.main.failing = StoreUnavailable("away")
    assert await setup.claim() == ["mail", "mail"]
    with pytest.raises(StoreUnavailable):
        await setup.claim()
    assert await setup.claim(5, "mail") == []  # a worker of mail alone is not affected


async def test_settlements_of_one_store_are_not_refused_after_another_failed(setup: ShardedSetup) -> None:
    await insert(setup.store, new(queue="mail"), new())
    leases = (await setup.store.exchange("w", [], (), 5, 15)).leases
    settlements = [settlement(lease, Done()) for lease in leases]
    setup.main.failing = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await setup.store.exchange("w", settlements, (), 0, 15)
    setup.main.failing = None
    assert (await setup.store.exchange("w", settlements, (), 0, 15)).refused == ()
    assert [info.completed for info in await setup.store.queues()] == [1, 1]


async def test_settlements_are_answered_when_the_claim_fails(setup: ShardedSetup) -> None:
    await insert(setup.store, new(queue="mail"))
    [lease] = (await setup.store.exchange("w", [], (), 5, 15)).leases
    setup.main.failing = StoreUnavailable("away")
    response = await setup.store.exchange("w", [settlement(lease, Done())], (), 5, 15)
    assert (response.refused, response.leases) == ((), ())
    with pytest.raises(StoreUnavailable):
        await setup.claim()


async def test_a_rejected_insert_deletes_the_jobs_of_the_other_store(setup: ShardedSetup) -> None:
    await setup.store.configure("mail", QueueSettings(max_waiting=1))
    jobs = [new(), new(queue="mail"), new(queue="mail")]
    with pytest.raises(QueueFull):
        await setup.store.insert(jobs)
    assert [info.waiting for info in await setup.store.queues()] == [0, 0]
    with pytest.raises(NotPossible):
        await setup.store.insert(jobs[:2], object())


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 50])
async def test_lists_are_merged_by_creation_time(setup: ShardedSetup, limit: int) -> None:
    ids: list[str] = []
    for number in range(15):
        ids += await insert(setup.store, new(queue="mail" if number % 4 == 1 or number > 11 else "other"))
        setup.clock.advance(1)
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await setup.store.find(Filter(), limit, cursor)
        assert len(page.jobs) <= limit
        found += [job.id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == ids[::-1]


async def test_a_store_that_returned_a_short_page_continues_on_the_next(
    setup: ShardedSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobyard.stores.memory.jobs.MAX_ROWS_PER_PAGE", 3)
    wanted = await insert(setup.store, new(queue="mail", payload=b'"rare"'))
    await insert(setup.store, *(new(queue="mail") for _ in range(10)))
    setup.clock.advance(1)
    wanted += await insert(setup.store, new(payload=b'"rare"'))
    found: list[str] = []
    cursor: str | None = None
    pages = 0
    while pages == 0 or cursor is not None:
        page = await setup.store.find(Filter(text="rare"), 5, cursor)
        found += [job.id for job in page.jobs]
        cursor, pages = page.cursor, pages + 1
    assert (found, pages > 2) == (wanted[::-1], True)


@pytest.mark.parametrize("cursor", ["", "7", "e30", "bm9uc2Vuc2U", "eyJ4IjpbXX0"])
async def test_an_invalid_cursor_is_rejected(setup: ShardedSetup, cursor: str) -> None:
    with pytest.raises(BadInput):
        await setup.store.find(Filter(), 5, cursor)


async def test_change_and_position_find_the_job_in_any_store(setup: ShardedSetup) -> None:
    first, second, third = await insert(setup.store, new(queue="mail"), new(), new(queue="mail"))
    response = await setup.store.change(Action.CANCEL, [second, first, "nowhere"], reason="enough")
    assert response.changed == (second, first)
    assert (await setup.store.change(Action.CANCEL, [first, third])).unchanged == (first,)
    assert (await setup.store.position(first)).job.reason == "enough"
    ended = await setup.store.wait_for_end(first, 1)
    assert ended is not None
    assert ended.state is State.CANCELLED


async def test_workers_beat_in_all_stores_and_records_are_in_the_default_one(setup: ShardedSetup) -> None:
    await setup.store.heartbeat(WorkerInfo(id="w", host="h", pid=1, queues=(), concurrency=1), 15)
    for store in (setup.main.as_store(), setup.mail.as_store(), setup.store):
        assert [worker.id for worker in await store.workers()] == ["w"]
    await setup.store.put("c", "k", b"1")
    assert await setup.main.as_store().fetch("c", "k") == await setup.store.fetch("c", "k")
    assert await setup.mail.as_store().fetch("c", "k") is None


async def test_findings_and_migrations_name_their_store(setup: ShardedSetup) -> None:
    findings = await setup.store.diagnose()
    assert {finding.check.rpartition(" of ")[2] for finding in findings} == {setup.store.url, "memory://"}
    assert all(setup.store.url in migration.name for migration in await setup.store.migrations())


async def test_an_unavailable_store_is_a_finding(setup: ShardedSetup) -> None:
    setup.mail.failing = StoreUnavailable("away")
    findings = await setup.store.diagnose()
    assert [finding.message for finding in findings if finding.check == "store of memory://"] == ["away"]
    assert any(setup.store.url in finding.check for finding in findings)
    setup.main.failing = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await setup.store.diagnose()


async def test_jobs_left_in_the_default_store_are_reported_and_run(setup: ShardedSetup) -> None:
    [left] = await insert(setup.main.as_store(), new(queue="mail"))
    assert await setup.store.queues() == []
    warning = next(finding for finding in await setup.store.diagnose() if finding.check == "queue mail")
    assert (warning.level, "1 of its jobs" in warning.message) == (Level.WARN, True)
    assert await setup.store.get(left) is not None
    assert await setup.claim() == ["mail"]  # a worker of all queues runs them


async def test_a_store_shows_only_its_own_queues(setup: ShardedSetup) -> None:
    [foreign] = await insert(setup.mail.as_store(), new(queue="foreign"))
    assert await setup.store.get(foreign) is None
    assert (await setup.store.find(Filter())).jobs == ()
    assert await setup.store.queues() == []
    assert await setup.claim() == []


@pytest.mark.parametrize(("first", "second"), [("sqlite", "redis"), ("postgres", "sqlite"), ("redis", "postgres")])
async def test_a_worker_serves_all_stores(tmp_path: Path, first: str, second: str) -> None:
    with empty_store(first, tmp_path) as main, empty_store(second, tmp_path) as mail:
        store = ShardedStore(make_store(main), {"mail": make_store(mail)})
        async with Jobyard(store=store) as yard:

            @yard.job()
            async def work(ctx: Context, number: int) -> int:
                await ctx.progress(50)
                return number

            @yard.job(queue="mail")
            async def longer_than_its_lease(ctx: Context) -> int:
                await asyncio.sleep(2.5)
                return ctx.attempt

            async with yard.worker(concurrency=4, lease=1.0):
                # Its lease is renewed from another thread, by another handle.
                long = await longer_than_its_lease.enqueue()
                send = work.options(queue="mail")
                handles = [await (send if number % 2 else work).enqueue(number) for number in range(40)]
                assert [await handle.result(60) for handle in handles] == list(range(40))
                assert await long.result(60) == 1
            assert [info.completed for info in await yard.queues()] == [20, 21]
            assert await yard.store.audit() == []


def test_tests_excluded_from_the_suite_exist() -> None:
    suite = "".join(path.read_text("utf-8") for path in (ROOT / "tests/conformance/suite").glob("*.py"))
    assert [name for name in EXCLUDED["sharded"] if f"async def {name}(" not in suite] == []
