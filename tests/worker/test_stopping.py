"""How runs are made to end: time-outs, cancels, lost leases, and a worker that stops."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from tests.support import Events, Watched, eventually

from jobyard import BlockingContext, Context, Job, JobHandle, Jobyard, State
from jobyard.domain import events as e
from jobyard.domain.instant import as_instant
from jobyard.domain.job import Ending
from jobyard.errors import LeaseLost
from jobyard.operations.commands import Commands
from jobyard.ports.admin_store import Action
from jobyard.worker import attempt


async def in_state(handle: JobHandle[object], state: State) -> Job | None:
    job = await handle.info()
    return job if job.state is state else None


async def test_a_time_out_cancels_the_handler_and_is_recorded(yard: Jobyard, events: Events) -> None:
    stopped: list[bool] = []

    @yard.job(max_attempts=2, timeout=0.05, backoff=0)
    async def slow(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(ctx.cancelled)
            raise

    handle = await slow.enqueue()
    async with yard.worker():
        job = await eventually(lambda: in_state(handle, State.TIMEOUT))
    assert stopped == [True, True]
    assert [error.ending for error in job.errors] == [Ending.TIMEOUT, Ending.TIMEOUT]
    assert job.errors[0].message == "ran longer than 0.05 s"
    assert [event.to for event in events.of(e.JobSettled)] == [State.PENDING, State.TIMEOUT]


async def test_a_handler_that_ignores_its_end_is_left_behind(yard: Jobyard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "STOP_GRACE_SECONDS", 0.1)
    gate, refused = asyncio.Event(), asyncio.Event()

    @yard.job(max_attempts=1, timeout=0.05)
    async def stubborn(ctx: Context) -> str:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        with pytest.raises(LeaseLost):
            await ctx.progress(99)
        refused.set()
        return "too late"

    @yard.job()
    async def other(ctx: Context) -> int:
        return 1

    handle = await stubborn.enqueue()
    async with yard.worker(concurrency=1):
        await eventually(lambda: in_state(handle, State.TIMEOUT))
        assert await (await other.enqueue()).result(60) == 1  # its slot is free again
        gate.set()
        await eventually(refused.is_set)
    assert (await handle.info()).state is State.TIMEOUT


async def test_swallowing_the_cancel_and_answering_does_not_undo_the_time_out(yard: Jobyard) -> None:
    @yard.job(max_attempts=1, timeout=0.05)
    async def sly(ctx: Context) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "nothing happened"
        return ""

    handle = await sly.enqueue()
    async with yard.worker():
        await eventually(lambda: in_state(handle, State.TIMEOUT))


async def test_a_cancel_reaches_a_running_job(yard: Jobyard) -> None:
    began = asyncio.Event()

    @yard.job()
    async def work(ctx: Context) -> None:
        began.set()
        await asyncio.Event().wait()

    handle = await work.enqueue()
    async with yard.worker():
        await eventually(began.is_set)
        await handle.cancel("changed my mind")
        job = await eventually(lambda: in_state(handle, State.CANCELLED))
    assert (job.reason, job.errors[0].ending) == ("changed my mind", Ending.CANCELLED)


async def test_a_cancel_reaches_a_busy_worker_and_a_plain_function(yard: Jobyard) -> None:
    began = threading.Event()

    @yard.job()
    def work(ctx: BlockingContext) -> None:
        began.set()
        while not ctx.cancelled:
            time.sleep(0.001)

    handle = await work.enqueue()
    async with yard.worker(concurrency=1):
        await eventually(began.is_set)
        await handle.cancel("enough")
        await eventually(lambda: in_state(handle, State.CANCELLED))


async def test_a_lost_lease_cancels_its_run_and_rejects_its_reports(
    yard: Jobyard, watched: Watched, events: Events
) -> None:
    began, refusals = asyncio.Event(), []

    @yard.job()
    async def work(ctx: Context) -> str:
        if began.is_set():
            return "second run"
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            try:
                await ctx.progress(50)
            except LeaseLost as error:
                refusals.append(str(error))
        return "first run"

    handle = await work.enqueue()
    async with yard.worker(lease=0.6):
        await eventually(began.is_set)
        watched.failing, watched.failing_verbs = OSError("cut off"), ("extend", "exchange", "reclaim")
        await eventually(lambda: has_expired(watched))
        watched.failing = None
        assert await handle.result(60) == "second run"
    job = await handle.info()
    assert len(refusals) == 1
    assert (job.deaths, job.attempt, [error.ending for error in job.errors]) == (1, 1, [Ending.LOST])
    assert len(events.of(e.JobLeaseLost)) == 1
    assert events.of(e.StoreFailed)


async def has_expired(watched: Watched) -> bool:
    """Another worker, which can reach the store, finds the lease run out."""
    return bool(await watched._store.reclaim())


async def test_a_blocked_event_loop_keeps_its_leases(yard: Jobyard, events: Events) -> None:
    @yard.job()
    async def block(ctx: Context) -> int:
        time.sleep(1.5)  # noqa: ASYNC251
        return ctx.attempt

    handle = await block.enqueue()
    async with yard.worker(lease=0.6):
        assert await handle.result(60) == 1
    assert (await handle.info()).deaths == 0
    assert events.of(e.LeasesExpired) == []


async def test_stop_lets_runs_finish(yard: Jobyard, events: Events) -> None:
    began, gate = asyncio.Event(), asyncio.Event()

    @yard.job()
    async def work(ctx: Context) -> str:
        began.set()
        await gate.wait()
        return "finished"

    first, second = await work.enqueue(), await work.enqueue()
    worker = yard.worker(concurrency=1)
    await worker.start()
    await eventually(began.is_set)
    stopping = asyncio.create_task(worker.stop(10))
    await eventually(lambda: worker.is_stopping)
    gate.set()
    await stopping
    assert await first.result(60) == "finished"
    assert (await second.info()).state is State.PENDING  # it takes no more
    assert events.of(e.WorkerStopped) == [e.WorkerStopped(worker.id, 0)]
    assert await yard.store.workers() == []
    await worker.stop()


async def test_stop_hands_back_after_the_grace(yard: Jobyard, events: Events) -> None:
    began = asyncio.Event()

    @yard.job(max_attempts=1)
    async def work(ctx: Context) -> None:
        began.set()
        await asyncio.Event().wait()

    handle = await work.enqueue()
    worker = yard.worker()
    await worker.start()
    await eventually(began.is_set)
    began_at = time.monotonic()
    await worker.stop(0.2)
    assert time.monotonic() - began_at > 0.15
    job = await handle.info()
    assert (job.state, job.attempt, job.deaths, job.errors) == (State.PENDING, 0, 0, ())
    assert job.run_at is not None
    assert as_instant(job.run_at) <= await yard.store.now()
    assert events.of(e.WorkerStopped)[0].handed_back == 1


async def test_a_second_stop_forces_the_first(yard: Jobyard) -> None:
    began = asyncio.Event()

    @yard.job()
    async def work(ctx: Context) -> None:
        began.set()
        await asyncio.Event().wait()

    handle = await work.enqueue()
    worker = yard.worker(shutdown_timeout=60)
    await worker.start()
    await eventually(began.is_set)
    first = asyncio.create_task(worker.stop())
    await eventually(lambda: worker.is_stopping)
    assert not first.done()
    await worker.stop(0)
    await first
    assert (await handle.info()).state is State.PENDING


async def test_quarantine_after_three_deaths(yard: Jobyard) -> None:
    @yard.job(max_attempts=1)
    async def killer(ctx: Context) -> str:
        return "survived"

    handle = await killer.enqueue()
    for deaths in (1, 2, 3):
        [lease] = (await yard.store.exchange(f"doomed-{deaths}", [], (), 1, 0.001)).leases
        assert lease.deaths == deaths - 1
        [ended] = await eventually(yard.store.reclaim)
        assert ended.worker == f"doomed-{deaths}"
    job = await handle.info()
    assert (job.state, job.deaths, job.attempt) == (State.FAILED, 3, 0)
    assert job.reason == "quarantined: 3 workers died while running it"
    assert [error.ending for error in job.errors] == [Ending.LOST, Ending.LOST, Ending.QUARANTINED]
    async with yard.worker():
        await Commands(yard.store).change_one(Action.RETRY, handle.id)
        assert await handle.result(60) == "survived"
