"""Undo steps: in reverse order, each stored, when the workflow fails for good or is cancelled."""

from __future__ import annotations

import asyncio

import pytest
from tests.workflows.conftest import World

from jobyard import State, WorkflowContext
from jobyard.errors import JobCancelled, JobFailed
from jobyard.executors.workflow.relay import cancel_children
from jobyard.operations.workflow_audit import audit_workflows
from jobyard.ports.admin_store import Action, Filter


async def test_undo_steps_run_in_reverse_when_it_fails_for_good(world: World) -> None:
    @world.yard.workflow
    async def order(ctx: WorkflowContext) -> None:
        for name in "abc":
            await ctx.compensate(world.note, f"undo {name}")
            await ctx.step(world.note, f"do {name}")
        raise ValueError("broken")

    handle = await order.enqueue()
    with pytest.raises(JobFailed, match="broken"):
        await world.result(handle)
    assert world.order == ["do a", "do b", "do c", "undo c", "undo b", "undo a"]
    assert (await handle.info()).attempt == 3


async def test_nothing_is_undone_after_success_or_while_attempts_are_left(world: World) -> None:
    @world.yard.workflow
    async def order(ctx: WorkflowContext) -> None:
        await ctx.compensate(world.note, "undo")
        if ctx.attempt == 1:
            raise ValueError("again")

    await world.result(await order.enqueue())
    assert world.order == []


async def test_a_cancelled_workflow_is_undone(world: World) -> None:
    @world.yard.workflow
    async def order(ctx: WorkflowContext) -> None:
        await ctx.compensate(world.note, "undo")
        await ctx.step(world.note, "do")
        await ctx.wait_for("never")
        await ctx.step(world.note, "after")

    handle = await order.enqueue()
    await world.drain()
    await handle.cancel("changed my mind")
    with pytest.raises(JobCancelled, match="changed my mind"):
        await world.result(handle)
    assert world.order == ["do", "undo"]


async def test_an_undo_step_that_fails_does_not_stop_the_others(world: World) -> None:
    def refuse() -> None:
        world.note("refuse")
        raise OSError("no connection")

    @world.yard.workflow(max_attempts=1)
    async def order(ctx: WorkflowContext) -> None:
        await ctx.compensate(world.note, "undo a")
        await ctx.compensate(refuse, retry=2, backoff=60)
        await ctx.compensate(world.note, "undo c")
        raise ValueError("broken")

    handle = await order.enqueue()
    with pytest.raises(JobFailed, match="broken"):
        await world.result(handle)
    assert world.order == ["undo c", "refuse", "refuse", "refuse", "undo a"]
    assert any("undo failed" in line.message for line in (await handle.info()).log)


async def test_a_second_cancel_abandons_the_undo_steps(world: World) -> None:
    def refuse() -> None:
        world.note("refuse")
        raise OSError("no connection")

    @world.yard.workflow
    async def order(ctx: WorkflowContext) -> None:
        await ctx.compensate(refuse, retry=100, backoff=3600)
        await ctx.wait_for("never")

    handle = await order.enqueue()
    await world.drain()
    await handle.cancel()
    await world.drain(with_delayed=False)
    assert (await handle.info()).state is State.PENDING
    await handle.cancel("now")
    assert (await handle.info()).state is State.CANCELLED
    assert world.ledger["refuse"] == 1


async def test_a_retry_by_hand_after_undoing_begins_again(world: World) -> None:
    @world.yard.workflow(max_attempts=1)
    async def order(ctx: WorkflowContext) -> str:
        await ctx.compensate(world.note, "undo")
        await ctx.step(world.note, "do")
        if world.ledger["do"] == 1:
            raise ValueError("broken")
        return "fine"

    handle = await order.enqueue()
    with pytest.raises(JobFailed):
        await world.result(handle)
    await handle.retry()
    assert await world.result(handle) == "fine"
    assert world.order == ["do", "undo", "do"]


async def test_a_failed_step_is_undone_by_its_compensation(world: World) -> None:
    async def charge() -> None:
        world.note("charge")
        raise ValueError("card refused")

    @world.yard.workflow
    async def order(ctx: WorkflowContext) -> None:
        await ctx.compensate(world.note, "refund")
        await ctx.step(charge, retry=0)

    handle = await order.enqueue()
    with pytest.raises(JobFailed, match="Step charge failed: ValueError: card refused"):
        await world.result(handle)
    assert world.order == ["charge", "refund"]


UNDONE: list[tuple[int, ...]] = []


def undo_numbers(numbers: tuple[int, ...]) -> None:
    UNDONE.append(numbers)


async def test_undo_steps_are_carried_over_by_continue_as_new(world: World) -> None:
    UNDONE.clear()

    @world.yard.workflow(max_attempts=1)
    async def flow(ctx: WorkflowContext, number: int) -> None:
        await ctx.compensate(undo_numbers, (number, number))
        if number < 3:
            ctx.continue_as_new(number + 1)
        raise ValueError("broken")

    handle = await flow.enqueue(1)
    with pytest.raises(JobFailed, match="broken"):
        await world.result(handle)
    assert UNDONE == [(3, 3), (2, 2), (1, 1)]


async def test_an_undo_step_that_cannot_be_found_again_is_refused(world: World) -> None:
    @world.yard.workflow(max_attempts=1)
    async def flow(ctx: WorkflowContext) -> None:
        await ctx.compensate(lambda: None)
        ctx.continue_as_new()

    with pytest.raises(JobFailed, match="must be a function of a module"):
        await world.result(await flow.enqueue())


async def test_two_workers_that_deliver_the_same_end_do_not_skip_the_undo_steps_of_a_child(world: World) -> None:
    @world.yard.workflow
    async def child(ctx: WorkflowContext) -> None:
        await ctx.compensate(world.note, "undo")
        await ctx.step(world.note, "do")
        await ctx.wait_for("never")

    @world.yard.workflow
    async def parent(ctx: WorkflowContext) -> None:
        await ctx.run(child.call())

    handle = await parent.enqueue()
    await world.drain()
    await world.store.change(Action.CANCEL, [handle.id])
    await handle.cancel("now")
    # The parent has ended without telling its child. Both workers read its end before one of them has acted on it.
    [ended] = await world.store.ended_jobs()
    for _ in range(2):
        await cancel_children(world.store, ended)
    await world.drain()
    assert world.order == ["do", "undo"]


async def test_a_failed_workflow_is_deleted_after_its_children_are_cancelled(world: World) -> None:
    @world.yard.job
    async def child(n: int) -> None:
        world.note("child")

    @world.yard.workflow
    async def parent(ctx: WorkflowContext) -> None:
        await ctx.map(lambda n: child.options(delay=60).call(n), range(3))

    handle = await parent.enqueue()
    await world.drain(with_delayed=False)
    for _ in range(2):
        await world.store.change(Action.CANCEL, [handle.id])
    assert (await world.store.change(Action.DELETE, [handle.id])).unchanged == (handle.id,)
    await handle.delete()
    assert await world.store.get(handle.id) is None
    assert {job.state for job in (await world.store.find(Filter(kind="child"))).jobs} == {State.CANCELLED}
    assert await audit_workflows(world.store) == []
    await world.drain()
    assert world.ledger["child"] == 0


async def test_a_timed_out_attempt_is_repeated_and_the_last_one_is_undone(world: World) -> None:
    async def hang() -> None:
        world.note("hang")
        await asyncio.Event().wait()

    @world.yard.workflow(timeout=1, max_attempts=2, backoff=0)
    async def order(ctx: WorkflowContext) -> None:
        await ctx.compensate(world.note, "undo")
        await ctx.step(hang)

    handle = await order.enqueue()
    await world.drain()
    job = await handle.info()
    assert (job.state, job.attempt, job.reason) == (State.TIMEOUT, 2, "worked longer than 1 s")
    assert world.order == ["hang", "hang", "undo"]
