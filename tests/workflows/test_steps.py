"""Steps: stored once, retried, replayed, and noticed when the function has changed."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.workflows.conftest import World

from jobyard import Context, Fixed, State, Unique, UniqueScope, WorkflowContext
from jobyard.errors import BadOption, JobFailed, NotPossible, StepFailed
from jobyard.ports.admin_store import Action


class Crash(BaseException):
    """Stands for the death of the process: nothing after it runs."""


async def test_a_finished_step_is_not_run_again(world: World) -> None:
    async def step(name: str) -> str:
        world.note(name)
        return name.upper()

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> list[str]:
        first = await ctx.step(step, "a")
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return [first, await ctx.step(step, "b")]

    assert await world.result(await flow.enqueue()) == ["A", "B"]
    assert world.ledger == {"a": 1, "b": 1}


async def test_a_step_that_was_interrupted_runs_again(world: World) -> None:
    async def step() -> int:
        world.note("step")
        if world.ledger["step"] == 1:
            raise Crash
        return 7

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> int:
        return await ctx.step(step)

    assert await world.result(await flow.enqueue()) == 7
    assert world.ledger["step"] == 2


async def test_a_result_is_the_same_when_it_is_replayed(world: World) -> None:
    """A tuple becomes a list in JSON, so it is one in the first run, too; an annotation restores it."""

    def plain() -> Any:
        return (1, 2)

    async def typed() -> tuple[int, int]:
        return (1, 2)

    seen: list[Any] = []

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> None:
        seen.append((await ctx.step(plain), await ctx.step(typed)))
        if ctx.attempt == 1:
            raise ValueError("again")

    await world.result(await flow.enqueue())
    assert seen == [([1, 2], (1, 2))] * 2


async def test_a_failed_step_is_retried_and_then_fails_for_good(world: World) -> None:
    async def step(allowed: int) -> int:
        world.note(f"step {allowed}")
        if world.ledger[f"step {allowed}"] < allowed:
            raise KeyError("missing")
        return allowed

    caught: list[StepFailed] = []

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> int:
        good = await ctx.step(step, 3, retry=2, backoff=Fixed(60))
        try:
            await ctx.step(step, 9, retry=1, backoff=0.001)
        except StepFailed as error:
            caught.append(error)
        if ctx.attempt == 1:
            raise ValueError("again")
        return good

    began = world.clock.now()
    assert await world.result(await flow.enqueue()) == 3
    assert world.ledger == {"step 3": 3, "step 9": 2}
    assert world.clock.now() - began >= 120_000
    assert len(caught) == 2
    assert str(caught[0]) == str(caught[1]) == "Step step failed: KeyError: 'missing'"
    assert caught[0].error_type == "KeyError"


async def test_a_step_that_failed_for_good_fails_the_workflow_at_once(world: World) -> None:
    async def step() -> None:
        world.note("step")
        raise ValueError("broken")

    @world.yard.workflow(max_attempts=5)
    async def flow(ctx: WorkflowContext) -> None:
        await ctx.step(step, retry=0)

    handle = await flow.enqueue()
    with pytest.raises(JobFailed, match="Step step failed: ValueError: broken"):
        await world.result(handle)
    job = await handle.info()
    assert (job.attempt, world.ledger["step"]) == (1, 1)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
async def test_an_exit_in_a_workflow_ends_the_attempt_only(world: World, error: BaseException) -> None:
    def exits() -> None:
        raise error

    async def branch() -> None:
        raise error

    @world.yard.workflow(max_attempts=1)
    async def flow(ctx: WorkflowContext) -> str:
        try:
            await ctx.step(exits, retry=0)
        except StepFailed as failed:
            first = failed.error_type
        try:
            await ctx.gather(branch())
        except RuntimeError:
            return first
        raise error

    assert await world.result(await flow.enqueue()) == "RuntimeError"


async def test_a_step_times_out(world: World) -> None:
    async def step() -> None:
        await asyncio.sleep(60)

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> str:
        try:
            await ctx.step(step, retry=0, timeout=0.01)
        except StepFailed as error:
            return error.error_type + ": " + error.message
        return ""

    assert await world.result(await flow.enqueue()) == "TimeoutError: ran longer than 0.01 s"


async def test_a_result_that_is_too_large_names_step_and_size(world: World) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> str:
        return await ctx.step(lambda: "x" * 300_000, name="fetch")

    with pytest.raises(JobFailed, match=r"result of step fetch is 300,002 bytes"):
        await world.result(await flow.enqueue())


async def test_a_changed_name_is_noticed_and_a_retry_works_after_the_fix(world: World) -> None:
    code = {"name": "charge"}

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> int:
        value = await ctx.step(lambda: 1, name=code["name"])
        if ctx.attempt == 1 and not code.get("is fixed"):
            code["name"] = "bill"
            raise ValueError("redeployed")
        return value

    handle = await flow.enqueue()
    with pytest.raises(JobFailed) as caught:
        await world.result(handle)
    assert "Recorded: step charge#1" in str(caught.value)
    assert "This run: step bill#1" in str(caught.value)
    assert (await handle.info()).attempt == 2
    code |= {"name": "charge", "is fixed": "yes"}
    await handle.retry()
    assert await world.result(handle) == 1


async def test_another_kind_and_another_order_are_noticed(world: World) -> None:
    async def other_kind(ctx: WorkflowContext, run: int) -> None:
        await (ctx.step(lambda: 1, name="sleep") if run == 1 else ctx.sleep(0))

    async def other_order(ctx: WorkflowContext, run: int) -> None:
        for name in "ab" if run == 1 else "ba":
            await ctx.step(lambda: 1, name=name)

    for change in (other_kind, other_order):

        @world.yard.workflow(name=change.__name__)
        async def flow(ctx: WorkflowContext, change: Any = change) -> None:
            await change(ctx, ctx.attempt)
            if ctx.attempt == 1:
                raise ValueError("redeployed")

        with pytest.raises(JobFailed, match="Cannot continue workflow"):
            await world.result(await flow.enqueue())


async def test_code_between_steps_may_change_and_steps_may_be_added_at_the_end(world: World) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> list[int]:
        values = [await ctx.step(lambda: 1, name="a"), await ctx.step(lambda: 2, name="b")]
        if ctx.attempt == 1:
            raise ValueError("redeployed")
        return [*(value * 10 for value in values), await ctx.step(lambda: 3, name="added")]

    assert await world.result(await flow.enqueue()) == [10, 20, 3]


async def test_a_step_added_before_recorded_ones_does_not_run(world: World) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> None:
        if ctx.attempt > 1:
            await ctx.step(world.note, "added", name="added")
        await ctx.step(world.note, "a")
        if ctx.attempt == 1:
            raise ValueError("redeployed")

    with pytest.raises(JobFailed, match="step added#1 is new, and comes before note#1"):
        await world.result(await flow.enqueue())
    assert world.ledger == {"a": 1}


async def test_a_version_is_1_for_runs_that_began_before_the_change(world: World) -> None:
    deployed = {"version": 1}

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> list[int]:
        versions = []
        if deployed["version"] > 1:
            versions.append(await ctx.version("ask twice", 2))
        await ctx.step(lambda: 1, name="a")
        if ctx.attempt == 1 and deployed["version"] == 1:
            deployed["version"] = 2
            raise ValueError("redeployed")
        if deployed["version"] > 1:
            versions.append(await ctx.version("later", 3))
        return versions

    assert await world.result(await flow.enqueue()) == [1, 3]
    assert await world.result(await flow.enqueue()) == [2, 3]


async def test_branches_replay_equally_whatever_their_timing(world: World) -> None:
    async def step(name: str) -> str:
        world.note(name)
        await asyncio.sleep(random.random() * 0.002)
        return name

    async def branch(ctx: WorkflowContext, name: str) -> list[str]:
        return [await ctx.step(step, f"{name}{n}") for n in range(3)]

    @world.yard.workflow(max_attempts=20, backoff=0)
    async def flow(ctx: WorkflowContext) -> list[list[str]]:
        flat = list(await asyncio.gather(ctx.step(step, "x"), ctx.step(step, "y")))
        nested = await ctx.gather(*(branch(ctx, name) for name in "abcd"))
        if ctx.attempt < 5:
            raise ValueError("again")
        return [flat, *nested]

    expected = [["x", "y"], *([f"{name}{n}" for n in range(3)] for name in "abcd")]
    assert await world.result(await flow.enqueue()) == expected
    assert set(world.ledger.values()) == {1}


async def test_a_thousand_branches_with_a_limit(world: World) -> None:
    running, most = 0, 0

    async def step(n: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return n

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> int:
        return sum(await ctx.gather((ctx.step(step, n) for n in range(300)), at_most=7))

    assert await world.result(await flow.enqueue()) == sum(range(300))
    assert most == 7


async def test_a_failure_in_one_branch_stops_the_others(world: World) -> None:
    async def slow() -> None:
        await asyncio.sleep(30)

    async def broken() -> None:
        raise ValueError("no")

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> str:
        try:
            await ctx.gather(ctx.step(slow), ctx.step(broken, retry=0))
        except StepFailed as error:
            return error.step
        return ""

    assert await world.result(await flow.enqueue()) == "broken"


async def test_an_operation_in_a_task_of_its_own_is_refused(world: World) -> None:
    @world.yard.workflow(max_attempts=1)
    async def flow(ctx: WorkflowContext) -> None:
        async def background() -> None:
            await ctx.step(lambda: 1, name="a")

        async with asyncio.TaskGroup() as group:
            group.create_task(background())

    handle = await flow.enqueue()
    with pytest.raises(JobFailed):
        await world.result(handle)
    assert "ctx.gather" in str((await handle.info()).errors[-1].traceback)


async def test_time_chance_and_ids_are_the_same_in_every_run(world: World) -> None:
    seen: list[Any] = []

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> None:
        rolls = [ctx.random().random(), ctx.random().random()]
        seen.append((await ctx.now(), rolls, ctx.uuid(), ctx.uuid()))
        if ctx.attempt < 3:
            raise ValueError("again")

    await world.result(await flow.enqueue())
    assert seen[0] == seen[1] == seen[2]
    (_, rolls, one, other) = seen[0]
    assert one != other
    assert rolls[0] != rolls[1]


async def test_a_history_that_grows_without_end_is_stopped_with_the_cure(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobyard.executors.workflow.journal.MAX_ENTRIES", 20)

    @world.yard.workflow(max_attempts=1)
    async def flow(ctx: WorkflowContext) -> None:
        while True:
            await ctx.step(lambda: 1, name="poll")

    with pytest.raises(JobFailed, match=r"more than 20 operations.*ctx\.map.*continue_as_new"):
        await world.result(await flow.enqueue())


async def test_continue_as_new_starts_with_an_empty_history(world: World) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext, number: int, total: int = 0) -> int:
        total += await ctx.step(lambda: number, name="add")
        if number < 5:
            ctx.continue_as_new(number + 1, total)
        return total

    handle = await flow.enqueue(1)
    assert await world.result(handle) == 15
    assert len(await world.store.history(handle.id)) == 2  # the epoch and one step


async def test_signals_that_were_not_taken_survive_continue_as_new(world: World) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext, seen: list[int]) -> list[int]:
        seen = [*seen, await ctx.wait_for("next")]
        if len(seen) < 3:
            ctx.continue_as_new(seen)
        return seen

    handle = await flow.enqueue([])
    for number in range(3):
        await handle.signal("next", number)
    assert await world.result(handle) == [0, 1, 2]


async def test_a_workflow_has_its_own_kind_of_function(world: World) -> None:
    def not_async(ctx: WorkflowContext) -> None: ...

    async def wrong_context(ctx: Context) -> None: ...

    async def as_job(ctx: WorkflowContext) -> None: ...

    for declare in (
        lambda: world.yard.workflow(not_async),  # type: ignore[arg-type]
        lambda: world.yard.workflow(wrong_context),  # type: ignore[arg-type]
        lambda: world.yard.job(as_job),
    ):
        with pytest.raises(BadOption):
            declare()


async def test_only_the_work_counts_towards_the_timeout(world: World) -> None:
    @world.yard.workflow(timeout=5, max_attempts=1)
    async def flow(ctx: WorkflowContext) -> str:
        await ctx.sleep(days=3)
        return "rested"

    assert await world.result(await flow.enqueue()) == "rested"

    @world.yard.workflow(timeout=0.05, max_attempts=1)
    async def busy(ctx: WorkflowContext) -> None:
        await asyncio.sleep(30)

    handle = await busy.enqueue()
    await world.drain()
    assert (await handle.info()).state is State.TIMEOUT


async def test_the_same_unique_key_answers_the_running_workflow(world: World) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> int:
        await ctx.wait_for("go")
        return 1

    first = await flow.options(unique="order 1").enqueue()
    await world.drain()
    again = await flow.options(unique="order 1").enqueue()
    assert (again.id, again.created) == (first.id, False)
    await first.signal("go")
    assert await world.result(again) == 1


async def test_the_same_id_answers_the_ended_workflow(world: World) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> int:
        world.note("run")
        return 5

    once = flow.options(unique=Unique("order 1", UniqueScope.FOREVER))
    first = await once.enqueue()
    assert await world.result(first) == 5
    again = await once.enqueue()
    assert (again.id, again.created) == (first.id, False)
    assert await world.result(again) == 5
    assert world.ledger == {"run": 1}


async def test_a_begun_workflow_cannot_be_deleted(world: World) -> None:
    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> None:
        await ctx.wait_for("go")

    handle = await flow.enqueue()
    await world.drain()
    with pytest.raises(NotPossible):
        await handle.delete()
    assert (await world.store.change(Action.DELETE, [handle.id])).unchanged == (handle.id,)


async def test_the_traceback_of_a_workflow_has_only_frames_of_the_application(world: World) -> None:
    def charge() -> None:
        raise ValueError("declined")

    @world.yard.workflow(max_attempts=1)
    async def flow(ctx: WorkflowContext, catches: bool) -> None:
        try:
            await ctx.step(charge, retry=0)
        except StepFailed as error:
            if catches:
                raise KeyError("card") from error
            raise

    for catches in (False, True):
        handle = await flow.enqueue(catches)
        with pytest.raises(JobFailed):
            await world.result(handle)
        trace = (await handle.info()).errors[-1].traceback
        assert trace is not None
        assert "in flow" in trace
        assert "declined" in trace
        assert "/jobyard/executors/" not in trace
