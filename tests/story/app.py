"""The handlers of the stories; the worker processes and the test that enqueues both declare them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from tests.story.flags import Flags
from tests.story.workflow_app import declare_workflows

from jobyard import Context, Jobyard
from jobyard.app.task import BoundTask
from jobyard.errors import LeaseLost


def declare(yard: Jobyard, folder: Path) -> dict[str, BoundTask[..., Any]]:
    """Returns the tasks that a story adds to batches."""
    flags = Flags(folder)
    tasks = declare_workflows(yard, folder)

    @yard.job()
    async def span(ctx: Context, seconds: float) -> list[int]:
        """Says which process ran it, and from when to when (CLOCK_MONOTONIC, shared by all processes)."""
        started = time.monotonic_ns()
        await asyncio.sleep(seconds)
        return [os.getpid(), started, time.monotonic_ns()]

    @yard.job()
    async def gate(ctx: Context, opened_by: str = "all") -> None:
        """Runs until its gate is opened, or all are."""
        flags.put(f"started-{ctx.job_id}")
        try:
            await flags.wait(f"open-{opened_by}", f"open-{ctx.job_id}", "open-all")
        except asyncio.CancelledError:
            flags.put(f"stopped-{ctx.job_id}")
            raise

    @yard.job(max_attempts=1)
    async def report(ctx: Context) -> int:
        """Reports all the time until all gates are opened; a report that fails would fail the only attempt."""
        flags.put(f"started-{ctx.job_id}")
        number = 0
        while not flags.has("open-all"):
            number += 1
            await ctx.progress(number % 100, f"round {number}")
            await ctx.log(f"round {number}")
            async with ctx.step(f"round {number}"):
                await asyncio.sleep(0.2)
        return number

    @yard.job()
    async def late(ctx: Context, word: str) -> None:
        """The first attempt blocks its whole event loop until it may say its word; the next waits to be finished."""
        if flags.has(f"first-{word}"):
            flags.put(f"second-{word}")
            await flags.wait(f"finish-{word}")
            return
        flags.put(f"first-{word}")
        flags.wait_blocking(f"speak-{word}")
        try:
            if word == "progress":
                await ctx.progress(50, "too late")
            elif word == "log":
                await ctx.log("too late")
        except (LeaseLost, asyncio.CancelledError):
            # The store's refusal, or the keeper which heard of it a moment earlier.
            flags.put(f"refused-{word}")
            raise
        flags.put(f"spoken-{word}")

    @yard.job()
    async def poison(ctx: Context) -> None:
        """Takes its worker with it."""
        os.kill(os.getpid(), signal.SIGKILL)

    @yard.job()
    async def block(ctx: Context, seconds: float) -> None:
        """What an async handler must not do: the event loop stands still meanwhile."""
        time.sleep(seconds)  # noqa: ASYNC251  # that is the point

    @yard.job()
    async def spin(ctx: Context, seconds: float) -> None:
        """Worse: it keeps the interpreter's lock busy as well."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass

    return tasks
