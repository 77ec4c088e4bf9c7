"""Commands to workers from elsewhere: quiet and stop."""

from __future__ import annotations

import asyncio

import pytest
from tests.support import Events, Watched, eventually

from jobyard import Context, Jobyard, State
from jobyard.domain import events as e
from jobyard.errors import BadOption, WorkerNotFound
from jobyard.operations.worker_control import COLLECTION, control_worker
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.worker.worker import Worker


async def listed(yard: Jobyard, worker: Worker) -> WorkerInfo | None:
    return next((info for info in await yard.store.workers() if info.id == worker.id), None)


async def test_a_worker_is_listed_when_it_has_started(yard: Jobyard) -> None:
    """At once, not with the first round of its background thread: it may claim a job before that."""
    async with yard.worker() as worker:
        assert await listed(yard, worker) is not None


async def test_a_quiet_worker_finishes_what_it_has_and_takes_no_more(yard: Jobyard, events: Events) -> None:
    gate, started = asyncio.Event(), asyncio.Event()

    @yard.job()
    async def work(ctx: Context) -> str:
        started.set()
        await gate.wait()
        return "done"

    first = await work.enqueue()
    async with yard.worker(concurrency=2) as worker:
        await started.wait()
        info = await eventually(lambda: listed(yard, worker))
        assert not info.quiet
        await control_worker(yard.store, worker.id, "quiet")

        async def is_quiet() -> bool:
            info = await listed(yard, worker)
            return info is not None and info.quiet

        async def is_pending() -> bool:
            return (await second.info()).state is State.PENDING

        await eventually(is_quiet)
        second = await work.enqueue()
        # Another worker takes what this one leaves: so it was claimable all the time.
        gate.set()
        assert await first.result(60) == "done"
        await eventually(is_pending)  # a claim that was in flight hands it back
        async with yard.worker(queues=["default"], name="other"):
            assert await second.result(60) == "done"
        assert (await second.info()).worker == "other"
        assert await is_quiet()
    assert [event.worker for event in events.of(e.WorkerQuiet)] == [worker.id]


async def test_a_claim_in_flight_of_a_quiet_worker_is_handed_back(
    yard: Jobyard, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobyard.worker.claimer.CLAIM_AGAIN_SECONDS", 3600.0)

    @yard.job()
    async def work(ctx: Context) -> None:
        ran.append(ctx.job_id)

    ran: list[str] = []
    async with yard.worker() as worker:
        await eventually(lambda: watched.calls["exchange"] == 2)  # the second one waits for a job
        worker.claimer.is_quiet = True  # the claim is left to wait, as if it were on its way
        handle = await work.enqueue()
        await eventually(lambda: worker.claimer.handed_back)

        async def is_back() -> bool:
            job = await handle.info()
            return (job.state, job.attempt) == (State.PENDING, 0)

        await eventually(is_back)
    assert not ran


async def test_a_worker_that_is_stopped_lets_its_jobs_finish(yard: Jobyard, events: Events) -> None:
    gate, started = asyncio.Event(), asyncio.Event()

    @yard.job()
    async def work(ctx: Context) -> str:
        started.set()
        await gate.wait()
        return "done"

    handle = await work.enqueue()
    worker = yard.worker(concurrency=1)
    await worker.start()
    await started.wait()
    await eventually(lambda: listed(yard, worker))
    await control_worker(yard.store, worker.id, "stop")
    await eventually(lambda: events.of(e.WorkerStopping))
    await control_worker(yard.store, worker.id, "quiet")  # too late: it stops
    gate.set()
    await asyncio.wait_for(worker.stopped(), 60)
    assert await handle.result(60) == "done"
    assert await listed(yard, worker) is None
    assert [event.handed_back for event in events.of(e.WorkerStopped)] == [0]
    await worker.stop()  # safe twice


async def test_a_later_worker_of_the_same_name_is_not_meant(yard: Jobyard, watched: Watched, events: Events) -> None:
    @yard.job()
    async def work(ctx: Context) -> int:
        return 1

    worker = yard.worker(name="same")
    await worker.start()
    await eventually(lambda: listed(yard, worker))
    await control_worker(yard.store, "same", "stop")
    await asyncio.wait_for(worker.stopped(), 60)
    assert await yard.store.fetch(COLLECTION, "same") is not None
    fetches = watched.calls["fetch"]
    async with yard.worker(name="same"):
        await eventually(lambda: watched.calls["fetch"] >= fetches + 2)  # it has looked, more than once
        assert await (await work.enqueue()).result(60) == 1
        assert len(events.of(e.WorkerStopping)) == 1


async def test_an_unknown_worker_cannot_be_controlled(yard: Jobyard) -> None:
    with pytest.raises(WorkerNotFound) as caught:
        await control_worker(yard.store, "nobody", "stop")
    assert caught.value.code == "worker_not_found"
    with pytest.raises(BadOption):
        await control_worker(yard.store, "nobody", "explode")
    assert await yard.store.fetch_all(COLLECTION) == []
