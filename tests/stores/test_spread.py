"""Queues on stores of their own: what is asked of whom, and what several stores say as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.stores import WEAKER
from tests.conformance.support import insert, new, settlement
from tests.stores.spread_scene import Scene
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
from jobyard.stores.sharded import SpreadStore


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with Scene(tmp_path) as scene:
        yield scene


async def test_each_job_is_in_the_store_of_its_queue(scene: Scene) -> None:
    ids = await insert(scene.store, new(queue="mail"), new(), new(queue="mail"))
    stores = [scene.mail.as_store(), scene.main.as_store(), scene.mail.as_store()]
    for job_id, store in zip(ids, stores, strict=True):
        assert await scene.store.get(job_id) == await store.get(job_id) is not None
    assert [(info.name, info.waiting) for info in await scene.store.queues()] == [("default", 1), ("mail", 2)]
    assert [info.name for info in await scene.main.as_store().queues()] == ["default"]


async def test_only_the_stores_of_the_wanted_queues_are_asked(scene: Scene) -> None:
    await insert(scene.store, new(queue="mail"), new())
    scene.main.calls.clear()
    assert await scene.claim(5, "mail") == ["mail"]
    assert scene.main.calls["exchange"] == 0
    scene.mail.calls.clear()
    assert await scene.claim(5, "default") == ["default"]
    assert scene.mail.calls["exchange"] == 0


async def test_with_few_slots_no_store_starves(scene: Scene) -> None:
    await insert(scene.store, *(new(queue=queue) for queue in ("mail", "default") for _ in range(4)))
    claimed = [queue for _ in range(8) for queue in await scene.claim(1)]
    assert (claimed[:4].count("mail"), len(claimed)) == (2, 8)


async def test_a_settlement_goes_where_its_lease_is_from(scene: Scene) -> None:
    ids = await insert(scene.store, new(queue="mail"), new())
    answer = await scene.store.exchange("w", [], (), 5, 15)
    # Another process settles: nothing is remembered from the claim.
    other = SpreadStore(scene.main.as_store(), {"mail": scene.mail.as_store()})
    settled = await other.exchange("w", [settlement(lease, Done()) for lease in answer.leases], (), 0, 15)
    assert settled.refused == ()
    for job_id in ids:
        job = await scene.store.get(job_id)
        assert job is not None
        assert job.state is State.COMPLETED
    again = await other.exchange("w", [settlement(lease, Done()) for lease in answer.leases], (), 0, 15)
    assert set(again.refused) == {lease.key for lease in answer.leases}


async def test_a_lease_of_a_store_that_is_not_among_these_is_refused(scene: Scene) -> None:
    await insert(scene.store, new(queue="mail"))
    [lease] = (await scene.store.exchange("w", [], (), 5, 15)).leases
    alone = SpreadStore(scene.main.as_store(), {})
    answer = await alone.exchange("w", [settlement(lease, Done())], (), 0, 15)
    assert answer.refused == (lease.key,)
    assert (await alone.extend("w", [lease.key], 15)).lost == (lease.key,)
    assert (await scene.store.extend("w", [lease.key], 15)).lost == ()


@pytest.mark.parametrize("queue", ["mail", "default"])
async def test_an_exchange_that_waits_hears_of_every_store(scene: Scene, queue: str) -> None:
    until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(scene.store.exchange("w", (), (), 5, 15, until))
    await eventually(lambda: scene.mail.calls["wait_for_work"] and scene.main.calls["wait_for_work"])
    [job_id] = await insert(scene.store, new(queue=queue))
    answer = await asyncio.wait_for(waiting, 5)
    assert [lease.job_id for lease in answer.leases] == [job_id]


async def test_an_exchange_that_waits_ends_when_it_is_called_back(scene: Scene) -> None:
    until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(scene.store.exchange("w", (), (), 5, 15, until))
    await eventually(lambda: scene.main.calls["wait_for_work"])
    until.set_result(None)
    assert (await asyncio.wait_for(waiting, 5)).leases == ()


async def test_what_was_claimed_is_not_lost_when_another_store_is_away(scene: Scene) -> None:
    await insert(scene.store, new(queue="mail"), new(queue="mail"))
    scene.main.failing = StoreUnavailable("away")
    assert await scene.claim() == ["mail", "mail"]
    with pytest.raises(StoreUnavailable):
        await scene.claim()
    assert await scene.claim(5, "mail") == []  # whoever takes only mail does not notice


async def test_what_one_store_took_while_another_failed_is_not_refused_later(scene: Scene) -> None:
    await insert(scene.store, new(queue="mail"), new())
    leases = (await scene.store.exchange("w", [], (), 5, 15)).leases
    settlements = [settlement(lease, Done()) for lease in leases]
    scene.main.failing = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await scene.store.exchange("w", settlements, (), 0, 15)
    scene.main.failing = None
    assert (await scene.store.exchange("w", settlements, (), 0, 15)).refused == ()
    assert [info.completed for info in await scene.store.queues()] == [1, 1]


async def test_what_was_settled_is_told_though_nothing_can_be_claimed(scene: Scene) -> None:
    await insert(scene.store, new(queue="mail"))
    [lease] = (await scene.store.exchange("w", [], (), 5, 15)).leases
    scene.main.failing = StoreUnavailable("away")
    answer = await scene.store.exchange("w", [settlement(lease, Done())], (), 5, 15)
    assert (answer.refused, answer.leases) == ((), ())
    with pytest.raises(StoreUnavailable):
        await scene.claim()


async def test_a_refused_insert_takes_back_what_the_other_store_took(scene: Scene) -> None:
    await scene.store.configure("mail", QueueSettings(max_waiting=1))
    jobs = [new(), new(queue="mail"), new(queue="mail")]
    with pytest.raises(QueueFull):
        await scene.store.insert(jobs)
    assert [info.waiting for info in await scene.store.queues()] == [0, 0]
    with pytest.raises(NotPossible, match="several stores"):
        await scene.store.insert(jobs[:2], object())


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 50])
async def test_lists_are_merged_by_when_jobs_were_created(scene: Scene, limit: int) -> None:
    ids: list[str] = []
    for number in range(15):
        ids += await insert(scene.store, new(queue="mail" if number % 4 == 1 or number > 11 else "other"))
        scene.clock.advance(1)
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await scene.store.find(Filter(), limit, cursor)
        assert len(page.jobs) <= limit
        found += [job.id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == ids[::-1]


async def test_a_store_that_looked_at_enough_goes_on_with_the_next_page(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobyard.stores.memory.jobs.MAX_ROWS_PER_PAGE", 3)
    wanted = await insert(scene.store, new(queue="mail", kind="rare"))
    await insert(scene.store, *(new(queue="mail") for _ in range(10)))
    scene.clock.advance(1)
    wanted += await insert(scene.store, new(kind="rare"))
    found: list[str] = []
    cursor: str | None = None
    pages = 0
    while pages == 0 or cursor is not None:
        page = await scene.store.find(Filter(kind="rare"), 5, cursor)
        found += [job.id for job in page.jobs]
        cursor, pages = page.cursor, pages + 1
    assert (found, pages > 2) == (wanted[::-1], True)


@pytest.mark.parametrize("cursor", ["", "7", "e30", "bm9uc2Vuc2U", "eyJ4IjpbXX0"])
async def test_a_cursor_of_something_else_is_refused(scene: Scene, cursor: str) -> None:
    with pytest.raises(BadInput, match="not a cursor"):
        await scene.store.find(Filter(), 5, cursor)


async def test_changes_and_looks_find_the_job_wherever_it_is(scene: Scene) -> None:
    first, second, third = await insert(scene.store, new(queue="mail"), new(), new(queue="mail"))
    answer = await scene.store.change(Action.CANCEL, [second, first, "nowhere"], reason="enough")
    assert answer.changed == (second, first)
    assert (await scene.store.change(Action.CANCEL, [first, third])).unchanged == (first,)
    assert (await scene.store.standing(first)).job.reason == "enough"
    ended = await scene.store.wait_for_end(first, 1)
    assert ended is not None
    assert ended.state is State.CANCELLED


async def test_workers_live_in_all_stores_and_records_in_the_first(scene: Scene) -> None:
    await scene.store.heartbeat(WorkerInfo(id="w", host="h", pid=1, queues=(), concurrency=1), 15)
    for store in (scene.main.as_store(), scene.mail.as_store(), scene.store):
        assert [worker.id for worker in await store.workers()] == ["w"]
    await scene.store.put("c", "k", b"1")
    assert await scene.main.as_store().fetch("c", "k") == await scene.store.fetch("c", "k")
    assert await scene.mail.as_store().fetch("c", "k") is None


async def test_each_finding_and_migration_names_its_store(scene: Scene) -> None:
    findings = await scene.store.diagnose()
    assert {finding.check.rpartition(" of ")[2] for finding in findings} == {scene.store.url, "memory://"}
    assert all(scene.store.url in migration.name for migration in await scene.store.migrations())


async def test_a_store_that_cannot_be_asked_is_a_finding_beside_the_others(scene: Scene) -> None:
    scene.mail.failing = StoreUnavailable("away")
    findings = await scene.store.diagnose()
    assert [finding.message for finding in findings if finding.check == "store of memory://"] == ["away"]
    assert any(scene.store.url in finding.check for finding in findings)
    scene.main.failing = StoreUnavailable("away, too")
    with pytest.raises(StoreUnavailable, match="too"):
        await scene.store.diagnose()


async def test_jobs_from_before_the_queue_had_a_store_of_its_own(scene: Scene) -> None:
    [left] = await insert(scene.main.as_store(), new(queue="mail"))
    assert await scene.store.queues() == []
    warning = next(finding for finding in await scene.store.diagnose() if finding.check == "queue mail")
    assert (warning.level, "1 of its jobs" in warning.message) == (Level.WARN, True)
    assert await scene.store.get(left) is not None
    assert await scene.claim() == ["mail"]  # a worker of all queues runs them


async def test_a_store_shows_only_the_queues_it_is_here_for(scene: Scene) -> None:
    [foreign] = await insert(scene.mail.as_store(), new(queue="somebody else's"))
    assert await scene.store.get(foreign) is None
    assert (await scene.store.find(Filter())).jobs == ()
    assert await scene.store.queues() == []
    assert await scene.claim() == []


@pytest.mark.parametrize(("first", "second"), [("sqlite", "redis"), ("postgres", "sqlite"), ("redis", "postgres")])
async def test_a_worker_serves_all_stores(tmp_path: Path, first: str, second: str) -> None:
    with empty_store(first, tmp_path) as main, empty_store(second, tmp_path) as mail:
        store = SpreadStore(make_store(main), {"mail": make_store(mail)})
        async with Jobyard(store=store) as yard:

            @yard.job()
            async def work(ctx: Context, number: int) -> int:
                await ctx.progress(50)
                return number

            @yard.job(queue="mail")
            async def longer_than_its_lease(ctx: Context) -> int:
                await asyncio.sleep(2.5)
                return ctx.attempt

            async with yard.worker(concurrency=4, lease_seconds=1.0):
                # Its lease is renewed from another thread, by a twin.
                long = await longer_than_its_lease.enqueue()
                send = work.options(queue="mail")
                handles = [await (send if number % 2 else work).enqueue(number) for number in range(40)]
                assert [await handle.result(20) for handle in handles] == list(range(40))
                assert await long.result(20) == 1
            assert [info.completed for info in await yard.queues()] == [20, 21]
            assert await yard.store.audit() == []


def test_what_it_leaves_out_of_the_suite_is_still_there() -> None:
    suite = "".join(path.read_text("utf-8") for path in (ROOT / "tests/conformance/suite").glob("*.py"))
    assert [name for name in WEAKER["spread"] if f"async def {name}(" not in suite] == []
