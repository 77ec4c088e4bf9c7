"""A step of the store's clock: leases are judged by elapsed time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.stores import STORES
from tests.conformance.support import new
from tests.support import Events, Watched, eventually

from jobyard import Context, Jobyard, State
from jobyard.domain.events import ClockStepped, LeasesExpired
from jobyard.domain.instant import Instant
from jobyard.domain.lease import MAX_DEATHS
from jobyard.errors import StoreUnavailable
from jobyard.ports.clock import SystemClock
from jobyard.stores.sharded import ShardedStore
from jobyard.stores.sqlite import SqliteStore
from jobyard.testing.clock import ManualClock
from jobyard.worker import background_thread, lease_renewer
from jobyard.worker.steady_clock import SteadyClock

LEASE = 0.6
# Of workers that must keep their jobs: longer than a busy machine can delay a renewal.
LIVE_LEASE = 4.0
STEPS = 10 * MAX_DEATHS if os.environ.get("JOBYARD_SOAK") else MAX_DEATHS


class SteppedClock(ManualClock):
    """Runs with the machine's clock, as many milliseconds before it as `advance` has set it."""

    def __init__(self) -> None:
        super().__init__(start=0)

    def now(self) -> Instant:
        return SystemClock().now() + super().now()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SteppedClock:
    monkeypatch.setattr(background_thread, "RECLAIM_EVERY_SECONDS", 0.05)
    monkeypatch.setattr(lease_renewer, "RENEW_AT_LEAST_EVERY_SECONDS", 0.2)
    return SteppedClock()


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def watched(request: pytest.FixtureRequest, tmp_path: Path, clock: SteppedClock) -> Watched:
    return Watched(STORES[request.param](tmp_path, clock))


@pytest.fixture
async def yard(watched: Watched, events: Events) -> AsyncIterator[Jobyard]:
    async with Jobyard(store=watched.as_store(), observer=events) as yard:
        yield yard


async def reclaims(watched: Watched, count: int) -> None:
    wanted = watched.calls["reclaim"] + count
    await eventually(lambda: watched.calls["reclaim"] >= wanted)


async def test_live_workers_keep_their_leases_through_steps_forwards(
    yard: Jobyard, watched: Watched, events: Events, clock: SteppedClock
) -> None:
    go_on = asyncio.Event()

    @yard.job()
    async def work(ctx: Context) -> None:
        await go_on.wait()

    handles = [await work.enqueue() for _ in range(2)]
    async with yard.worker(lease=LIVE_LEASE), yard.worker(lease=LIVE_LEASE):
        await eventually(lambda: all_running(handles))
        for steps in range(1, STEPS + 1):
            await reclaims(watched, 4)
            clock.advance(20)
            await eventually(partial(has_seen, events, 2 * steps))
        await reclaims(watched, 4)
        assert events.of(LeasesExpired) == []
        go_on.set()
        for handle in handles:
            await handle.result(60)
            assert (await handle.info()).deaths == 0
    assert [round(step.seconds) for step in events.of(ClockStepped)] == [20] * 2 * STEPS


async def test_a_worker_that_starts_right_after_a_step_takes_no_live_lease(
    yard: Jobyard, watched: Watched, events: Events, clock: SteppedClock
) -> None:
    go_on = asyncio.Event()

    @yard.job()
    async def work(ctx: Context) -> None:
        await go_on.wait()

    handle = await work.enqueue()
    async with yard.worker(lease=LIVE_LEASE):
        await eventually(lambda: all_running([handle]))
        for _ in range(5):  # so that a start falls between two renewals
            clock.advance(20)
            async with yard.worker(queues=["another"], lease=LIVE_LEASE):
                await reclaims(watched, 4)
        assert events.of(LeasesExpired) == []
        go_on.set()
        await handle.result(60)
    assert (await handle.info()).deaths == 0


def has_seen(events: Events, steps: int) -> bool:
    return len(events.of(ClockStepped)) == steps


async def all_running(handles: list[Any]) -> bool:
    return all([(await handle.info()).state is State.RUNNING for handle in handles])


async def test_a_dead_workers_job_is_reclaimed_after_a_step_back(
    yard: Jobyard, watched: Watched, events: Events, clock: SteppedClock
) -> None:
    async with yard.worker(queues=["another"], lease=LEASE):
        await reclaims(watched, 1)
        await yard.store.insert([new()])
        await yard.store.exchange("dead", [], ["default"], 1, LEASE)
        clock.advance(-3600)
        [expired] = await eventually(lambda: events.of(LeasesExpired))
        assert expired.worker == "dead"


async def test_a_new_worker_reclaims_what_a_step_back_has_made_long(
    yard: Jobyard, events: Events, clock: SteppedClock
) -> None:
    await yard.store.insert([new()])
    await yard.store.exchange("dead", [], ["default"], 1, LEASE)
    clock.advance(-3600)
    async with yard.worker(queues=["another"], lease=LEASE):
        [expired] = await eventually(lambda: events.of(LeasesExpired))
        assert expired.worker == "dead"


@pytest.mark.parametrize("stepped", ["default", "mail"])
async def test_each_shard_is_judged_by_its_own_clock(
    tmp_path: Path, clock: SteppedClock, events: Events, stepped: str
) -> None:
    clocks = {"default": clock, "mail": SteppedClock()}
    shards = {name: Watched(SqliteStore(tmp_path / f"{name}.db", clock=clocks[name])) for name in clocks}
    store = ShardedStore(shards["default"].as_store(), {"mail": shards["mail"].as_store()})
    async with Jobyard(store=store, observer=events) as yard:
        go_on = asyncio.Event()

        @yard.job()
        async def work(ctx: Context) -> None:
            await go_on.wait()

        handles = [await work.options(queue=queue).enqueue() for queue in clocks]
        async with yard.worker(lease=LIVE_LEASE):
            await eventually(lambda: all_running(handles))
            for steps in range(1, MAX_DEATHS + 1):
                await reclaims(shards[stepped], 4)
                clocks[stepped].advance(20)
                await eventually(partial(has_seen, events, steps))
            await reclaims(shards[stepped], 4)
            assert events.of(LeasesExpired) == []
            await store.insert([new(queue="dead"), new(queue="mail", kind="dead")])
            await store.exchange("dead", [], ["dead", "mail"], 2, LEASE)
            clocks[stepped].advance(-3600)
            expired = await eventually(lambda: len(found := events.of(LeasesExpired)) == 2 and found)
            assert {(each.worker, lease.queue) for each in expired for lease in each.leases} == {
                ("dead", "dead"),
                ("dead", "mail"),
            }
            go_on.set()
            for handle in handles:
                await handle.result(60)


async def test_an_unavailable_shard_does_not_stop_reclaiming_in_the_others(
    tmp_path: Path, clock: SteppedClock, events: Events
) -> None:
    default = Watched(SqliteStore(tmp_path / "default.db", clock=clock))
    mail = SqliteStore(tmp_path / "mail.db", clock=clock)
    store = ShardedStore(default.as_store(), {"mail": mail})
    async with Jobyard(store=store, observer=events) as yard:
        async with yard.worker(queues=["another"], lease=LEASE):
            default.failing, default.failing_verbs = StoreUnavailable("away"), ("now", "reclaim")
            await store.insert([new(queue="mail")])
            await store.exchange("dead", [], ["mail"], 1, LEASE)
            [expired] = await eventually(lambda: events.of(LeasesExpired))
            assert expired.worker == "dead"
        default.failing = None


def test_the_old_time_runs_on_for_one_lease_after_a_step_forwards() -> None:
    events, elapsed = Events(), 0.0
    steady = SteadyClock(12.0, events.observe, lambda: elapsed)
    assert (steady.now(), steady.may_have_long_leases) == (None, True)
    steady.may_have_long_leases = False
    readings = [
        # elapsed, the store's time, judged as of
        (0, 100, 100),
        (1, 101.5, 101.5),  # drift
        (2, 122.5, 102.5),  # set forwards by 20 s
        (3, 143.5, 103.5),  # and again
        (14, 154.5, 114.5),
        (15, 155.5, 155.5),  # one lease later
    ]
    for elapsed, store_seconds, judged in readings:
        assert steady.read(round(store_seconds * 1000), elapsed)
        assert steady.now() == judged * 1000
    assert ([step.seconds for step in events.of(ClockStepped)], steady.may_have_long_leases) == ([20, 20], False)


def test_leases_are_judged_once_live_workers_had_time_to_renew(events: Events) -> None:
    elapsed = ManualClock(start=0)
    steady = SteadyClock(10.0, events.observe, lambda: elapsed.now() / 1000, settle_seconds=2.0)
    judged = []
    for _ in range(4):
        judged.append(steady.read(1_000_000 + elapsed.now(), elapsed.now() / 1000))
        elapsed.advance(1)
    assert judged == [False, False, True, True]


def test_a_step_back_is_followed_at_once() -> None:
    events, elapsed = Events(), 0.0
    steady = SteadyClock(12.0, events.observe, lambda: elapsed)
    steady.may_have_long_leases = False
    # There and back within a lease: leases written meanwhile are too long.
    for elapsed, store_seconds, judged in [(0, 100, 100), (1, 3701, 101), (2, 102, 102), (3, 53, 53)]:
        steady.read(store_seconds * 1000, elapsed)
        assert (steady.now(), steady.may_have_long_leases) == (judged * 1000, elapsed >= 2)
    assert [step.seconds for step in events.of(ClockStepped)] == [3600, -3600, -50]


def test_a_slow_answer_tells_nothing() -> None:
    events, elapsed = Events(), 0.0
    steady = SteadyClock(12.0, events.observe, lambda: elapsed)
    steady.read(100_000, 0.0)
    elapsed = 5.0
    assert not steady.read(100_000, 0.0)
    assert (steady.now(), events.of(ClockStepped)) == (105_000, [])
