"""A workflow keeps its slot for child jobs that end at once, and frees it for others."""

from __future__ import annotations

import asyncio

import pytest

from jobyard import Jobyard, WorkflowContext
from jobyard.domain.history import EndedJob
from jobyard.domain.job import State
from jobyard.worker import child_ends
from jobyard.worker.child_ends import LocalChildEnds


def ended(job_id: str) -> EndedJob:
    return EndedJob(job_id=job_id, state=State.COMPLETED)


async def test_an_end_that_comes_before_the_wait_counts() -> None:
    ends = LocalChildEnds(lambda: True)
    assert ends.expect("a", "scan")
    ends.delivered([ended("b"), ended("a"), ended("a")])
    assert await ends.wait("a", "scan") == ended("a")


async def test_without_room_for_the_child_it_is_not_waited_for() -> None:
    assert not LocalChildEnds(lambda: False).expect("a", "scan")


async def test_kinds_that_take_long_are_soon_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_ends, "WAIT_SECONDS", 0.0)
    ends = LocalChildEnds(lambda: True)
    waits = 0
    for number in range(1000):
        if ends.expect(str(number), "scan"):
            waits += 1
            assert await ends.wait(str(number), "scan") is None
    assert waits < 10
    assert ends.expect("other", "pack")


async def test_waits_that_miss_together_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_ends, "WAIT_SECONDS", 0.01)
    ends = LocalChildEnds(lambda: True)
    names = [str(number) for number in range(50)]
    assert all(ends.expect(name, "scan") for name in names)
    await asyncio.gather(*(ends.wait(name, "scan") for name in names))
    assert [ends.expect(f"next {number}", "scan") for number in range(5)] == [False] * 4 + [True]


async def test_a_workflow_goes_on_after_short_children_without_a_replay() -> None:
    yard = Jobyard("memory://")
    begun = 0

    @yard.job
    async def double(number: int) -> int:
        return 2 * number

    @yard.workflow
    async def chain(ctx: WorkflowContext) -> int:
        nonlocal begun
        begun += 1
        number = 1
        for _ in range(10):
            number = await ctx.run(double.call(number))
        return number

    async with yard, yard.worker(concurrency=2):
        assert await (await chain.enqueue()).result(timeout=60) == 1024
    assert begun == 1


async def test_a_parent_in_the_way_of_its_child_frees_its_slot() -> None:
    yard = Jobyard("memory://")
    yard.queue("default", max_running=1)

    @yard.job
    async def child() -> str:
        return "done"

    @yard.workflow
    async def parent(ctx: WorkflowContext) -> list[str]:
        return [await ctx.run(child.call()) for _ in range(3)]

    async with yard, yard.worker(concurrency=2):
        assert await (await parent.enqueue()).result(timeout=60) == ["done"] * 3
