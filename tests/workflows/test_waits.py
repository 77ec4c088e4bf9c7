"""Sleeps and signals: without a slot, and each answered once."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.workflows.conftest import World

from jobyard import QueueSettings, State, WorkflowContext
from jobyard.errors import BadOption, JobFailed, SignalTimeout

DAY = 86_400_000


async def test_a_sleep_frees_the_slot_and_ends_at_its_instant(world: World) -> None:
    await world.store.configure("serial", QueueSettings(max_running=1))

    @world.yard.workflow(queue="serial")
    async def sleeper(ctx: WorkflowContext) -> str:
        await ctx.step(world.note, "before")
        await ctx.sleep(days=3)
        return await ctx.step(lambda: "awake", name="after")

    @world.yard.job(queue="serial")
    async def other() -> None:
        world.note("other")

    began = world.clock.now()
    handle = await sleeper.enqueue()
    await other.enqueue()
    await world.drain(with_delayed=False)
    assert world.order == ["before", "other"]
    assert (await handle.info()).state is State.PENDING
    assert await world.result(handle) == "awake"
    assert world.clock.now() - began == 3 * DAY
    assert (await handle.info()).attempt == 1


async def test_a_sleep_that_ended_while_nothing_ran_goes_on_at_once(world: World) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> int:
        await ctx.sleep(hours=1)
        return 1

    handle = await flow.enqueue()
    await world.drain(with_delayed=False)
    world.clock.advance(30 * 86_400)
    await world.drain(with_delayed=False)
    assert await handle.result(timeout=0) == 1


async def test_a_retry_does_not_begin_the_sleep_again(world: World) -> None:
    @world.yard.workflow(backoff=60)
    async def flow(ctx: WorkflowContext) -> None:
        await ctx.sleep(hours=1)
        if ctx.attempt == 1:
            raise ValueError("again")

    began = world.clock.now()
    await world.result(await flow.enqueue())
    assert world.clock.now() - began < 3_700_000


@pytest.mark.parametrize("when", ["before", "during"])
async def test_a_signal_is_received(world: World, when: str) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> Any:
        return await ctx.wait_for("approved")

    handle = await flow.enqueue()
    if when == "during":
        await world.drain()
        job = await handle.info()
        assert (job.state, job.waiting_for) == (State.PENDING, "signal approved")
    await handle.signal("rejected")
    await handle.signal("approved", {"by": "me"})
    assert await world.result(handle) == {"by": "me"}


async def test_signals_of_a_name_are_taken_in_order_and_once(world: World) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> list[Any]:
        values = [await ctx.wait_for("next") for _ in range(3)]
        if ctx.attempt == 1:
            raise ValueError("again")
        return values

    handle = await flow.enqueue()
    await handle.signal("next", 1, signal_id="one")
    await world.drain()
    await handle.signal("next", 1, signal_id="one")
    await handle.signal("next", 2, signal_id="two")
    await world.drain()
    await handle.signal("next", 2, signal_id="two")
    await handle.signal("next", 3)
    assert await world.result(handle) == [1, 2, 3]


async def test_a_signal_that_does_not_come_times_out(world: World) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> list[Any]:
        try:
            await ctx.wait_for("approved", timeout=3600)
        except SignalTimeout as error:
            values: list[Any] = [str(error)]
        # The signal that came too late is left for the next wait.
        values.append(await ctx.wait_for("approved"))
        if ctx.attempt == 1:
            raise ValueError("again")
        return values

    handle = await flow.enqueue()
    began = world.clock.now()
    await world.drain()
    assert world.clock.now() - began == 3_600_000
    await handle.signal("approved", "late")
    assert await world.result(handle) == ["Signal approved did not arrive within 3600 s.", "late"]


async def test_a_signal_at_the_deadline_wins_or_loses_once(world: World) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> str:
        try:
            word: str = await ctx.wait_for("go", timeout=10)
        except SignalTimeout:
            word = "too late"
        if ctx.attempt == 1:
            raise ValueError("again")
        return word

    handle = await flow.enqueue()
    await world.drain(with_delayed=False)
    world.clock.advance(10)
    await handle.signal("go", "in time")
    await world.drain(with_delayed=False)
    await handle.signal("go", "again")
    assert await world.result(handle) == "in time"


async def test_branches_wait_side_by_side(world: World) -> None:
    async def ask(ctx: WorkflowContext, name: str) -> Any:
        await ctx.step(world.note, f"ask {name}")
        answer = await ctx.wait_for(name)
        await ctx.step(world.note, f"got {name}")
        return answer

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> list[Any]:
        return await ctx.gather(ask(ctx, "a"), ask(ctx, "b"), ctx.sleep(60))

    handle = await flow.enqueue()
    await world.drain(with_delayed=False)
    await handle.signal("b", 2)
    await world.drain(with_delayed=False)
    assert sorted(world.order) == ["ask a", "ask b", "got b"]
    await handle.signal("a", 1)
    assert await world.result(handle) == [1, 2, None]
    assert set(world.ledger.values()) == {1}


async def test_a_sleep_with_hold_keeps_the_slot(world: World) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> str:
        await ctx.sleep(0.05, hold=True)
        return "held"

    handle = await flow.enqueue()
    await world.drain(with_delayed=False)
    assert await handle.result(timeout=0) == "held"


@pytest.mark.parametrize("hold", [True, False])
async def test_a_sleep_with_hold_lets_no_other_job_of_its_platform_run(world: World, hold: bool) -> None:
    await world.store.configure("ably", QueueSettings(max_running=1))

    @world.yard.workflow(queue="ably")
    async def flow(ctx: WorkflowContext) -> None:
        await ctx.step(world.note, "before")
        await ctx.sleep(0.05, hold=hold)
        await ctx.step(world.note, "after")

    @world.yard.job(queue="ably")
    async def other() -> None:
        world.note("other")

    await flow.enqueue()
    await other.enqueue()
    await world.drain(with_delayed=not hold)
    assert world.order == (["before", "after", "other"] if hold else ["before", "other", "after"])


@pytest.mark.parametrize("options", [{"minutes": -1}, {"days": 1e9}, {"hours": math.nan}, {"days": math.inf}])
async def test_a_sleep_that_no_clock_can_end_is_refused(world: World, options: dict[str, float]) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> str:
        with pytest.raises(BadOption, match="sleep must be from 0 to"):
            await ctx.sleep(**options)  # type: ignore[arg-type]  # mypy: `hold` is a bool
        return "refused"

    assert await world.result(await flow.enqueue()) == "refused"


async def test_waiting_is_not_an_attempt_and_no_death(world: World) -> None:
    @world.yard.workflow(max_attempts=1)
    async def flow(ctx: WorkflowContext) -> int:
        for _ in range(5):
            await ctx.sleep(60)
        return ctx.attempt

    handle = await flow.enqueue()
    assert await world.result(handle) == 1
    assert (await handle.info()).deaths == 0


async def test_an_outcome_is_refused_with_the_remedy(world: World) -> None:
    from jobyard import Snooze  # noqa: PLC0415

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> Any:
        return Snooze(5)

    with pytest.raises(JobFailed, match=r"returned a Snooze\. Use ctx\.sleep"):
        await world.result(await flow.enqueue())
