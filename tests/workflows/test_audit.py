"""The auditor of workflows: it finds a parent that waits in vain and a child that was left behind, and repairs both."""

from __future__ import annotations

from tests.workflows.conftest import World

from jobyard import State, WorkflowContext
from jobyard.domain.job import Job
from jobyard.errors import ChildFailed
from jobyard.operations.workflow_audit import OrphanedChild, WaitsForEnded, audit_workflows, repair_workflows
from jobyard.ports.admin_store import Action, Filter


async def lose_ends(world: World) -> None:
    """Remove the ends from the store before they are delivered, as nothing in jobyard does."""
    await world.store.forget_ended([end.job_id for end in await world.store.ended_jobs()])


async def test_an_end_that_is_on_its_way_is_not_a_fault(world: World) -> None:
    @world.yard.job
    async def child() -> None: ...

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> None:
        await ctx.run(child.options(delay=60).call())

    await flow.enqueue()
    await world.drain(with_delayed=False)
    assert await audit_workflows(world.store) == []
    [job] = (await world.store.find(Filter(kind="child"))).jobs
    await world.store.change(Action.CANCEL, [job.id])
    assert await audit_workflows(world.store) == []
    await world.deliver()
    assert await audit_workflows(world.store) == []


async def test_a_workflow_that_waits_in_vain_is_found_and_goes_on(world: World) -> None:
    @world.yard.job
    async def child(n: int) -> None: ...

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> list[str]:
        found = []
        for how in ("cancel", "delete"):
            try:
                await ctx.run(child.options(delay=60).call(1))
            except ChildFailed as error:
                found.append(f"{how}: {error}")
        return found

    handle = await flow.enqueue()
    for action in (Action.CANCEL, Action.DELETE):
        await world.drain(with_delayed=False)
        [job] = (await world.store.find(Filter(kind="child", states=(State.PENDING,)))).jobs
        await world.store.change(action, [job.id], reason="stop")
        await lose_ends(world)
        [fault] = await audit_workflows(world.store)
        assert isinstance(fault, WaitsForEnded)
        assert (fault.parent_id, fault.child_id) == (handle.id, job.id)
        assert await repair_workflows(world.store) == [str(fault)]
        assert await audit_workflows(world.store) == []
    await world.drain(with_delayed=False)
    cancelled, deleted = await handle.result(timeout=0)
    assert cancelled.endswith("ended CANCELLED: stop")
    assert deleted.endswith("was not run: it does not exist.")


async def test_a_job_that_was_left_behind_is_found_and_cancelled(world: World) -> None:
    @world.yard.job
    async def child(n: int) -> None: ...

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> None:
        await ctx.map(lambda n: child.options(delay=60).call(n), range(2))

    handle = await flow.enqueue()
    await world.drain(with_delayed=False)
    for _ in range(2):
        await world.store.change(Action.CANCEL, [handle.id])
    assert await audit_workflows(world.store) == [], "the end is yet to be delivered"
    await lose_ends(world)
    faults = await repair_workflows(world.store)
    assert len(faults) == 2
    assert all(str(OrphanedChild(job.id, handle.id)) in faults for job in await children(world))
    assert {job.state for job in await children(world)} == {State.CANCELLED}
    assert await audit_workflows(world.store) == []


async def children(world: World) -> list[Job]:
    return list((await world.store.find(Filter(kind="child"))).jobs)
