"""Workers of workflow files that die: a finished step is not run again, an interrupted one is, on every store."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from tests.workflows.conftest import World
from tests.workflows.files import FaultyWorker, start, step

from jobyard import BlockingContext, State

When = Literal["before", "after"]
STEPS = [
    step("a", input={"name": "a"}),
    step("b", input={"name": "b"}, needs=["a"]),
    step("items", input={"name": "item ${item}"}, needs=["b"], for_each=[0, 1, 2], at_most=1),
    step("retried", "flaky", needs=["items"], retry={"max_attempts": 3, "backoff": 0}),
    step("c", input={"name": "c"}, needs=["retried"]),
]
# What each checkpoint of an undisturbed run stores: None is no effect of a handler.
WRITES = [None, "a", "b", "item 0", "item 1", "item 2", None, "retried", "retried", "c"]
FAILING = [step("a", input={"name": "a"}), step("bad", "broken", needs=["a"]), step("c", needs=["bad"])]
ON_FAILURE = [step("alert", input={"name": "alert"}), step("undo", input={"name": "undo"}, needs=["alert"])]
FAILING_WRITES = [None, "a", "bad", "alert", "undo"]


def declare(world: World) -> None:
    @world.yard.job(max_attempts=1)
    async def work(name: str) -> str:
        world.note(name)
        return name

    @world.yard.job
    def flaky(ctx: BlockingContext) -> None:
        world.note("retried")
        if ctx.attempt == 1:
            raise ValueError("once")

    @world.yard.job(max_attempts=1)
    async def broken() -> None:
        world.note("bad")
        raise ValueError("broken")


async def check(world: World, patch: pytest.MonkeyPatch, at: int, when: When, writes: list[Any], **flow: Any) -> State:
    """Run with a death at a checkpoint: only what was not stored then has run twice."""
    declare(world)
    handle = await start(world, flow.pop("steps"), **flow)
    worker = FaultyWorker(world, patch, dies_at=at, when=when)
    assert await worker.run() == (at > 0)
    expected = {name: writes.count(name) for name in writes if name is not None}
    if when == "before" and at > 0 and writes[at - 1] is not None:
        expected[writes[at - 1]] += 1
    assert world.ledger == expected
    assert worker.checkpoints == len(writes) + (at > 0 and when == "before")
    return (await handle.info()).state


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(len(WRITES) + 1))
async def test_a_death_at_each_checkpoint(world: World, monkeypatch: pytest.MonkeyPatch, at: int, when: When) -> None:
    output = "${steps.items.output}"
    assert await check(world, monkeypatch, at, when, WRITES, steps=STEPS, output=output) is State.COMPLETED


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(len(FAILING_WRITES) + 1))
async def test_a_death_while_a_run_fails(world: World, monkeypatch: pytest.MonkeyPatch, at: int, when: When) -> None:
    state = await check(world, monkeypatch, at, when, FAILING_WRITES, steps=FAILING, on_failure=ON_FAILURE)
    assert state is State.FAILED
