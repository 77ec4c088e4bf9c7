"""Rules of replays that are seen only in odd moments: a repeated write, a shortened function, a backoff, a cancel."""

from __future__ import annotations

import asyncio
import logging
import random

import msgspec
import pytest
from tests.story.sizes import size
from tests.workflows.conftest import World

from jobyard import Jobyard, State, WorkflowContext
from jobyard.domain.lease import Lease
from jobyard.errors import JobCancelled, JobFailed
from jobyard.executors.workflow.records import WorkflowRecord, entry_of
from jobyard.ports.admin_store import Filter
from jobyard.ports.workflow_store import Checkpoint
from jobyard.testing.kit import drain

SEEDS = size(40, 1000)


async def test_a_step_whose_result_is_stored_already_returns_the_stored_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the first write was applied and its response was lost: two runs of a step must not give two answers."""
    leases: list[Lease] = []
    exchange = world.store.exchange

    async def remembering(*args: object, **options: object) -> object:
        response = await exchange(*args, **options)  # type: ignore[arg-type]
        leases.extend(response.leases)
        return response

    monkeypatch.setattr(world.store, "exchange", remembering)

    async def charge() -> str:
        first = WorkflowRecord(kind="step", name="charge", result=msgspec.Raw(b'"first"'))
        entries = (entry_of("charge#1", first),)
        await world.store.checkpoint([Checkpoint(key=leases[-1].key, entries=entries)])
        return "second"

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> str:
        return await ctx.step(charge)

    assert await world.result(await flow.enqueue()) == "first"


async def test_a_function_that_no_longer_asks_for_what_it_recorded_fails(world: World) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> None:
        await ctx.step(world.note, "a", name="a")
        if ctx.attempt == 1:
            await ctx.step(world.note, "b", name="b")
            raise ValueError("redeployed")

    handle = await flow.enqueue()
    with pytest.raises(JobFailed, match=r"ended without b#1.*\nRecorded: step a#1, step b#1\nThis run: step a#1"):
        await world.result(handle)
    assert (await handle.info()).attempt == 2


async def test_a_backoff_of_a_second_or_more_frees_the_slot(world: World) -> None:
    async def broken() -> None:
        world.note("tried")
        if world.ledger["tried"] == 1:
            raise OSError("no connection")

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> None:
        await ctx.step(broken, backoff=60)

    handle = await flow.enqueue()
    await world.drain(with_delayed=False)
    job = await handle.info()
    assert (job.state, job.attempt, world.ledger["tried"]) == (State.PENDING, 0, 1)
    assert [(info.running, info.delayed) for info in await world.store.queues()] == [(0, 1)]
    await world.result(handle)
    assert (await handle.info()).attempt == 1


async def test_a_workflow_that_is_being_cancelled_starts_no_child(world: World) -> None:
    @world.yard.job
    async def child() -> None:
        world.note("child")

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> None:
        try:
            await ctx.wait_for("never", timeout=3600)
        finally:
            await ctx.run(child.call())

    handle = await flow.enqueue()
    await world.drain(with_delayed=False)
    await handle.cancel("enough")
    with pytest.raises(JobCancelled):
        await world.result(handle)
    assert (await world.store.find(Filter(kind="child"))).jobs == ()


async def test_a_long_history_is_warned_of_before_it_is_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("jobyard.executors.workflow.journal.WARN_ENTRIES", 3)

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> None:
        for _ in range(5):
            await ctx.step(world.note, "step")

    with caplog.at_level(logging.WARNING, "jobyard.workflow"):
        await world.result(await flow.enqueue())
    [line] = [record.getMessage() for record in caplog.records if record.name == "jobyard.workflow"]
    assert "has recorded 3 operations" in line
    assert "ctx.map or ctx.continue_as_new" in line


async def test_branches_replay_equally_for_every_seed() -> None:
    yard, chance, seen = Jobyard("memory://"), random.Random(), list[str]()

    async def step(name: str) -> str:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        seen.append(name)
        return name

    async def branch(ctx: WorkflowContext, name: str, depth: int) -> list[object]:
        found: list[object] = [await ctx.step(step, f"{name}{n}") for n in range(2)]
        if depth:
            found += await ctx.gather(*(branch(ctx, f"{name}{n}-", depth - 1) for n in range(2)))
        return found

    @yard.workflow(max_attempts=3, backoff=0)
    async def flow(ctx: WorkflowContext) -> list[object]:
        found = await ctx.gather(*(branch(ctx, name, 1) for name in "ab"), at_most=chance.randint(1, 3))
        if ctx.attempt < 3:
            raise ValueError("again")
        return found

    async with yard:
        expected: object = None
        for seed in range(SEEDS):
            chance.seed(seed)
            seen.clear()
            handle = await flow.enqueue()
            await drain(yard)
            result = await handle.result(timeout=0)
            assert len(seen) == len(set(seen)) == 12, f"seed {seed}: {seen}"
            expected = expected or result
            assert result == expected, f"seed {seed}"
