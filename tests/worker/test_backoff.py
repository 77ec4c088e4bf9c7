"""A store that is away for a while: nothing is lost, and the worker says what it sees."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support import Events, Watched, eventually

from jobyard import Context, Done, Jobyard, Snooze, State
from jobyard.config.store_factory import make_store
from jobyard.domain import events as e
from jobyard.domain.lease import ExpiredLease, LeaseKey
from jobyard.domain.outcome import Outcome
from jobyard.errors import StoreUnavailable
from jobyard.operations.queries import Queries
from jobyard.ports.executor import Attempt
from jobyard.ports.job_store import Extended
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.worker import background_thread
from jobyard.worker.background_thread import BackgroundThread
from jobyard.worker.heartbeat import Heartbeat
from jobyard.worker.lease_renewer import LeaseRenewer
from jobyard.worker.loop_monitor import EventLoopMonitor
from jobyard.worker.steady_clock import SteadyClock
from jobyard.worker.worker import Worker


async def test_nothing_is_lost_while_the_store_is_away(yard: Jobyard, watched: Watched, events: Events) -> None:
    began, gate, runs = asyncio.Event(), asyncio.Event(), 0

    @yard.job()
    async def work(ctx: Context, n: int) -> int:
        nonlocal runs
        runs += 1
        began.set()
        await gate.wait()
        return n

    handles = await yard.enqueue_many(*[work.call(n) for n in range(3)])
    async with yard.worker(concurrency=2):
        await eventually(lambda: runs == 2)
        watched.failing = StoreUnavailable("gone for now")
        gate.set()
        await eventually(lambda: len(events.of(e.StoreFailed)) >= 4)
        watched.failing = None
        assert [await handle.result(60) for handle in handles] == [0, 1, 2]
    assert runs == 3
    [back] = events.of(e.StoreRecovered)
    assert back.away_seconds > 0
    assert events.of(e.SettlementRefused) == []
    naps = [event.retry_in_seconds for event in events.of(e.StoreFailed) if event.doing == "exchanging jobs"]
    assert all(0 < nap <= 5 for nap in naps)


async def test_tries_ever_less_often(yard: Jobyard, watched: Watched, events: Events) -> None:
    async with yard.worker():
        await eventually(lambda: watched.calls["exchange"] >= 2)
        watched.failing, watched.failing_verbs = OSError("away"), ("exchange",)
        await eventually(lambda: any(event.retry_in_seconds > 0.2 for event in events.of(e.StoreFailed)))
        naps = [event.retry_in_seconds for event in events.of(e.StoreFailed)]
        watched.failing = None
        await eventually(lambda: events.of(e.StoreRecovered))
    assert 3 <= len(naps) <= 14, naps
    assert naps[0] <= 0.05


async def test_stop_does_not_wait_for_ever_for_a_store_that_stays_away(
    yard: Jobyard, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobyard.worker.claimer.GIVE_UP_SECONDS", 0.3)
    began = asyncio.Event()

    @yard.job()
    async def work(ctx: Context) -> None:
        began.set()
        await asyncio.Event().wait()

    handle = await work.enqueue()
    worker = yard.worker(lease=0.6)
    await worker.start()
    await eventually(began.is_set)
    watched.failing = StoreUnavailable("gone for good")
    async with asyncio.timeout(60):
        await worker.stop(0)
    watched.failing = None
    # Its lease runs out, and the job runs elsewhere.
    await eventually(yard.store.reclaim)
    assert (await handle.info()).state is State.PENDING


async def test_an_executor_that_talks_nonsense_does_not_keep_its_slot(yard: Jobyard, events: Events) -> None:
    @yard.job()
    async def work(ctx: Context, nonsense: bool) -> None: ...

    class Executor:
        async def perform(self, attempt: Attempt) -> Outcome:
            soon: Any = "soon"
            return Snooze(soon) if b"true" in attempt.lease.payload else Done()

    bad, good = await work.enqueue(True), await work.enqueue(False)
    async with Worker(yard.store, Executor(), events, concurrency=1):
        await good.result(60)
    job = await bad.info()
    assert (job.state, job.errors[0].type) == (State.FAILED, "BadOutcome")


async def test_an_outcome_that_no_store_can_hold_does_not_hold_up_the_others(tmp_path: Path, events: Events) -> None:
    class Poison:
        """A third-party executor, with a result that is not bytes for one kind."""

        async def perform(self, attempt: Attempt) -> Outcome:
            return Done({"not": "bytes"}) if attempt.lease.kind == "bad" else Done(b"1")  # type: ignore[arg-type]

    yard = Jobyard(f"sqlite:///{tmp_path / 'jobs.db'}")

    @yard.job()
    async def bad(ctx: Context) -> None: ...

    @yard.job()
    async def good(ctx: Context) -> int:
        return 1

    async with yard:
        first, *others = await yard.enqueue_many(bad.call(), good.call(), good.call())
        async with Worker(yard.store, Poison(), events, concurrency=3):
            for handle in others:
                await Queries(yard.store).end(handle.id, 60)
            ended = await Queries(yard.store).end(first.id, 60)
        assert ended.state is State.FAILED
        assert "could not be stored" in str(ended.reason)
        assert [(await handle.info()).state for handle in others] == [State.COMPLETED, State.COMPLETED]


async def test_after_a_slow_store_leases_are_renewed_before_any_is_reclaimed(
    yard: Jobyard, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that stalls delays every worker; the first one to wake must not reclaim the leases of the others."""
    verbs: list[str] = []
    now = time.monotonic()
    monkeypatch.setattr(background_thread, "time", SimpleNamespace(monotonic=lambda: now))
    loop, events = asyncio.get_running_loop(), Events()
    claimer = yard.worker().claimer
    monitor = EventLoopMonitor(loop, events.observe)
    renewer = LeaseRenewer(claimer, "w", 15.0, monitor)
    heartbeat = Heartbeat(lambda: WorkerInfo(id="w", host="h", pid=1, queues=(), concurrency=1), lambda _: None, 15.0)
    background = BackgroundThread(yard.store, renewer, heartbeat, monitor, events.observe)
    background._clocks[0] = SteadyClock(15.0, events.observe)  # one that has run for a while

    async def slow_extend(*_: object, **__: object) -> Extended:
        nonlocal now
        verbs.append("extend")
        now += 1.5 * renewer.interval
        await asyncio.sleep(0)
        return Extended()

    async def reclaim(*_: object, **__: object) -> list[ExpiredLease]:
        verbs.append("reclaim")
        return []

    monkeypatch.setattr(claimer, "held_keys", lambda: [LeaseKey("one", 1, "token")])
    monkeypatch.setattr(watched, "extend", slow_extend, raising=False)
    monkeypatch.setattr(watched, "reclaim", reclaim, raising=False)
    await background.renew(yard.store)
    await background.housekeep(yard.store)
    assert verbs == ["extend"]
    monkeypatch.setattr(claimer, "held_keys", list)
    await background.renew(yard.store)
    await background.housekeep(yard.store)
    assert verbs == ["extend", "reclaim"]


async def test_a_slow_prune_does_not_delay_renewals(
    yard: Jobyard, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, pruning = threading.Event(), threading.Event()

    async def slow_prune(*_: object) -> int:
        pruning.set()
        await asyncio.to_thread(go_on.wait)
        return 0

    @yard.job()
    async def work(ctx: Context) -> None:
        await asyncio.to_thread(go_on.wait)

    monkeypatch.setattr(type(watched), "prune", slow_prune, raising=False)
    handle = await work.enqueue()
    async with yard.worker(lease=0.3):
        await eventually(pruning.is_set)
        before = watched.calls["extend"]
        await eventually(lambda: watched.calls["extend"] >= before + 3)
        go_on.set()
        await handle.result(60)


async def test_a_job_whose_settlement_waits_keeps_its_lease(
    tmp_path: Path, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has ended here, and must not run elsewhere before the store has heard of that."""
    # So that only held leases are renewed, however young they are.
    monkeypatch.setattr("jobyard.stores.sqlite.leases.UNACKNOWLEDGED_SECONDS", 0.0)
    monkeypatch.setattr("jobyard.worker.background_thread.RECLAIM_EVERY_SECONDS", 0.05)
    watched = Watched(make_store(f"sqlite:///{tmp_path}/jobs.db"))
    yard = Jobyard(store=watched.as_store(), observer=events)

    @yard.job()
    async def work() -> None:
        watched.failing, watched.failing_verbs = StoreUnavailable("away"), ("exchange",)

    async with yard:
        handle = await work.enqueue()
        async with yard.worker(lease=0.6):
            await eventually(lambda: watched.failing)
            began = time.monotonic()
            await eventually(lambda: time.monotonic() - began > 1.5)
            watched.failing = None
            await handle.result(60)
        job = await handle.info()
    assert (job.attempt, job.deaths, events.of(e.LeasesExpired)) == (1, 0, [])
