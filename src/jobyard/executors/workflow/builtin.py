"""Workflows that every worker knows: chains, groups and chords, batches with a callback, workflow files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from jobyard.errors import ChildFailed
from jobyard.executors.python.declared_task import DeclaredTask
from jobyard.executors.python.handlers import Handler
from jobyard.executors.workflow.context import WorkflowContext
from jobyard.executors.workflow.file_workflow import file_workflow
from jobyard.executors.workflow.job_spec import JobSpec
from jobyard.executors.workflow.records import BATCH_KIND

CANVAS, BATCH = "jobyard.canvas", BATCH_KIND
# How long a batch may stay open; it fails then, because its creator has probably died.
OPEN_SECONDS = 86_400.0
CLOSED = "closed"


class BatchCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How the jobs of a batch ended; the callback of a batch receives it."""

    batch_id: str
    total: int
    completed: int = 0
    failed: int = 0  # FAILED and TIMEOUT
    cancelled: int = 0  # also deleted ones


async def canvas(
    ctx: WorkflowContext,
    jobs: list[JobSpec],
    how: Literal["chain", "group", "chord"],
    body: JobSpec | None = None,
    value: Any = None,
) -> Any:
    """Run the jobs one after the other, or side by side, and then the body with their results."""
    if how == "chain":
        for job in jobs:
            value = await ctx.run(job.prepare(value))
        return value
    results = await ctx.map(lambda job: job.prepare(value), jobs)
    return results if body is None else await ctx.run(body.prepare(results))


async def batch(
    ctx: WorkflowContext, callback: JobSpec | None = None, when: Literal["ended", "completed"] = "ended"
) -> BatchCounts:
    """Wait until the batch is closed and all its jobs have ended, then run the callback with the counts."""
    total = await ctx.wait_for(CLOSED, timeout=OPEN_SECONDS)
    counts = await ctx.collect_batch(total)
    unfinished = counts["failed"] + counts["cancelled"]
    result = BatchCounts(batch_id=ctx.job_id, total=total, **counts)
    if when == "completed" and unfinished:
        raise ChildFailed(
            f"{unfinished} of {total} jobs of the batch did not complete; its callback was not run.", ctx.job_id
        )
    if callback is not None:
        await ctx.run(callback.prepare(result))
    return result


def builtin_handlers(tasks: Mapping[str, DeclaredTask]) -> list[Handler]:
    """The workflows that every worker knows. Steps of workflow files call these tasks, also those declared later."""
    return [Handler(CANVAS, canvas, is_workflow=True), Handler(BATCH, batch, is_workflow=True), file_workflow(tasks)]
