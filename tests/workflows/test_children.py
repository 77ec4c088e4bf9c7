"""Child jobs: ordinary jobs under ordinary limits, each once, and a parent that never waits for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support import eventually
from tests.workflows.conftest import World

from jobyard import JobHandle, Jobyard, QueueSettings, State, WorkflowContext
from jobyard.domain.instant import as_instant
from jobyard.domain.job import Job, NewJob
from jobyard.errors import ChildFailed, JobCancelled, JobFailed
from jobyard.executors.workflow.relay import load_children
from jobyard.ports.admin_store import Action, Filter


async def jobs_of(world: World, kind: str) -> list[Job]:
    return list((await world.store.find(Filter(kind=kind), limit=1000)).jobs)


async def test_a_child_runs_once_and_its_result_returns(world: World) -> None:
    @world.yard.job(queue="scans")
    async def scan(url: str) -> dict[str, str]:
        world.note(url)
        return {"url": url}

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> list[Any]:
        values = [await ctx.run(scan.options(group="acme", priority=3).call(url)) for url in ("a", "b")]
        if ctx.attempt == 1:
            raise ValueError("again")
        return values

    handle = await flow.enqueue()
    assert await world.result(handle) == [{"url": "a"}, {"url": "b"}]
    assert world.ledger == {"a": 1, "b": 1}
    children = await jobs_of(world, "scan")
    assert {(job.queue, job.group, job.priority) for job in children} == {("scans", "acme", 3)}
    assert (await world.store.get(children[0].id)).parent_id == handle.id  # type: ignore[union-attr]


async def test_parent_and_child_share_a_serial_queue(world: World) -> None:
    @world.yard.job(queue="one")
    async def child() -> int:
        return 1

    @world.yard.workflow(queue="one")
    async def flow(ctx: WorkflowContext) -> int:
        return await ctx.run(child.call()) + await ctx.run(child.call())

    await world.store.configure("one", QueueSettings(max_running=1))
    assert await world.result(await flow.enqueue()) == 2


async def test_a_failed_child_raises_with_its_id(world: World) -> None:
    @world.yard.job(max_attempts=1)
    async def child() -> None:
        raise ValueError("broken")

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> list[str]:
        try:
            await ctx.run(child.call())
        except ChildFailed as error:
            caught = [error.job_id, str(error)]
        if ctx.attempt == 1:
            raise ValueError("again")
        return caught

    job_id, text = await world.result(await flow.enqueue())
    [job] = await jobs_of(world, "child")
    assert (job.id, job.state) == (job_id, State.FAILED)
    assert text == f"Child job {job_id} ended FAILED: broken"


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_a_child_that_an_operator_removes_does_not_hang_the_parent(world: World, how: str) -> None:
    @world.yard.job
    async def child() -> None: ...

    @world.yard.workflow(max_attempts=1)
    async def flow(ctx: WorkflowContext) -> None:
        await ctx.run(child.options(delay=3600).call())

    handle = await flow.enqueue()
    await world.drain(with_delayed=False)
    [job] = await jobs_of(world, "child")
    await world.store.change(Action.CANCEL if how == "cancel" else Action.DELETE, [job.id])
    await world.drain(with_delayed=False)
    with pytest.raises(JobFailed, match="Child job"):
        await handle.result(timeout=0)


async def test_a_child_whose_unique_key_is_held_follows_the_holder(world: World) -> None:
    @world.yard.job
    async def child() -> int:
        return world.ledger.total() + 5

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> int:
        return await ctx.run(child.options(unique="k").call())

    holder = await child.options(unique="k", delay=30).enqueue()
    assert await world.result(await flow.enqueue()) == 5
    assert (await holder.info()).state is State.COMPLETED
    assert len(await jobs_of(world, "child")) == 1


async def test_map_runs_each_item_once_with_a_limit(world: World) -> None:
    most = 0

    @world.yard.job(queue="packing")
    async def pack(item: int) -> int:
        nonlocal most
        world.note(str(item))
        unfinished = [job for job in await jobs_of(world, "pack") if not job.state.is_final]
        most = max(most, len(unfinished))
        return item * 2

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> list[int]:
        values = await ctx.map(pack.call, range(50), at_most=7)
        if ctx.attempt == 1:
            raise ValueError("again")
        return values

    assert await world.result(await flow.enqueue()) == [n * 2 for n in range(50)]
    assert set(world.ledger.values()) == {1}
    assert most <= 7


async def test_map_yields_results_as_they_come(world: World) -> None:
    @world.yard.job
    async def pack(item: str) -> str:
        return item.upper()

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> list[str]:
        return sorted([result async for result in ctx.map(pack.call, "abc")])

    assert await world.result(await flow.enqueue()) == ["A", "B", "C"]


async def test_the_items_of_a_map_may_be_a_generator() -> None:
    yard, is_left = Jobyard("memory://"), asyncio.Event()
    started: list[str] = []

    @yard.job
    async def pack(item: str) -> str:
        started.append(item)
        await is_left.wait()
        return item.upper()

    @yard.workflow(max_attempts=1)
    async def flow(ctx: WorkflowContext) -> list[str]:
        return await ctx.map(pack.call, (letter for letter in "abc"))

    async with yard, yard.worker(concurrency=4):
        job = await flow.enqueue()
        # The function waits without a slot, and begins again when its children have ended.
        await eventually(lambda: len(started) == 3)
        await eventually(lambda: is_pending(job))
        is_left.set()
        assert await job.result(timeout=60) == ["A", "B", "C"]


async def is_pending(job: JobHandle[Any]) -> bool:
    return (await job.info()).state == State.PENDING


async def test_an_empty_map_ends_at_once(world: World) -> None:
    @world.yard.job
    async def pack(item: str) -> str:
        return item

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> list[str]:
        return await ctx.map(pack.call, [])

    assert await world.result(await flow.enqueue()) == []


async def test_the_first_failure_of_a_map_cancels_the_rest(world: World) -> None:
    @world.yard.job(max_attempts=1)
    async def pack(item: int) -> int:
        world.note(str(item))
        if item == 2:
            raise ValueError("no")
        return item

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> str:
        try:
            await ctx.map(lambda n: pack.options(delay=n * 60).call(n), range(10))
        except ChildFailed as error:
            return str(error)
        return ""

    handle = await flow.enqueue()
    assert (await world.result(handle)).endswith("ended FAILED: no")
    assert sorted(world.ledger) == ["0", "1", "2"]
    assert {job.state for job in await jobs_of(world, "pack")} == {State.COMPLETED, State.FAILED, State.CANCELLED}


async def test_a_map_can_collect_failures(world: World) -> None:
    @world.yard.job(max_attempts=1)
    async def pack(item: int) -> int:
        if item == 1:
            raise ValueError("no")
        return item

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> list[str]:
        results = await ctx.map(pack.call, range(3), on_error="collect")
        return [type(result).__name__ for result in results]

    assert await world.result(await flow.enqueue()) == ["int", "ChildFailed", "int"]


async def test_cancel_reaches_children_and_the_parent_ends_last(world: World) -> None:
    @world.yard.job
    async def work(item: int) -> None: ...

    @world.yard.workflow
    async def inner(ctx: WorkflowContext) -> None:
        await ctx.map(lambda n: work.options(delay=3600).call(n), range(3))

    @world.yard.workflow
    async def outer(ctx: WorkflowContext) -> None:
        await ctx.gather(ctx.run(inner.call()), ctx.run(work.options(delay=3600).call(9)))

    handle = await outer.enqueue()
    await world.drain(with_delayed=False)
    assert len(await jobs_of(world, "work")) == 4
    await handle.cancel("enough")
    await world.drain(with_delayed=False)
    with pytest.raises(JobCancelled, match="enough"):
        await handle.result(timeout=0)
    states = {job.id: job for job in [*await jobs_of(world, "work"), *await jobs_of(world, "inner")]}
    assert {job.state for job in states.values()} == {State.CANCELLED}
    ended = (await handle.info()).finished_at
    assert ended is not None
    assert all((job.finished_at or 0) <= as_instant(ended) for job in states.values())


async def test_a_workflow_that_fails_ends_its_children_first(world: World) -> None:
    @world.yard.job
    async def work() -> None: ...

    @world.yard.workflow(max_attempts=1)
    async def flow(ctx: WorkflowContext) -> None:
        async def fails() -> None:
            await ctx.sleep(1)
            raise ValueError("broken")

        await ctx.gather(ctx.run(work.options(delay=3600).call()), fails())

    handle = await flow.enqueue()
    await world.drain(with_delayed=False)
    world.clock.advance(2)
    await world.drain(with_delayed=False)
    with pytest.raises(JobFailed, match="broken"):
        await handle.result(timeout=0)
    [child] = await jobs_of(world, "work")
    assert child.state is State.CANCELLED


async def test_children_of_a_workflow_that_was_ended_from_outside_are_cancelled(world: World) -> None:
    @world.yard.job
    async def work(n: int) -> None: ...

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> None:
        await ctx.map(lambda n: work.options(delay=3600).call(n), range(3))

    handle = await flow.enqueue()
    await world.drain(with_delayed=False)
    # Two requests end it without its own code.
    for _ in range(2):
        await world.store.change(Action.CANCEL, [handle.id])
    assert (await handle.info()).state is State.CANCELLED
    await world.deliver()
    assert {job.state for job in await jobs_of(world, "work")} == {State.CANCELLED}


async def test_a_child_is_not_run_twice_when_its_insert_was_not_acknowledged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies after the insert; the child runs and is removed by retention before the parent goes on."""
    await world.store.configure("small", QueueSettings(keep_completed=0, keep_completed_seconds=0))

    @world.yard.job(queue="small")
    async def child() -> int:
        world.note("child")
        return 4

    @world.yard.workflow(backoff=3600)
    async def flow(ctx: WorkflowContext) -> int:
        return await ctx.run(child.call())

    insert = world.store.insert
    fails = [True]

    async def dies(jobs: list[NewJob], transaction: Any = None) -> Any:
        inserted = await insert(jobs, transaction)
        if jobs[0].parent is not None and fails.pop() if fails else False:
            raise RuntimeError("the process died")
        return inserted

    handle = await flow.enqueue()
    monkeypatch.setattr(world.store, "insert", dies)
    await world.drain(with_delayed=False)
    assert world.ledger["child"] == 1
    assert await world.result(handle) == 4
    assert world.ledger["child"] == 1


async def test_children_are_known_from_the_history(world: World) -> None:
    @world.yard.job
    async def work(n: int) -> None: ...

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> None:
        await ctx.run(work.call(0))
        await ctx.map(work.call, range(3))

    handle = await flow.enqueue()
    await world.result(handle)
    known = {job_id for children in await load_children(world.store, handle.id) for job_id in children.ids}
    assert known == {job.id for job in await jobs_of(world, "work")}


async def test_a_result_of_a_child_that_is_too_large_is_refused_with_the_remedy(world: World) -> None:
    @world.yard.job(max_attempts=1)
    async def fetch(size: int) -> str:
        return "x" * size

    @world.yard.workflow
    async def one(ctx: WorkflowContext) -> int:
        return len(await ctx.run(fetch.call(300_000)))

    @world.yard.workflow
    async def many(ctx: WorkflowContext) -> int:
        return len(await ctx.map(fetch.call, [1, 300_000]))

    @world.yard.workflow
    async def collecting(ctx: WorkflowContext) -> list[str]:
        found = await ctx.map(fetch.call, [1, 300_000], on_error="collect")
        return [type(each).__name__ for each in found]

    remedy = r"is 300,002 bytes of JSON; the limit within a workflow is 262,144\. Store large data elsewhere"
    for flow in (one, many):
        with pytest.raises(JobFailed, match=remedy):
            await world.result(await flow.enqueue())
    assert await world.result(await collecting.enqueue()) == ["str", "ChildFailed"]
    assert len(await world.result(await fetch.enqueue(300_000))) == 300_000  # of an ordinary job it is allowed


async def test_a_result_of_a_workflow_that_is_too_large_is_refused_with_the_remedy(world: World) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> str:
        return "x" * 300_000

    with pytest.raises(JobFailed, match=r"result of flow is 300,002 bytes of JSON; the limit is 262,144\. Store large"):
        await world.result(await flow.enqueue())


async def test_a_workflow_that_starts_itself_ends_with_the_limit_and_the_cure(world: World) -> None:
    @world.yard.workflow(max_attempts=1)
    async def flow(ctx: WorkflowContext, level: int = 0) -> None:
        world.note("level")
        await ctx.run(flow.call(level + 1))

    with pytest.raises(JobFailed, match=r"at most 32 levels deep.* Use a loop, or ctx\.continue_as_new"):
        await world.result(await flow.enqueue())
    assert len(await jobs_of(world, "flow")) == 33
