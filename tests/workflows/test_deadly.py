"""Workflows that kill their workers: they are undone and end, and what killed does not run for ever, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.workflows.conftest import World
from tests.workflows.files import LEASE_SECONDS, FaultyWorker, start, step

from jobyard import State, WorkflowContext
from jobyard.domain.lease import MAX_DEATHS
from jobyard.operations.workflow_runs import load_run, run_view


class Killer:
    """A step that kills its worker."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_reached = asyncio.Event()

    async def __call__(self) -> None:
        self._world.note("kill")
        self._is_reached.set()
        await asyncio.Event().wait()

    async def kill(self) -> None:
        """Claim the job, which calls it, and let the worker die then."""
        self._is_reached.clear()
        attempt = await FaultyWorker(self._world).claim()
        reached = asyncio.create_task(self._is_reached.wait())
        await asyncio.wait({reached, attempt.task}, return_when=asyncio.FIRST_COMPLETED)
        assert reached.done(), "the step was not called"
        attempt.lose()
        await asyncio.wait({attempt.task})
        self._world.clock.advance(LEASE_SECONDS + 1)
        assert len(await self._world.store.reclaim()) == 1


async def test_a_quarantined_workflow_is_undone(world: World) -> None:
    killer = Killer(world)

    @world.yard.workflow
    async def order(ctx: WorkflowContext) -> None:
        for name in "ab":
            await ctx.compensate(world.note, f"undo {name}")
            await ctx.step(world.note, f"do {name}")
        await ctx.step(killer, name="kill")

    handle = await order.enqueue()
    for _ in range(MAX_DEATHS):
        await killer.kill()
    await world.drain()
    job = await handle.info()
    assert (job.state, job.reason) == (State.FAILED, "quarantined: 3 workers died while running it")
    assert world.order == ["do a", "do b", *["kill"] * MAX_DEATHS, "undo b", "undo a"]
    assert (await world.store.get(handle.id)) is not None


async def test_a_quarantined_workflow_that_is_retried_begins_again(world: World) -> None:
    killer, is_mended = Killer(world), False

    @world.yard.workflow
    async def order(ctx: WorkflowContext) -> str:
        await ctx.compensate(world.note, "undo")
        if not is_mended:
            await ctx.step(killer, name="kill")
        return "fine"

    handle = await order.enqueue()
    for _ in range(MAX_DEATHS):
        await killer.kill()
    await world.drain()
    is_mended = True
    await handle.retry()
    assert await world.result(handle) == "fine"
    assert world.ledger["undo"] == 1


@pytest.mark.parametrize("end", ["fails", "is cancelled", "is quarantined"])
async def test_an_undo_step_that_kills_is_named_and_the_others_run(world: World, end: str) -> None:
    killer, deadly_step = Killer(world), Killer(world)

    @world.yard.workflow(max_attempts=1)
    async def order(ctx: WorkflowContext) -> None:
        await ctx.compensate(world.note, "undo a")
        await ctx.compensate(killer, name="refund")
        await ctx.compensate(world.note, "undo c")
        if end == "is cancelled":
            await ctx.wait_for("never")
        if end == "is quarantined":
            await ctx.step(deadly_step, name="kill")
        raise ValueError("broken")

    handle = await order.enqueue()
    if end == "is cancelled":
        await world.drain(with_delayed=False)
        await handle.cancel("not wanted")
    for _ in range(MAX_DEATHS if end == "is quarantined" else 0):
        await deadly_step.kill()
    world.order.clear()
    for _ in range(MAX_DEATHS):
        await killer.kill()
    await world.drain()
    job = await handle.info()
    begins = {"fails": "broken", "is cancelled": "not wanted", "is quarantined": "quarantined: 3 workers died"}[end]
    assert job.reason is not None
    assert job.reason.startswith(begins)
    assert job.reason.endswith("; undo step refund failed: 3 workers died while running it")
    assert job.state is (State.CANCELLED if end == "is cancelled" else State.FAILED)
    assert world.order == ["undo c", *["kill"] * MAX_DEATHS, "undo a"]


async def test_a_replay_that_kills_leaves_the_undo_steps_to_a_retry(world: World) -> None:
    killer, is_mended = Killer(world), False

    @world.yard.workflow
    async def order(ctx: WorkflowContext) -> None:
        await ctx.compensate(world.note, "undo a")
        await ctx.compensate(world.note, "undo b", name="release")
        if not is_mended:
            await killer()
        await ctx.wait_for("never")

    handle = await order.enqueue()
    for _ in range(2 * MAX_DEATHS):
        await killer.kill()
    await world.drain()
    job = await handle.info()
    assert job.state is State.FAILED
    assert job.reason == (
        "quarantined: 3 workers died while running it; undo steps not run: release, note. "
        f"To run them, mend the code and retry the job: jobyard jobs retry {handle.id}"
    )
    is_mended = True
    await handle.retry()
    await world.drain()
    job = await handle.info()
    assert (job.state, job.reason) == (State.FAILED, "quarantined: 3 workers died while running it")
    assert world.order == [*["kill"] * 2 * MAX_DEATHS, "undo b", "undo a"]


async def test_a_workflow_that_has_recorded_nothing_is_quarantined_at_once(world: World) -> None:
    killer = Killer(world)

    @world.yard.workflow
    async def order(ctx: WorkflowContext) -> None:
        await ctx.step(killer, name="kill")

    handle = await order.enqueue()
    for _ in range(MAX_DEATHS):
        await killer.kill()
    assert (await handle.info()).state is State.FAILED


# Files

ALERT = [step("alert", input={"name": "${failure.step}: ${failure.error}"})]


def declare(world: World, killer: Callable[[], Any]) -> None:
    @world.yard.job(max_attempts=1)
    async def work(name: str) -> str:
        world.note(name)
        return name

    @world.yard.job(max_attempts=1)
    async def kill() -> None:
        await killer()


DEADLY = [step("a", input={"name": "a"}), step("bad", "kill", needs=["a"]), step("c", needs=["bad"])]


async def test_the_failure_steps_of_a_quarantined_run(world: World) -> None:
    killer = Killer(world)
    declare(world, killer)
    handle = await start(world, DEADLY, on_failure=ALERT)
    for _ in range(MAX_DEATHS):
        await killer.kill()
    await world.drain()
    job = await handle.info()
    assert (job.state, job.reason) == (State.FAILED, "quarantined: 3 workers died while running it")
    assert world.order == ["a", *["kill"] * MAX_DEATHS, "bad: quarantined: 3 workers died while running it"]
    stored = await world.store.get(handle.id)
    assert stored is not None
    found = run_view(await load_run(world.store, stored), world.clock.now())
    assert [(each.id, str(each.status)) for each in found.steps] == [
        ("a", "completed"),
        ("bad", "interrupted"),
        ("c", "skipped"),
        ("alert", "completed"),
    ]


async def test_a_failure_step_that_kills_does_not_run_for_ever(world: World) -> None:
    killer = Killer(world)
    declare(world, killer)

    @world.yard.job(max_attempts=1)
    async def broken() -> None:
        raise ValueError("broken")

    handle = await start(
        world, [step("a", "broken")], on_failure=[step("alert", "kill"), step("later", needs=["alert"])]
    )
    for _ in range(MAX_DEATHS):
        await killer.kill()
    await world.drain()
    job = await handle.info()
    assert job.state is State.FAILED
    assert job.reason == ("quarantined: 3 workers died while running it; on_failure steps not finished: alert, later")
    assert world.ledger["kill"] == MAX_DEATHS


async def test_the_failure_steps_of_a_run_that_timed_out(world: World) -> None:
    async def hang() -> None:
        world.note("hang")
        await asyncio.Event().wait()

    declare(world, hang)
    handle = await start(world, DEADLY, on_failure=ALERT, timeout_seconds=0.5)
    await world.drain()
    job = await handle.info()
    assert (job.state, job.reason, job.attempt) == (State.TIMEOUT, "worked longer than 0.5 s", 1)
    assert world.order == ["a", "hang", "bad: worked longer than 0.5 s"]


async def test_a_step_that_killed_its_worker_at_once_is_interrupted(world: World) -> None:
    killer = Killer(world)
    declare(world, killer)
    handle = await start(world, DEADLY)
    for _ in range(MAX_DEATHS):
        await killer.kill()
    await world.drain()
    stored = await world.store.get(handle.id)
    assert stored is not None
    run = await load_run(world.store, msgspec.structs.replace(stored, steps=()))
    found = run_view(run, world.clock.now())
    assert [(each.id, str(each.status)) for each in found.steps] == [
        ("a", "completed"),
        ("bad", "interrupted"),
        ("c", "skipped"),
    ]
