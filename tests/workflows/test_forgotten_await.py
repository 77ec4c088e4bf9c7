"""An operation that is called without await does nothing; the run fails and says which one it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.workflows.conftest import World

from jobyard import State, WorkflowContext
from jobyard.errors import JobFailed, StepFailed


@pytest.fixture
def forgotten() -> Iterator[list[Any]]:
    """What was called without await; closed at the end, so that Python does not warn of it."""
    found: list[Any] = []
    yield found
    for each in found:
        if hasattr(each, "close"):
            each.close()


async def test_a_forgotten_await_fails_the_run(world: World, forgotten: list[Any]) -> None:
    @world.yard.job
    async def pack(number: int) -> None: ...

    def call(ctx: WorkflowContext, what: str) -> Any:
        operations: dict[str, Callable[[], Any]] = {
            "step pay": lambda: ctx.step(world.note, "charged", name="pay"),
            "compensate refund": lambda: ctx.compensate(world.note, "refunded", name="refund"),
            "run pack": lambda: ctx.run(pack.call(1)),
            "map pack": lambda: ctx.map(pack.call, [1]),
            "gather gather": lambda: ctx.gather(*()),
            "sleep sleep": lambda: ctx.sleep(1),
            "wait_for go": lambda: ctx.wait_for("go"),
            "now now": ctx.now,
            "version new": lambda: ctx.version("new", 2),
        }
        return operations[what]()

    @world.yard.workflow
    async def order(ctx: WorkflowContext, what: str) -> str:
        await ctx.compensate(world.note, "undone")
        forgotten.append(call(ctx, what))
        return "paid"

    whats = ("step pay", "compensate refund", "run pack", "map pack", "gather gather", "sleep sleep", "wait_for go")
    for what in (*whats, "now now", "version new"):
        handle = await order.enqueue(what)
        with pytest.raises(JobFailed, match=f"{what} was called without await"):
            await world.result(handle)
        assert (await handle.info()).attempt == 1
    assert world.ledger == {"undone": 9}


async def test_two_forgotten_awaits_are_both_named(world: World, forgotten: list[Any]) -> None:
    @world.yard.workflow
    async def order(ctx: WorkflowContext) -> None:
        forgotten.append(ctx.step(world.note, "a", name="pack"))
        forgotten.append(ctx.step(world.note, "b", name="pay"))

    with pytest.raises(JobFailed, match="step pack, step pay were called without await"):
        await world.result(await order.enqueue())


async def test_branches_that_a_failure_has_stopped_are_not_forgotten(world: World) -> None:
    def fail() -> None:
        raise ValueError("no")

    @world.yard.workflow
    async def order(ctx: WorkflowContext) -> str:
        try:
            await ctx.gather(ctx.step(fail, retry=0), ctx.step(world.note, "late"), at_most=1)
        except StepFailed:
            return "went on"
        return "did not fail"

    handle = await order.enqueue()
    assert await world.result(handle) == "went on"
    assert (await handle.info()).state is State.COMPLETED
