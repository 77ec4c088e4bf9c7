"""Workflows that are interrupted where it hurts: between two writes, in branches, and by code that catches too much."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.workflows.conftest import World

from jobyard import QueueSettings, State, WorkflowContext
from jobyard.domain.job import Job, NewJob
from jobyard.errors import ChildFailed, JobCancelled, JobFailed, LeaseLost, QueueFull, StepFailed
from jobyard.executors.workflow.batching import StoreBatches
from jobyard.executors.workflow.journal import Journal
from jobyard.ports.admin_store import Action, Filter
from jobyard.worker.end_relay import prune

YEARS = 11 * 366 * 86_400.0  # longer than any lease of these tests


def die_at_record(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """The process dies once, after a record whose key has the word: nothing of the attempt is settled."""
    record = Journal.record
    died: list[str] = []

    async def dies(self: Journal, key: str, each: Any) -> Any:
        stored = await record(self, key, each)
        if word in key and not died:
            died.append(key)
            raise LeaseLost("the process died")
        return stored

    monkeypatch.setattr(Journal, "record", dies)


async def revive(world: World) -> None:
    """Run everything; what died goes back when its lease has expired."""
    await world.drain()
    world.clock.advance(YEARS)
    assert await world.store.reclaim()
    await world.drain()


async def jobs_of(world: World, kind: str) -> list[Job]:
    return list((await world.store.find(Filter(kind=kind), limit=1000)).jobs)


async def test_a_death_after_the_last_undo_step_does_not_begin_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    @world.yard.workflow(max_attempts=1)
    async def order(ctx: WorkflowContext) -> None:
        await ctx.compensate(world.note, "undo")
        await ctx.step(world.note, "do")
        raise ValueError("broken")

    handle = await order.enqueue()
    die_at_record(monkeypatch, "ended")
    await revive(world)
    with pytest.raises(JobFailed, match="broken"):
        await handle.result(timeout=0)
    assert world.order == ["do", "undo"]
    await handle.retry()
    with pytest.raises(JobFailed, match="broken"):
        await world.result(handle)
    assert world.order == ["do", "undo", "do", "undo"]


async def test_all_branches_are_undone_after_a_cancel(world: World) -> None:
    """The branch that waits is at its end at once; the other must still reach what it has recorded."""

    @world.yard.workflow
    async def order(ctx: WorkflowContext) -> None:
        async def waits() -> None:
            await ctx.compensate(world.note, "undo a")
            await ctx.wait_for("never")

        async def goes_on() -> None:
            await ctx.sleep(1)
            await ctx.compensate(world.note, "undo b")
            await ctx.sleep(1)
            await ctx.compensate(world.note, "undo c")
            await ctx.wait_for("never")

        await ctx.gather(waits(), goes_on())

    handle = await order.enqueue()
    await world.drain()
    await handle.cancel("enough")
    with pytest.raises(JobCancelled):
        await world.result(handle)
    assert world.order == ["undo c", "undo b", "undo a"]


async def test_a_branch_that_fails_first_does_not_hide_what_others_recorded(world: World) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> str:
        async def long() -> None:
            await ctx.step(world.note, "a")
            await ctx.sleep(1)
            await ctx.step(world.note, "b")
            await ctx.sleep(5)
            await ctx.step(world.note, "never")

        async def fails() -> None:
            await ctx.sleep(3)
            await ctx.step(refuse, retry=0)

        async def refuse() -> None:
            raise ValueError("no")

        try:
            await ctx.gather(fails(), long())
        except StepFailed:
            await ctx.step(world.note, "caught")
        await ctx.sleep(1)
        return "fine"

    assert await world.result(await flow.enqueue()) == "fine"
    assert world.order == ["a", "b", "caught"]


async def test_two_waits_side_by_side_take_two_signals(world: World) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> list[int]:
        return await ctx.gather(*(ctx.wait_for("go") for _ in range(3)))

    handle = await flow.enqueue()
    for number in range(3):
        await world.yard.signal(handle.id, "go", number)
    assert sorted(await world.result(handle)) == [0, 1, 2]


async def test_no_step_begins_after_the_lease_was_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> None:
        await ctx.step(world.note, "first")
        try:
            await ctx.step(world.note, "second")
        except Exception:
            await ctx.step(world.note, "after")

    async def refused(checkpoints: Any) -> Any:
        return [None] * len(checkpoints) if world.ledger["second"] == 1 else await checkpoint(checkpoints)

    checkpoint = world.store.checkpoint
    monkeypatch.setattr(world.store, "checkpoint", refused)
    handle = await flow.enqueue()
    await world.drain()
    assert world.order == ["first", "second"]
    assert (await handle.info()).state is State.RUNNING, "nothing was settled"


async def test_code_that_catches_everything_still_waits(world: World) -> None:
    @world.yard.job
    async def child() -> int:
        return 3

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> int:
        try:
            await ctx.sleep(5)
        except BaseException:
            return -1
        try:
            return await ctx.run(child.call())
        except BaseException as error:
            raise ValueError("caught") from error

    @world.yard.workflow
    async def stubborn(ctx: WorkflowContext) -> int:
        try:
            return await ctx.run(child.options(delay=9).call())
        except asyncio.CancelledError:
            return await ctx.run(child.options(delay=5).call())

    handles = [await flow.enqueue(), await stubborn.enqueue()]
    async with asyncio.timeout(60):
        assert [await world.result(handle) for handle in handles] == [3, 3]


@pytest.mark.parametrize("delay", [5, 7200])
async def test_a_delayed_child_whose_insert_was_lost_keeps_its_delay(
    world: World, monkeypatch: pytest.MonkeyPatch, delay: int
) -> None:
    @world.yard.job
    async def child() -> None:
        world.note("child")

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> None:
        await ctx.run(child.options(delay=delay).call())

    insert, fails = world.store.insert, [True]

    async def dies(jobs: list[NewJob], transaction: Any = None) -> Any:
        if jobs[0].parent is not None and fails.pop() if fails else False:
            raise RuntimeError("the process died")
        return await insert(jobs, transaction)

    handle = await flow.options(backoff=1).enqueue()
    monkeypatch.setattr(world.store, "insert", dies)
    await world.drain(with_delayed=False)
    world.clock.advance(2)
    await world.drain(with_delayed=False)
    world.clock.advance(delay - 1)
    await world.drain(with_delayed=False)
    assert world.order == []
    world.clock.advance(2)
    await world.drain(with_delayed=False)
    assert world.order == ["child"]
    assert (await handle.info()).state is State.COMPLETED


async def test_a_full_history_can_be_undone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobyard.executors.workflow.journal.MAX_ENTRIES", 20)

    @world.yard.workflow(max_attempts=1)
    async def flow(ctx: WorkflowContext) -> None:
        await ctx.compensate(world.note, "undo")
        for _ in range(100):
            await ctx.step(world.note, "do")

    handle = await flow.enqueue()
    with pytest.raises(JobFailed, match="Cannot record more than 20"):
        await world.result(handle)
    assert world.ledger["undo"] == 1


async def test_an_end_that_is_delivered_late_spares_a_workflow_that_was_retried(world: World) -> None:
    @world.yard.job
    async def work() -> int:
        return 1

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> int:
        return await ctx.run(work.options(delay=3600).call())

    handle = await flow.enqueue()
    await world.drain(with_delayed=False)
    for _ in range(2):
        await world.store.change(Action.CANCEL, [handle.id])
    await handle.retry()
    await world.deliver()
    [child] = await jobs_of(world, "work")
    assert child.state is State.PENDING
    assert await world.result(handle) == 1


async def test_children_that_end_before_the_workflow_is_retried_are_known_to_it(world: World) -> None:
    @world.yard.job
    async def work(n: int) -> int:
        return n

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> int:
        try:
            return await ctx.run(work.options(delay=3600).call(1))
        except ChildFailed:
            return -1

    handle = await flow.enqueue()
    await world.drain(with_delayed=False)
    for _ in range(2):
        await world.store.change(Action.CANCEL, [handle.id])
    await world.drain()
    assert {job.state for job in await jobs_of(world, "work")} == {State.CANCELLED}
    await handle.retry()
    assert await world.result(handle) == -1


async def test_children_that_no_one_waits_for_end_with_the_workflow(world: World) -> None:
    @world.yard.job
    async def work() -> None: ...

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> str:
        async def fails() -> None:
            await ctx.sleep(1)
            raise ValueError("no")

        try:
            await ctx.gather(ctx.run(work.options(delay=3600).call()), fails())
        except ValueError:
            return "fine"
        return ""

    handle = await flow.enqueue()
    await world.drain(with_delayed=False)
    world.clock.advance(2)
    await world.drain(with_delayed=False)
    assert await handle.result(timeout=0) == "fine"
    [child] = await jobs_of(world, "work")
    assert child.state is State.CANCELLED


async def test_an_open_batch_that_is_cancelled_takes_its_jobs_along(world: World) -> None:
    @world.yard.job
    async def work(n: int) -> None: ...

    batch = world.yard.batch()
    await batch.__aenter__()
    await batch.add(*(work.options(delay=3600).call(n) for n in range(3)))
    await world.drain(with_delayed=False)
    await batch.handle.cancel("changed my mind")
    await world.drain(with_delayed=False)
    assert (await batch.handle.info()).state is State.CANCELLED
    assert {job.state for job in await jobs_of(world, "work")} == {State.CANCELLED}


async def test_children_of_a_workflow_that_retention_removed_are_cancelled(world: World) -> None:
    await world.store.configure("small", QueueSettings(keep_failed=0, keep_failed_seconds=0))

    @world.yard.job
    async def work(n: int) -> None: ...

    @world.yard.workflow(queue="small")
    async def flow(ctx: WorkflowContext) -> None:
        await ctx.map(lambda n: work.options(delay=3600).call(n), range(3))

    handle = await flow.enqueue()
    await world.drain(with_delayed=False)
    for _ in range(2):
        await world.store.change(Action.CANCEL, [handle.id])
    await prune(world.store, 1000)
    assert (await world.store.get(handle.id)) is None
    assert {job.state for job in await jobs_of(world, "work")} == {State.CANCELLED}


async def test_a_child_in_its_backoff_is_not_run_early(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that does not know whether it inserted a child must not disturb the one that is there."""

    @world.yard.job(backoff=3000)
    async def child() -> int:
        world.note("child")
        if world.ledger["child"] == 1:
            raise ValueError("again later")
        return 4

    @world.yard.workflow(backoff=1)
    async def flow(ctx: WorkflowContext) -> int:
        return await ctx.run(child.call())

    insert, fails = world.store.insert, [True]

    async def dies(jobs: list[NewJob], transaction: Any = None) -> Any:
        inserted = await insert(jobs, transaction)
        if jobs[0].parent is not None and fails.pop() if fails else False:
            raise RuntimeError("the process died")
        return inserted

    handle = await flow.enqueue()
    monkeypatch.setattr(world.store, "insert", dies)
    await world.drain(with_delayed=False)
    world.clock.advance(2)
    await world.drain(with_delayed=False)
    assert world.ledger["child"] == 1
    assert await world.result(handle) == 4


async def test_a_full_queue_does_not_hold_up_children_of_others(world: World) -> None:
    await world.store.configure("full", QueueSettings(max_waiting=1))

    @world.yard.job
    async def child() -> int:
        return 1

    await world.store.set_paused("full", None, True)
    await child.options(queue="full").enqueue()
    batches = StoreBatches(world.store)
    jobs = [child.options(queue=queue).call().new_job for queue in ("free", "full", "free")]
    answers = await asyncio.gather(*(batches.insert(job) for job in jobs), return_exceptions=True)
    assert [type(answer) for answer in answers] == [str, QueueFull, str]
