"""Onlookers hear of progress that the store took, if they want to hear of each job."""

from __future__ import annotations

from tests.support import Events

from jobyard import Context, Jobyard
from jobyard.domain import events as e


async def test_progress_is_observed_once_it_is_stored(yard: Jobyard, events: Events) -> None:
    @yard.job()
    async def work(ctx: Context) -> None:
        await ctx.progress(10, "begun", {"rows": 1})
        await ctx.log("a log line is not progress")
        await ctx.progress(100)

    handle = await work.enqueue()
    async with yard.worker():
        await handle.result(10)
    found = [(event.lease.job_id, event.progress.percent, event.progress.message) for event in events.of(e.JobReported)]
    assert found == [(handle.id, 10, "begun"), (handle.id, 100, "")]
    assert events.of(e.JobReported)[0].progress.data == {"rows": 1}


async def test_who_does_not_want_each_job_does_not_hear_of_progress(yard: Jobyard, events: Events) -> None:
    events.wants_each_job = False

    @yard.job()
    async def work(ctx: Context) -> None:
        await ctx.progress(10)

    handle = await work.enqueue()
    async with yard.worker():
        await handle.result(10)
    assert events.of(e.JobReported) == []
