"""What a caller sees of a run of a workflow file: times, states and progress of its steps, on every store."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.workflows.conftest import World
from tests.workflows.files import FaultyWorker, start, step

from jobyard import JobHandle, State
from jobyard.api.schemas.workflows import WorkflowRunView, WorkflowStepView
from jobyard.domain.instant import instant
from jobyard.operations.local import LocalOperations


async def view(world: World, handle: JobHandle[Any]) -> WorkflowRunView:
    return await LocalOperations(world.store).workflow_run(handle.id)


async def steps_of(world: World, handle: JobHandle[Any]) -> dict[str, WorkflowStepView]:
    return {each.id: each for each in (await view(world, handle)).steps}


def require_order(each: WorkflowStepView) -> None:
    assert each.started_at is not None
    assert each.finished_at is not None
    taken = (instant(each.finished_at) - instant(each.started_at)) / 1000
    assert each.elapsed_seconds == taken >= 0


async def test_a_step_takes_as_long_as_its_handler_also_if_it_is_reported_late(world: World) -> None:
    """Reports are sent together, so that a short step may be reported only after its end."""

    @world.yard.job(max_attempts=1)
    async def work() -> None:
        world.clock.advance(2)

    names = list("abcdef")
    chain = [step(name, needs=[before] if before else []) for before, name in zip(["", *names], names, strict=False)]
    items = step("items", for_each=[1, 2], at_most=1, needs=["f"])
    handle = await start(world, [*chain, items])
    await world.drain()
    for name, each in (await steps_of(world, handle)).items():
        require_order(each)
        assert each.elapsed_seconds is not None
        assert abs(each.elapsed_seconds - (4 if name == "items" else 2)) < 1, name


async def test_the_wait_for_a_retry_by_hand_is_not_part_of_a_step(world: World) -> None:
    @world.yard.job(max_attempts=1)
    async def work(fails: bool = False) -> None:
        if fails:
            raise ValueError("closed")

    handle = await start(world, [step("bad", input={"fails": True})], on_failure=[step("alert")])
    await world.drain()
    world.clock.advance(3600)
    await handle.retry()
    await world.drain()
    found = await steps_of(world, handle)
    assert [str(each.status) for each in found.values()] == ["failed", "completed"]
    for each in found.values():
        require_order(each)
        assert (each.elapsed_seconds or 0) < 60


async def test_a_cancelled_run_says_what_was_interrupted_and_what_did_not_begin(world: World) -> None:
    """Also if the run is cancelled before the step was reported as running."""
    started = asyncio.Event()

    @world.yard.job(max_attempts=1)
    async def work() -> None: ...

    @world.yard.job(max_attempts=1)
    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    steps = [step("a"), step("b", "hang", needs=["a"]), step("c", needs=["b"]), step("d", needs=["a"], when="false")]
    handle = await start(world, steps, on_failure=[step("alert")])
    worker = FaultyWorker(world)
    attempt = await worker.claim()
    await asyncio.wait_for(started.wait(), 60)
    await handle.cancel("enough")
    attempt.cancel("enough")
    await worker.settle(attempt)
    await world.drain()
    found = await view(world, handle)
    assert found.state is State.CANCELLED
    assert {each.id: (str(each.status), each.reason) for each in found.steps} == {
        "a": ("completed", ""),
        "b": ("interrupted", "The run was cancelled while the step ran."),
        "c": ("skipped", "The run was cancelled before the step began."),
        "d": ("skipped", "The condition is false: false"),
        "alert": ("skipped", "The run was cancelled before the step began."),
    }
    assert found.progress is not None
    assert (found.progress.percent, found.progress.message) == (25, "1 of 4 steps")
    job = await handle.info()
    assert job.progress is not None
    assert job.progress.message == "1 of 4 steps"
    require_order(found.steps[1])


async def test_a_run_that_is_cancelled_while_it_waits_has_no_progress(world: World) -> None:
    handle = await start(world, [step("a"), step("b", needs=["a"])])
    await handle.cancel("enough")
    found = await view(world, handle)
    assert {str(each.status) for each in found.steps} == {"skipped"}
    assert found.progress is None or found.progress.percent == 0


async def test_the_progress_of_a_failed_run_is_what_completed(world: World) -> None:
    @world.yard.job(max_attempts=1)
    async def work(fails: bool = False) -> None:
        if fails:
            raise ValueError("closed")

    steps = [
        step("a"),
        step("bad", needs=["a"], input={"fails": True}),
        step("c", needs=["bad"]),
        step("d", needs=["c"]),
    ]
    handle = await start(world, steps, on_failure=[step("alert")])
    await world.drain()
    found = await view(world, handle)
    assert {each.id: (str(each.status), each.reason) for each in found.steps} == {
        "a": ("completed", ""),
        "bad": ("failed", "ValueError: closed"),
        "c": ("skipped", "Step bad failed."),
        "d": ("skipped", "Step bad failed."),
        "alert": ("completed", ""),
    }
    job = await handle.info()
    for progress in (found.progress, job.progress):
        assert progress is not None
        assert (progress.percent, progress.message) == (25, "1 of 4 steps")


async def test_a_run_that_times_out_interrupts_its_steps(world: World) -> None:
    @world.yard.job(max_attempts=1)
    async def hang() -> None:
        await asyncio.Event().wait()

    handle = await start(world, [step("a", "hang"), step("b", "hang", needs=["a"])], timeout_seconds=0.05)
    await world.drain()
    found = await view(world, handle)
    assert found.state is State.TIMEOUT
    assert [(str(each.status), each.reason) for each in found.steps] == [
        ("interrupted", "The run timed out while the step ran."),
        ("skipped", "The run timed out before the step began."),
    ]


async def test_a_run_that_was_retried_counts_from_its_present_attempt(world: World) -> None:
    @world.yard.job(max_attempts=1)
    async def work() -> None:
        world.clock.advance(2)
        if world.clock.now() < created + 60_000:
            raise ValueError("closed")

    created = world.clock.now()
    handle = await start(world, [step("a", "work")])
    await world.drain()
    world.clock.advance(3600)
    await handle.retry()
    waiting = await view(world, handle)
    assert (waiting.started_at, waiting.elapsed_seconds) == (None, None)
    await world.drain()
    found, job = await view(world, handle), await handle.info()
    assert found.first_started_at is not None
    assert found.started_at is not None
    assert job.started_at is not None
    assert instant(found.started_at) == int(job.started_at.timestamp() * 1000)
    assert instant(found.started_at) - instant(found.first_started_at) >= 3_600_000
    assert found.elapsed_seconds is not None
    assert found.elapsed_seconds < 60
