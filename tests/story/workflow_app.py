"""The workflows of the stories. Each writes what it does into a ledger, under a name that the story gave it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from tests.story.flags import Flags
from tests.story.ledger import Ledger

from jobyard import BatchCounts, Context, Jobyard, WorkflowContext
from jobyard.app.task import BoundTask
from jobyard.errors import ChildFailed

ITEMS = 5


def declare_workflows(yard: Jobyard, folder: Path) -> dict[str, BoundTask[..., Any]]:
    """Returns the tasks that a story adds to batches."""
    flags, ledger = Flags(folder), Ledger(folder)

    def die_at(job: str, point: str) -> None:
        """Kill this process once, if the story asked for that."""
        try:
            (folder / f"die-{job}-{point}").unlink()
        except FileNotFoundError:
            return
        ledger.write(job, "died", point)
        os.kill(os.getpid(), signal.SIGKILL)

    def effect(job: str, what: str) -> str:
        die_at(job, f"before-{what}")
        ledger.write(job, "did", what)
        die_at(job, f"after-{what}")
        return what

    async def kept(ctx: WorkflowContext, job: str, what: str) -> str:
        """A step, and a note of its checkpoint."""
        die_at(job, f"begin-{what}")
        answer = await ctx.step(effect, job, what)
        ledger.write(job, "kept", what)
        die_at(job, f"kept-{what}")
        return answer

    @yard.job()
    async def work(ctx: Context, job: str, what: str, seconds: float = 0.0) -> str:
        """A child: it may run more than once, but only one of its ends counts."""
        ledger.write(job, "did", what)
        await asyncio.sleep(seconds)
        die_at(job, f"after-{what}")
        return what

    @yard.job(max_attempts=1)
    async def breaks(job: str, what: str) -> None:
        ledger.write(job, "did", what)
        raise ValueError("broken")

    @yard.workflow
    async def order(ctx: WorkflowContext, job: str, kill_at: int = -1) -> list[str]:
        """Everything a workflow can do, one after the other."""
        found = [await kept(ctx, job, "first")]

        async def branch(name: str) -> str:
            await kept(ctx, job, f"{name}-one")
            await ctx.sleep(0.01)
            return await kept(ctx, job, f"{name}-two")

        found += await ctx.gather(branch("left"), branch("right"))
        await ctx.sleep(0.05)
        found.append(await kept(ctx, job, "slept"))
        found.append(await ctx.wait_for("approved", timeout=600))
        found.append(await kept(ctx, job, "approved"))
        found.append(await ctx.run(work.call(job, "child")))
        found += await ctx.map(lambda n: work.call(job, f"item-{n}"), range(ITEMS), at_most=2)
        found.append(await kept(ctx, job, "last"))
        return found

    @yard.workflow(max_attempts=1)
    async def saga(ctx: WorkflowContext, job: str, kill_at: int = -1) -> None:
        """Fails after two steps: its child is cancelled, and both steps are undone."""
        await ctx.compensate(effect, job, "undo-one")
        await kept(ctx, job, "one")
        await ctx.compensate(effect, job, "undo-two")
        await kept(ctx, job, "two")

        async def fails() -> None:
            await ctx.sleep(0.05)
            raise ValueError("broken")

        await ctx.gather(ctx.run(work.options(delay=3600).call(job, "never")), fails())

    @yard.workflow
    async def leaf(ctx: WorkflowContext, job: str, width: int) -> int:
        found = await ctx.map(
            lambda n: work.call(job, f"item-{n}", 0.05), range(width), at_most=max(1, width // 2), on_error="collect"
        )
        return len(found)

    @yard.workflow
    async def tree(ctx: WorkflowContext, job: str, width: int, depth: int) -> int:
        """Workflows that start workflows: at the bottom, a map of jobs and one that fails."""
        await ctx.compensate(effect, job, "undo")
        await kept(ctx, job, "begun")
        if depth == 0:
            try:
                await ctx.run(breaks.call(job, "breaks"))
            except ChildFailed:
                await kept(ctx, job, "caught")
            return await ctx.run(leaf.call(job, width))
        below = [tree.call(f"{job}.{n}", width, depth - 1) for n in range(2)]
        return sum(await ctx.gather(*(ctx.run(each) for each in below)))

    @yard.workflow
    async def hold(ctx: WorkflowContext, job: str) -> None:
        """Waits inside a step until it may go on."""

        async def wait() -> None:
            ledger.write(job, "did", "begun")
            await flags.wait(f"open-{job}", "open-all")

        await kept(ctx, job, "before")
        await ctx.step(wait)

    @yard.workflow
    async def long(ctx: WorkflowContext, job: str, steps: int) -> int:
        async def add(n: int) -> int:
            return n + 1

        total = 0
        for _ in range(steps):
            total = await ctx.step(add, total)
        ledger.write(job, "did", "all steps")
        return total

    @yard.workflow
    async def wide(ctx: WorkflowContext, job: str, items: int, at_most: int) -> int:
        total = 0
        async for n in ctx.map(nothing.call, range(items), at_most=at_most):
            total += n
        return total

    @yard.job()
    async def nothing(n: int) -> int:
        return n

    @yard.job()
    async def tell(counts: BatchCounts) -> None:
        """The callback of a batch."""
        ledger.write(counts.batch_id, "did", f"told {counts.completed} {counts.failed} {counts.cancelled}")

    @yard.workflow
    async def visit(ctx: WorkflowContext, job: str, seconds: float) -> None:
        """Two steps on a platform, without a wait between them."""

        async def stay(n: int) -> None:
            ledger.write(job, "began", str(n))
            await asyncio.sleep(seconds)
            ledger.write(job, "ended", str(n))

        for n in range(2):
            await ctx.step(stay, n)
            ledger.write(job, "kept", str(n))

    return {"work": work, "breaks": breaks, "tell": tell}
