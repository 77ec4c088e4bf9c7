"""Runs of workflow files: order, inputs, retries, items, failures, and what a caller sees of them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.workflows.conftest import World
from tests.workflows.files import FaultyWorker, run, start, step

from jobyard import BlockingContext, Context, Failed, Snooze, State, WorkflowContext
from jobyard.errors import BadOption, JobCancelled, JobFailed


def declare(world: World) -> None:
    @world.yard.job(max_attempts=1)
    async def work(value: Any = None) -> Any:
        world.note(str(value))
        return value

    @world.yard.job(max_attempts=3, backoff=0.001)
    def flaky(name: str, failures: int) -> int:
        world.note(name)
        if world.ledger[name] <= failures:
            raise KeyError(name)
        return world.ledger[name]


async def test_steps_run_by_their_needs_with_inputs_from_params_and_outputs(world: World) -> None:
    declare(world)
    steps = [
        step("last", needs=["left", "right"], input={"value": ["${steps.left.output}", "${steps.right.output}"]}),
        step("right", needs=["first"], input={"value": "${steps.first.output.b}"}),
        step("left", needs=["first"], input={"value": "${steps.first.output.a}"}),
        step("first", input={"value": "${params.pair}"}),
    ]
    output = {"all": "${steps.last.output}", "platform": "${run.platform ?? 'none'}"}
    params = {"pair": {"type": "object"}}
    found = await run(world, steps, {"pair": {"a": 1, "b": [2]}}, params=params, output=output)
    assert found == {"all": [1, [2]], "platform": "none"}
    assert (world.order[0], world.order[-1]) == ("{'a': 1, 'b': [2]}", "[1, [2]]")


async def test_steps_without_an_order_run_side_by_side(world: World) -> None:
    together = asyncio.Barrier(3)

    @world.yard.job
    async def meet() -> None:
        async with asyncio.timeout(60):
            await together.wait()

    assert await run(world, [step(name, "meet") for name in "abc"]) is None


async def test_a_condition_and_skipped_needs(world: World) -> None:
    declare(world)
    steps = [
        step("a", when="params.is_on", input={"value": "a"}),
        step("b", needs=["a"], input={"value": "b"}),
        step("c", needs=["a"], when="steps.a.status == 'skipped'", input={"value": "c"}),
    ]
    params = {"is_on": {"type": "boolean"}}
    handle = await start(world, steps, {"is_on": False}, params=params, output="${steps.c.output}")
    assert await world.result(handle) == "c"
    assert world.order == ["c"]
    progress = (await handle.info()).progress
    assert progress is not None
    assert (progress.percent, progress.message) == (100, "3 of 3 steps")
    assert progress.data["steps"] == {"a": "skipped", "b": "skipped", "c": "completed"}


async def test_a_step_is_retried_as_the_file_says_else_as_its_handler_declares(world: World) -> None:
    declare(world)
    steps = [
        step("declared", "flaky", input={"name": "declared", "failures": 2}),
        step("own", "flaky", input={"name": "own", "failures": 4}, retry={"max_attempts": 5, "backoff": 0.001}),
    ]
    assert await run(world, steps, output=["${steps.declared.output}", "${steps.own.output}"]) == [3, 5]


async def test_a_backoff_keeps_the_slot(world: World) -> None:
    """A job of a platform holds it until it ends, so another one must not come in between."""
    declare(world)
    steps = [step("a", "flaky", input={"name": "a", "failures": 1}, retry={"max_attempts": 2, "backoff": 0.05})]
    world.yard.queue("default", max_running=1)
    await start(world, steps)
    await start(world, [step("b", input={"value": "b"})])
    await world.drain()
    assert world.order == ["a", "a", "b"]


async def test_a_step_times_out_and_its_thread_is_stopped(world: World) -> None:
    @world.yard.job(max_attempts=1)
    def slow() -> None:
        for _ in range(1000):
            time.sleep(0.01)
        world.note("ended")

    with pytest.raises(JobFailed, match=r"^.*Step a failed: TimeoutError: ran longer than 0\.05 s"):
        await run(world, [step("a", "slow", timeout_seconds=0.05)])
    assert not world.ledger


async def test_items_run_side_by_side_up_to_a_limit_and_keep_their_order(world: World) -> None:
    running, most = 0, 0

    @world.yard.job
    async def double(n: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 * (n % 3))
        running -= 1
        return 2 * n

    items = step("all", "double", for_each=list(range(20)), at_most=4, input={"n": "${item}"})
    assert await run(world, [items], output="${steps.all.output}") == list(range(0, 40, 2))
    assert most == 4


async def test_the_first_item_that_fails_fails_the_step(world: World) -> None:
    @world.yard.job(max_attempts=1)
    async def check(n: int) -> int:
        world.note(f"item {n}")
        if n == 2:
            raise ValueError("two")
        return n

    steps = [step("all", "check", for_each=[0, 1, 2, 3, 4], at_most=1, input={"n": "${item}"})]
    with pytest.raises(JobFailed, match="Step all failed: Item 2: ValueError: two"):
        await run(world, steps)
    assert world.order == ["item 0", "item 1", "item 2"]


async def test_items_that_fail_are_part_of_the_output(world: World) -> None:
    @world.yard.job(max_attempts=1)
    async def check(n: int) -> int:
        if n == 1:
            raise ValueError("one")
        return n

    steps = [step("all", "check", for_each="${params.list}", on_item_failure="continue", input={"n": "${item}"})]
    params = {"list": {"type": "array"}}
    found = await run(world, steps, {"list": [0, 1, "x"]}, params=params, output="${steps.all.output}")
    assert found[:2] == [0, {"error": "ValueError: one"}]
    assert found[2]["error"].startswith("BadInput: The payload does not fit check(n)")


async def test_more_items_than_a_history_holds_are_refused_before_any_runs(world: World) -> None:
    declare(world)
    steps = [step("all", for_each="${params.list}")]
    params = {"list": {"type": "array"}}
    with pytest.raises(JobFailed, match=r"for_each has 9,950 items, and a run records at most 10,000\. Split the list"):
        await run(world, steps, {"list": [0] * 9_950}, params=params)
    assert not world.ledger


async def test_after_a_failure_no_step_starts_and_on_failure_steps_run(world: World) -> None:
    declare(world)
    steps = [
        step("done", input={"value": "done"}),
        step("bad", "flaky", needs=["done"], input={"name": "bad", "failures": 9}, retry={"max_attempts": 1}),
        step("never", needs=["bad"], input={"value": "never"}),
    ]
    on_failure = [
        step("alert", input={"value": "${failure.step}: ${failure.error}"}),
        step("undo", when="steps.done.status == 'completed'", input={"value": "undo"}),
        step("other", when="steps.never.status == 'completed'", input={"value": "other"}),
    ]
    handle = await start(world, steps, on_failure=on_failure)
    with pytest.raises(JobFailed, match="Step bad failed: KeyError: 'bad'"):
        await world.result(handle)
    assert world.order[:2] == ["done", "bad"]
    assert set(world.order[2:]) == {"bad: KeyError: 'bad'", "undo"}
    job = await handle.info()
    assert (job.state, job.attempt, [error.type for error in job.errors]) == (State.FAILED, 1, ["StepFailed"])
    assert {each.name: each.status for each in job.steps} == {
        "done": "passed", "bad": "failed", "alert": "passed", "undo": "passed"
    }  # fmt: skip


async def test_a_retry_by_hand_repeats_only_what_failed(world: World) -> None:
    declare(world)
    steps = [
        step("done", input={"value": "done"}),
        step(
            "all", "flaky", needs=["done"], for_each=["x", "y"], input={"name": "${item}", "failures": "${index}"},
            retry={"max_attempts": 1},
        ),
    ]  # fmt: skip
    alert = [step("alert", input={"value": "alert"})]
    handle = await start(world, steps, on_failure=alert, output="${steps.all.output}")
    await world.drain()
    assert (await handle.info()).state is State.FAILED
    await handle.retry()
    assert await world.result(handle) == [1, 2]
    assert world.ledger == {"done": 1, "x": 1, "y": 2, "alert": 1}


async def test_on_failure_steps_run_again_when_a_retry_fails(world: World) -> None:
    declare(world)
    steps = [step("bad", "flaky", input={"name": "bad", "failures": 9}, retry={"max_attempts": 2, "backoff": 0})]
    handle = await start(world, steps, on_failure=[step("alert", input={"value": "alert"})])
    await world.drain()
    for _ in range(2):
        await handle.retry()
        await world.drain()
    assert world.ledger == {"bad": 6, "alert": 3}


async def test_an_output_that_cannot_be_evaluated_fails_the_run(world: World) -> None:
    declare(world)
    handle = await start(world, [step("a")], output="${steps.a.output.missing}", on_failure=[step("alert")])
    with pytest.raises(JobFailed, match=r"Cannot evaluate the output: steps\.a\.output\.missing is missing"):
        await world.result(handle)
    assert world.ledger == {"None": 2}


async def test_a_missing_input_fails_the_step_without_a_call(world: World) -> None:
    declare(world)
    with pytest.raises(JobFailed, match=r"Step b failed: steps\.a\.output\.url is missing: steps\.a\.output is null"):
        await run(world, [step("a"), step("b", needs=["a"], input={"value": "${steps.a.output.url}"})])
    assert world.ledger == {"None": 1}


async def test_a_handler_may_report_and_return_failures(world: World) -> None:
    @world.yard.job(max_attempts=5, backoff=0)
    def reporting(ctx: BlockingContext) -> Any:
        ctx.progress(40, "half")
        ctx.log("hello")
        with ctx.step("inner"):
            world.note(f"attempt {ctx.attempt} of {ctx.max_attempts} of {ctx.kind}")
        return Failed(message="not today", type="Closed", retry=ctx.attempt < 2)

    @world.yard.job
    async def snoozing(ctx: Context) -> Any:
        return Snooze(5)

    handle = await start(world, [step("a", "reporting")])
    with pytest.raises(JobFailed, match="Step a failed: Closed: not today"):
        await world.result(handle)
    assert world.order == ["attempt 1 of 5 of reporting", "attempt 2 of 5 of reporting"]
    job = await handle.info()
    assert [line.message for line in job.log] == ["a: hello"] * 2
    assert {each.name: each.status for each in job.steps} == {"a": "failed", "a/inner": "passed"}
    with pytest.raises(JobFailed, match="snoozing returned a Snooze, which a step of a workflow cannot"):
        await run(world, [step("a", "snoozing")])


async def test_workflow_functions_and_transactional_handlers_cannot_be_steps(world: World) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> None: ...

    @world.yard.job(transactional=True)
    async def own(ctx: Context) -> None: ...

    for kind in ("flow", "own"):
        with pytest.raises(JobFailed, match=f"{kind} cannot be a step: it (is a workflow|completes its jobs)"):
            await run(world, [step("a", kind)])


async def test_many_steps_are_reported_up_to_a_limit(world: World) -> None:
    declare(world)
    steps = [step(f"s{number}", input={"value": number}) for number in range(300)]
    handle = await start(world, [*steps, step("bad", "flaky", needs=["s299"], input={"name": "bad", "failures": 9})])
    await world.drain()
    job = await handle.info()
    assert len(job.steps) == 201
    assert [each.status for each in job.steps if each.name == "bad"] == ["failed"]
    assert job.progress is not None
    assert (job.progress.percent, job.progress.data["finished"]) == (99.7, 300)
    assert sum(world.ledger.values()) == 303


async def test_an_unknown_kind_returns_the_job_to_the_queue(world: World) -> None:
    declare(world)
    handle = await start(world, [step("a"), step("b", "later", needs=["a"])])
    await world.drain(with_delayed=False)
    job = await handle.info()
    assert (job.state, job.attempt, world.order) == (State.PENDING, 0, [])
    assert "returned to the queue by a worker: No handler is declared for kind later" in job.log[0].message

    @world.yard.job
    async def later() -> str:
        return "now"

    await world.result(handle)
    assert world.order == ["None"]


async def test_a_cancelled_run_starts_no_further_step(world: World) -> None:
    started = asyncio.Event()

    @world.yard.job
    async def hang(name: str) -> None:
        world.note(name)
        started.set()
        await asyncio.Event().wait()

    steps = [step("a", "hang", input={"name": "a"}), step("b", "hang", needs=["a"], input={"name": "b"})]
    handle = await start(world, steps, on_failure=[step("alert", "hang", input={"name": "alert"})])
    worker = FaultyWorker(world)
    attempt = await worker.claim()
    await asyncio.wait_for(started.wait(), 60)
    await handle.cancel("enough")
    attempt.cancel("enough")
    await worker.settle(attempt)
    with pytest.raises(JobCancelled, match="enough"):
        await world.result(handle)
    assert world.order == ["a"]


async def test_bad_params_are_refused_by_name_and_without_values(world: World) -> None:
    params = {"limit": {"type": "integer"}, "secret": {"type": "string", "enum": ["a", "b"]}}
    with pytest.raises(BadOption) as caught:
        await start(world, [step("a")], {"limit": "hunter2", "secret": "hunter3"}, params=params)
    problems = [caught.value, *caught.value.others]
    assert [error.option for error in problems] == ["params/limit", "params/secret"]
    assert "hunter" not in "".join(map(str, problems))


async def test_an_output_that_is_too_large_names_the_workflow(world: World) -> None:
    @world.yard.job
    async def fetch(n: int) -> str:
        return str(n) * 100_000

    items = step("all", "fetch", for_each=[1, 2, 3], input={"n": "${item}"})
    with pytest.raises(JobFailed, match=r"output of workflow flow is 300,010 bytes of JSON; the limit is 262,144\."):
        await run(world, [items], output="${steps.all.output}")
