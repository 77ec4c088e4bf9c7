"""The demo application: three queues, with progress, steps, slow jobs and some that fail."""

from __future__ import annotations

import asyncio
import random
import time

from jobyard import BlockingContext, Context, Jobyard

yard = Jobyard("sqlite:///run/demo.db")
yard.queue("test-execution", max_running=12, max_per_group=3)
yard.queue("cleanup", max_running=2, keep_completed=20)
yard.queue("adaptation-learning", max_running=1)


@yard.job(queue="test-execution", max_attempts=2, timeout=30, backoff=2)
async def run_suite(ctx: Context, suite: str, tests: int = 10) -> dict[str, object]:
    """Compile a suite and run its tests one by one; one suite in eight fails."""
    async with ctx.step("compile"):
        await ctx.progress(0, "compiling")
        await asyncio.sleep(random.uniform(0.2, 0.8))
    async with ctx.step("test", {"tests": tests}):
        for done in range(1, tests + 1):
            await asyncio.sleep(random.uniform(0.05, 0.3))
            if random.random() < 1 / (8 * tests):
                await ctx.log(f"test {done} of {suite} timed out waiting for the page", "error")
                raise RuntimeError(f"{suite}: test {done} of {tests} failed")
            await ctx.progress(100 * done / tests, f"test {done} of {tests}")
    await ctx.log(f"{suite}: {tests} passed")
    return {"suite": suite, "passed": tests}


@yard.job(queue="cleanup", max_attempts=1)
def remove_old_reports(ctx: BlockingContext, days: int) -> int:
    """A synchronous handler: it runs in a thread."""
    removed = 0
    for folder in range(4):
        time.sleep(0.15)
        removed += random.randrange(20)
        ctx.progress(25 * (folder + 1), f"folder {folder + 1} of 4")
    ctx.log(f"{removed} reports older than {days} days removed")
    return removed


@yard.job(queue="adaptation-learning", timeout=120)
async def learn(ctx: Context, model: str) -> dict[str, object]:
    """A slow job, run one at a time."""
    for epoch in range(1, 21):
        await asyncio.sleep(0.5)
        await ctx.progress(5 * epoch, f"epoch {epoch} of 20")
    return {"model": model, "epochs": 20}
