"""Chains, groups, chords and batches."""

from __future__ import annotations

import pytest
from tests.workflows.conftest import World

from jobyard import BatchCounts, State, WorkflowContext
from jobyard.errors import BadInput, JobFailed, NotPossible
from jobyard.ports.admin_store import Filter


async def test_a_chain_passes_results_on(world: World) -> None:
    @world.yard.job
    async def add(a: int, b: int) -> int:
        return a + b

    @world.yard.job
    async def double(n: int) -> int:
        return 2 * n

    @world.yard.job
    async def describe(n: int) -> str:
        return f"it is {n}"

    handle = await world.yard.enqueue(world.yard.chain(add.call(1, 2), double, double.options(priority=5), describe))
    assert await world.result(handle) == "it is 12"


async def test_a_failed_link_ends_the_chain(world: World) -> None:
    @world.yard.job(max_attempts=1)
    async def broken() -> None:
        raise ValueError("no")

    @world.yard.job
    async def after(n: object) -> None:
        world.note("after")

    handle = await world.yard.enqueue(world.yard.chain(broken.call(), after))
    with pytest.raises(JobFailed, match="ended FAILED: no"):
        await world.result(handle)
    assert not world.ledger


async def test_groups_and_chords_nest(world: World) -> None:
    @world.yard.job
    async def square(n: int) -> int:
        return n * n

    @world.yard.job
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    yard = world.yard
    assert await world.result(await yard.enqueue(yard.group(*map(square.call, range(4))))) == [0, 1, 4, 9]
    chord = yard.chord(map(square.call, range(4)), total)
    assert await world.result(await yard.enqueue(chord)) == 14
    nested = yard.chain(yard.chord([chord, square.call(3)], total), square)
    assert await world.result(await yard.enqueue(nested)) == 23 * 23


async def test_a_canvas_is_a_child_like_any_job(world: World) -> None:
    @world.yard.job
    async def one() -> int:
        return 1

    @world.yard.workflow
    async def flow(ctx: WorkflowContext) -> list[int]:
        return await ctx.run(world.yard.group(one.call(), one.call()))

    assert await world.result(await flow.enqueue()) == [1, 1]


async def test_what_cannot_be_a_link_is_refused(world: World) -> None:
    @world.yard.job
    async def alone() -> None: ...

    with pytest.raises(BadInput, match="takes no argument"):
        world.yard.chain(alone.call(), alone)
    with pytest.raises(BadInput, match="nothing"):
        world.yard.chain()
    with pytest.raises(BadInput, match="private"):
        world.yard.group(alone.options(private={"key": 1}).call())


async def test_the_callback_of_a_batch_runs_once_with_the_counts(world: World) -> None:
    seen: list[BatchCounts] = []

    @world.yard.job(max_attempts=1)
    async def work(n: int) -> None:
        world.note(str(n))
        if n == 3:
            raise ValueError("no")

    @world.yard.job
    async def notify(counts: BatchCounts) -> None:
        seen.append(counts)

    async with world.yard.batch(notify) as batch:
        await batch.add(*map(work.call, range(15)))
        await world.drain(with_delayed=False)
        assert seen == []
        await batch.add(*map(work.call, range(15, 20)))
    counts = await world.result(batch.handle)
    expected = BatchCounts(batch_id=batch.id, total=20, completed=19, failed=1, cancelled=0)
    assert seen == [expected]
    assert counts == expected
    assert set(world.ledger.values()) == {1}
    progress = (await batch.handle.info()).progress
    assert progress is not None
    assert progress.percent == 100
    with pytest.raises(NotPossible):
        await batch.add(work.call(1))


async def test_an_empty_batch_calls_back_at_once(world: World) -> None:
    @world.yard.job
    async def notify(counts: BatchCounts) -> None:
        world.note(f"{counts.total}")

    async with world.yard.batch(notify) as batch:
        pass
    await world.result(batch.handle)
    assert world.order == ["0"]


async def test_a_batch_that_must_complete_fails_without_its_callback(world: World) -> None:
    @world.yard.job(max_attempts=1)
    async def work() -> None:
        raise ValueError("no")

    @world.yard.job
    async def notify(counts: BatchCounts) -> None:
        world.note("notified")

    async with world.yard.batch(notify, when="completed") as batch:
        await batch.add(work.call())
    with pytest.raises(JobFailed, match="1 of 1 jobs of the batch did not complete"):
        await world.result(batch.handle)
    assert not world.ledger


async def test_cancelling_a_closed_batch_cancels_its_jobs(world: World) -> None:
    @world.yard.job
    async def work() -> None: ...

    async with world.yard.batch() as batch:
        await batch.add(*(work.options(delay=3600).call() for _ in range(3)))
    await world.drain(with_delayed=False)
    await batch.handle.cancel()
    await world.drain(with_delayed=False)
    assert (await batch.handle.info()).state is State.CANCELLED
    jobs = (await world.store.find(Filter(kind="work"))).jobs
    assert {job.state for job in jobs} == {State.CANCELLED}
