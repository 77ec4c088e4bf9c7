"""The kit that applications test with."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobyard import BlockingContext, Context, Jobyard, Park, Snooze, State, Unique, UniqueScope
from jobyard.domain.instant import as_datetime
from jobyard.errors import BadOption, JobFailed, UnknownKind
from jobyard.testing import ManualClock, assert_enqueued, drain, inline, isolated, kit, refute_enqueued

yard = Jobyard("sqlite:////nowhere/at/all.db")  # never opened
yard.queue("serial", max_running=1)
yard.queue("mail", max_running=9)


@yard.job(queue="mail")
async def send(ctx: Context, to: str, options: dict[str, int] | None = None) -> str:
    return f"to {to}"


@yard.job(queue="serial")
async def parent(ctx: Context, children: int) -> None:
    for n in range(children):
        await send.options(queue="serial", delay=n * 10).enqueue(f"child {n}")


@yard.job(max_attempts=3, backoff=60)
async def fail(ctx: Context) -> None:
    raise ValueError(f"attempt {ctx.attempt}")


@yard.job()
def blocking(ctx: BlockingContext, n: int) -> int:
    ctx.progress(50)
    return n + 1


@yard.job()
async def wait(ctx: Context) -> str | Park:
    return Park("go") if ctx.signal is None else str(ctx.signal)


@yard.job()
async def snooze(ctx: Context) -> Snooze:
    return Snooze(1)


async def test_isolated_swaps_the_store_and_puts_it_back() -> None:
    before = yard.store
    async with isolated(yard) as outer:
        assert yard.store is outer.store is not before
        assert {queue.name for queue in await yard.queues()} == {"serial", "mail"}
        handle = await send.enqueue("a")
        async with yard, isolated(yard) as inner:
            assert inner.store is not outer.store
            await refute_enqueued(yard, send)
        assert (await handle.info()).state is State.PENDING
    assert (yard.store, yard.clock) == (before, None)
    with pytest.raises(RuntimeError, match="mine"):
        async with isolated(yard):
            raise RuntimeError("mine")
    assert yard.store is before


async def test_isolated_on_a_file_with_a_clock_of_ones_own(tmp_path: Path) -> None:
    clock = ManualClock(start=5_000)
    async with isolated(yard, url=f"sqlite:///{tmp_path}/jobs.db", clock=clock) as test:
        await send.options(delay=60).enqueue("a")
        assert await drain(yard) == []
        clock.advance(60)
        [job] = await drain(yard)
        assert (job.state, job.finished_at) == (State.COMPLETED, as_datetime(65_000))
        assert test.clock is clock


async def test_drain_answers_what_ran() -> None:
    async with isolated(yard) as test:
        assert await drain(yard) == []
        await parent.enqueue(3)
        assert [job.kind for job in await drain(yard, until_empty=False)] == ["parent"]
        assert [job.payload["to"] for job in await drain(yard)] == ["child 0"]
        began = test.clock.now()
        assert len(await drain(yard, with_delayed=True)) == 2
        assert test.clock.now() == began + 20_000


async def test_drain_of_some_queues() -> None:
    async with isolated(yard):
        await send.enqueue("a")
        await blocking.enqueue(1)
        assert [job.queue for job in await drain(yard, queues=["mail"], with_delayed=True)] == ["mail"]
        assert [job.queue for job in await drain(yard)] == ["default"]


async def test_drain_leaves_what_is_held_back() -> None:
    async with isolated(yard):
        await yard.pause("mail")
        await send.options(delay=5).enqueue("a")
        await wait.enqueue()
        assert [job.kind for job in await drain(yard, with_delayed=True)] == ["wait"]
        await yard.resume("mail")
        assert [job.kind for job in await drain(yard)] == ["send"]


async def test_drain_that_would_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit, "MAX_ATTEMPTS", 50)
    async with isolated(yard):
        await snooze.enqueue()
        with pytest.raises(AssertionError, match="still busy after 50 attempts; the last was snooze"):
            await drain(yard, with_delayed=True)


async def test_with_delayed_needs_a_clock_to_turn() -> None:
    async with Jobyard("memory://") as other:
        with pytest.raises(BadOption, match="inside isolated"):
            await drain(other, with_delayed=True)


async def test_leases_unique_periods_and_due_times_follow_the_clock() -> None:
    async with isolated(yard) as test:
        hourly = send.options(unique=Unique("k", UniqueScope.PERIOD, 3600))
        assert (await hourly.enqueue("a")).created
        [lease] = (await test.store.exchange("doomed", [], (), 1, 15)).leases
        test.clock.advance(14.9)
        assert await test.store.reclaim() == []
        test.clock.advance(0.1)
        assert [ended.job_id for ended in await test.store.reclaim()] == [lease.job_id]
        assert not (await hourly.enqueue("a")).created
        test.clock.advance(3600)
        assert (await hourly.enqueue("a")).created


async def test_inline_runs_to_the_end() -> None:
    async with inline(yard) as test:
        assert await (await send.enqueue("a")).result(0) == "to a"
        assert await (await blocking.enqueue(1)).result(0) == 2
        began = test.clock.now()
        failed = await fail.enqueue()
        with pytest.raises(JobFailed, match="attempt 3"):
            await failed.result(0)
        assert test.clock.now() == began + 120_000
        assert await (await send.options(delay=30).enqueue("later")).result(0) == "to later"
        assert [await h.result(0) for h in await yard.enqueue_many(send.call("x"), send.call("y"))] == ["to x", "to y"]


async def test_inline_runs_what_jobs_enqueue() -> None:
    async with inline(yard):
        await parent.enqueue(3)
        jobs = await assert_enqueued(yard, send, queue="serial", count=3)
        assert {job.state for job in jobs} == {State.COMPLETED}


async def test_inline_leaves_parked_and_held_jobs_alone() -> None:
    async with inline(yard):
        handle = await wait.enqueue()
        assert (await handle.info()).waiting_for == "go"
        await handle.signal("go", "now")
        await drain(yard)
        assert await handle.result(0) == "now"
        await yard.pause("mail")
        assert (await (await send.enqueue("a")).info()).state is State.PENDING


async def test_assert_enqueued() -> None:
    async with isolated(yard):
        with pytest.raises(AssertionError, match=r"expected at least one of send, found 0\. No job was enqueued\."):
            await assert_enqueued(yard, send)
        await send.options(group="acme").enqueue("ann", {"retries": 2, "size": 3})
        await send.enqueue("bob")
        found = await assert_enqueued(yard, "send")
        assert [job.payload["to"] for job in found] == ["ann", "bob"]
        await assert_enqueued(yard, send, queue="mail", group="acme", payload={"options": {"size": 3}}, count=1)
        await assert_enqueued(yard, send, group="other", count=0)
        await refute_enqueued(yard, send, payload={"to": "eve"})
        await refute_enqueued(yard, send, payload={"options": {"size": 4}})
        with pytest.raises(AssertionError) as caught:
            await assert_enqueued(yard, send, payload={"to": "eve"}, count=2)
        assert str(caught.value) == (
            "expected 2 of send payload={'to': 'eve'}, found 0. Enqueued jobs:\n"
            "  send queue='mail' group='acme' payload={'to': 'ann', 'options': {'retries': 2, 'size': 3}} PENDING\n"
            "  send queue='mail' payload={'to': 'bob'} PENDING"
        )
        with pytest.raises(
            AssertionError, match=r"expected none of send group='acme', found 1\. Enqueued jobs:\n  send"
        ):
            await refute_enqueued(yard, send, group="acme")
        with pytest.raises(UnknownKind, match="Did you mean"):
            await refute_enqueued(yard, "sned")


async def test_long_lists_are_cut() -> None:
    async with isolated(yard):
        await yard.enqueue_many(*[send.call(str(n)) for n in range(25)])
        with pytest.raises(AssertionError, match="… and 5 more"):
            await assert_enqueued(yard, fail)
