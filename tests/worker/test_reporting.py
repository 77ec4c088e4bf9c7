"""Onlookers hear of progress that the store took, if they want to hear of each job."""

from __future__ import annotations

import asyncio

from tests.support import Events, Watched

from jobyard import BlockingContext, Context, Jobyard
from jobyard.domain import events as e
from jobyard.errors import StoreUnavailable


async def test_progress_is_observed_once_it_is_stored(yard: Jobyard, events: Events) -> None:
    @yard.job()
    async def work(ctx: Context) -> None:
        await ctx.progress(10, "begun", {"rows": 1})
        await ctx.log("a log line is not progress")
        await ctx.progress(100)

    handle = await work.enqueue()
    async with yard.worker():
        await handle.result(60)
    found = [(event.lease.job_id, event.progress.percent, event.progress.message) for event in events.of(e.JobReported)]
    assert found == [(handle.id, 10, "begun"), (handle.id, 100, "")]
    assert events.of(e.JobReported)[0].progress.data == {"rows": 1}


async def test_an_observer_that_wants_no_jobs_gets_no_progress(yard: Jobyard, events: Events) -> None:
    events.wants_each_job = False

    @yard.job()
    async def work(ctx: Context) -> None:
        await ctx.progress(10)

    handle = await work.enqueue()
    async with yard.worker():
        await handle.result(60)
    assert events.of(e.JobReported) == []


async def test_an_outage_of_the_store_does_not_fail_a_job_that_reports(yard: Jobyard, watched: Watched) -> None:
    """Progress and log lines are kept for the next report; a step waits for the store."""
    reported = asyncio.Event()

    @yard.job(max_attempts=1)
    async def work(ctx: Context) -> str:
        watched.failing, watched.failing_verbs = StoreUnavailable("away"), ("report",)
        await ctx.progress(10, "begun")
        await ctx.log("first")
        await ctx.log("second")
        asyncio.get_running_loop().call_later(0.1, lambda: setattr(watched, "failing", None))
        async with ctx.step("load"):
            reported.set()
        return "done"

    handle = await work.enqueue()
    async with yard.worker():
        assert await handle.result(60) == "done"
    job = await handle.info()
    assert reported.is_set()
    assert (job.attempt, job.errors) == (1, ())
    assert [(step.name, step.status) for step in job.steps] == [("load", "passed")]
    assert [line.message for line in job.log] == ["first", "second"]
    assert job.progress is not None
    assert job.progress.message == "begun"


async def test_a_blocking_handler_reports_through_an_outage(yard: Jobyard, watched: Watched) -> None:
    @yard.job(max_attempts=1)
    def work(ctx: BlockingContext) -> str:
        watched.failing, watched.failing_verbs = StoreUnavailable("away"), ("report",)
        ctx.log("lost or kept")
        watched.failing = None
        with ctx.step("load"):
            return "done"

    handle = await work.enqueue()
    async with yard.worker():
        assert await handle.result(60) == "done"
