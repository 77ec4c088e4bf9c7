"""The Python API: declare, enqueue, await, operate."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support import Make, eventually

from jobyard import BlockingContext, Context, Fixed, JobFilter, Jobyard, State, Unique, UniqueScope
from jobyard.errors import (
    BadInput,
    BadOption,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobTimedOut,
    NotPossible,
    QueueFull,
    ResultNotReady,
)
from jobyard.operations.commands import Commands
from jobyard.testing import ManualClock, drain


@dataclass
class Address:
    street: str
    number: int = 1


class Order(msgspec.Struct):
    id: int
    to: Address
    due: datetime | None = None


async def test_a_job_is_shown_by_the_name_it_is_imported_by(make: Make) -> None:
    async with make() as yard:
        task = yard.job(name="send")(lambda: None)
        handle = await task.enqueue()
        for shown in (repr(await yard.get(handle.id)), str(await handle.info())):
            assert shown.startswith(f"Job(id='{handle.id}', kind='send'")


async def test_a_result_comes_back_typed(yard: Jobyard) -> None:
    @yard.job()
    async def ship(ctx: Context, order: Order, *, fast: bool = False, notes: list[str] | None = None) -> Order:
        assert isinstance(order.to, Address)
        return Order(order.id + 1, order.to, order.due if fast else None)

    due = datetime(2026, 1, 2, tzinfo=UTC)
    handle = await ship.enqueue(Order(1, Address("Elm", 7), due), fast=True)
    async with yard.worker():
        assert await handle.result(60) == Order(2, Address("Elm", 7), due)


async def test_defaults_and_keyword_only_parameters(yard: Jobyard) -> None:
    @yard.job()
    async def add(ctx: Context, a: int, b: int = 10, *, c: int = 100) -> int:
        return a + b + c

    calls = [add.call(1), add.call(1, 2), add.call(1, b=3), add.call(1, c=4), add.call(a=1, b=2, c=3)]
    handles = await yard.enqueue_many(*calls)
    async with yard.worker(concurrency=5):
        assert [await handle.result(60) for handle in handles] == [111, 103, 104, 15, 6]


async def test_the_decorated_function_stays_callable(yard: Jobyard) -> None:
    @yard.job()
    async def double(ctx: Context, number: int) -> int:
        """Twice as much."""
        return number * 2

    @yard.job()
    def triple(ctx: BlockingContext, number: int) -> int:
        return number * 3

    context: Any = None
    assert await double(context, 4) == 8
    assert triple(context, 4) == 12
    assert (getattr(double, "__name__", ""), double.__doc__) == ("double", "Twice as much.")


async def test_plain_functions_run_in_threads_with_a_blocking_context(yard: Jobyard) -> None:
    loop_thread = threading.get_ident()

    @yard.job()
    def work(ctx: BlockingContext, word: str) -> list[object]:
        ctx.progress(50, "half", {"word": word})
        ctx.log("a line", "warning")
        with ctx.step("first", {"n": 1}):
            pass
        with pytest.raises(ZeroDivisionError), ctx.step("second"):
            raise ZeroDivisionError
        return [threading.get_ident() != loop_thread, ctx.attempt, ctx.max_attempts, ctx.cancelled, ctx.kind]

    handle = await work.enqueue("x")
    async with yard.worker():
        assert await handle.result(60) == [True, 1, 3, False, "work"]
    job = await handle.info()
    assert job.progress is not None
    assert (job.progress.percent, job.progress.message, job.progress.data) == (50, "half", {"word": "x"})
    assert [(line.level, line.message) for line in job.log] == [("warning", "a line")]
    assert [(step.name, step.status, step.data) for step in job.steps] == [
        ("first", "passed", {"n": 1}),
        ("second", "failed", None),
    ]


async def test_async_handlers_tell_the_same(yard: Jobyard) -> None:
    @yard.job()
    async def work(ctx: Context) -> None:
        await ctx.progress(100)
        await ctx.log("a line")
        async with ctx.step("only"):
            pass

    handle = await work.enqueue()
    async with yard.worker():
        assert await handle.result(60) is None  # type: ignore[func-returns-value]
    job = await handle.info()
    assert job.progress is not None
    assert (job.progress.percent, len(job.log), job.steps[0].status) == (100, 1, "passed")


async def test_options_reach_the_job(yard: Jobyard) -> None:
    @yard.job(queue="mail", max_attempts=5, timeout=9, backoff=2, tags=("a",))
    async def send(ctx: Context) -> str:
        return f"{ctx.group} {ctx.private}"

    @yard.job(name="other.name")
    async def plain(ctx: Context) -> None: ...

    declared = await (await send.enqueue()).info()
    assert (declared.queue, declared.max_attempts, declared.timeout_seconds) == ("mail", 5, 9)
    assert (declared.backoff, declared.tags, declared.group, declared.priority) == (Fixed(2.0), ("a",), None, 0)
    assert (await (await plain.enqueue()).info()).kind == "other.name"

    at = datetime.now(UTC).replace(microsecond=123_000) + timedelta(hours=1)
    chosen = send.options(
        queue="post", group="acme", priority=7, run_at=at, max_attempts=1, timeout=3, backoff=[1, 5], tags=["x", "y"]
    )
    job = await (await chosen.enqueue()).info()
    assert (job.queue, job.group, job.priority, job.max_attempts) == ("post", "acme", 7, 1)
    assert (job.timeout_seconds, job.tags, job.run_at) == (3, ("x", "y"), at)

    handle = await send.options(group="g", private={"key": "secret"}).enqueue()
    assert "secret" not in str(await handle.info())
    async with yard.worker():
        assert await handle.result(60) == "g {'key': 'secret'}"


async def test_plain_functions_are_handlers(yard: Jobyard) -> None:
    @yard.job
    async def add(first: int, second: int = 1) -> int:
        return first + second

    @yard.job
    def join(*, words: list[str], context: str = "") -> str:
        return " ".join([*words, context])

    @yard.job
    async def nothing() -> None: ...

    @yard.job(queue="other")
    def kind_of(ctx: BlockingContext) -> str:
        return ctx.kind

    @yard.job
    async def untyped(ctx, number):  # type: ignore[no-untyped-def]
        return [ctx.kind, number]

    assert await add(1, second=2) == 3
    assert join(words=["a"], context="b") == "a b"
    sums = [await add.enqueue(1), await add.enqueue(1, second=5)]
    joined = await join.enqueue(words=["a", "b"], context="c")
    empty, kind, number = await nothing.enqueue(), await kind_of.enqueue(), await untyped.enqueue(7)
    async with yard.worker():
        assert [await handle.result(60) for handle in sums] == [2, 6]
        assert await joined.result(60) == "a b c"
        assert (await empty.wait(60)).state is State.COMPLETED
        assert (await kind.result(60), await number.result(60)) == ("kind_of", ["untyped", 7])


async def test_a_handle_by_id_does_what_the_first_handle_did(yard: Jobyard) -> None:
    @yard.job(max_attempts=1)
    async def divide(number: int) -> float:
        return 6 / number

    failed = yard.job_handle((await divide.enqueue(0)).id)
    done = divide.job_handle((await divide.enqueue(2)).id)
    async with yard.worker():
        assert await done.result(timedelta(seconds=10)) == 3
        assert await yard.job_handle(done.id).result(60) == 3
        with pytest.raises(JobFailed):
            await failed.result(60)
        await failed.retry()
        assert (await failed.wait(60)).state is State.FAILED
    waiting = yard.job_handle((await divide.enqueue(1)).id)
    await waiting.prioritise(5)
    assert (await waiting.info()).priority == 5
    assert (await waiting.explain()).job_id == waiting.id
    assert not await waiting.signal("go")
    await waiting.cancel("not needed")
    assert (await waiting.info()).state is State.CANCELLED
    await waiting.delete()
    with pytest.raises(JobNotFound):
        await waiting.info()


async def test_durations_are_seconds_or_timedeltas(yard: Jobyard) -> None:
    @yard.job(queue="q", timeout=timedelta(minutes=1))
    async def work() -> None: ...

    async with yard:
        job = await (await work.options(delay=timedelta(days=1)).enqueue()).info()
        assert job.timeout_seconds == 60
        assert job.run_at is not None
        assert job.run_at - job.created_at == timedelta(days=1)
    yard.worker(lease=timedelta(seconds=20), shutdown_timeout=timedelta(0))


async def test_enqueue_by_name(yard: Jobyard) -> None:
    @yard.job()
    async def add(ctx: Context, a: int, b: int = 1) -> int:
        return a + b

    handle = await yard.enqueue("add", {"a": 2}, priority=3)
    assert (await handle.info()).priority == 3
    await drain(yard)
    assert await handle.result(60) == 3
    with pytest.raises(BadInput):
        await yard.enqueue("add", {"c": 2})


@pytest.mark.parametrize("which", ["memory", "sqlite"])
async def test_unique(which: str, tmp_path: Path) -> None:
    clock = ManualClock()
    url = "memory://" if which == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    async with Jobyard(url, clock=clock) as yard:

        @yard.job()
        async def work(ctx: Context) -> None: ...

        first = await work.options(unique="k").enqueue()
        again = await work.options(unique="k").enqueue()
        assert (first.created, again.created, again.id) == (True, False, first.id)
        await drain(yard)
        assert (await work.options(unique="k").enqueue()).created

        hourly = work.options(unique=Unique("h", UniqueScope.PERIOD, 3600))
        assert [(await hourly.enqueue()).created for _ in range(2)] == [True, False]
        await drain(yard)
        assert not (await hourly.enqueue()).created
        clock.advance(3600)
        assert (await hourly.enqueue()).created

        once = work.options(unique=Unique("f", UniqueScope.FOREVER))
        assert (await once.enqueue()).created
        await drain(yard)
        assert not (await once.enqueue()).created


async def test_enqueue_many_is_all_or_nothing(make: Make) -> None:
    yard = make()
    yard.queue("small", max_waiting=3)

    @yard.job(queue="small")
    async def work(ctx: Context, n: int) -> None: ...

    async with yard:
        with pytest.raises(QueueFull):
            await yard.enqueue_many(*[work.call(n) for n in range(4)])
        assert (await yard.page()).items == ()
        await yard.enqueue_many(*[work.call(n) for n in range(3)])
        assert [job.payload["n"] async for job in yard.jobs()] == [2, 1, 0]
        assert await yard.enqueue_many() == []


async def test_enqueue_in_the_callers_own_transaction(tmp_path: Path) -> None:
    async with Jobyard(f"sqlite:///{tmp_path}/jobs.db") as yard:
        ran: list[int] = []

        @yard.job()
        async def work(ctx: Context, order: int) -> None:
            ran.append(order)

        connection = sqlite3.connect(tmp_path / "jobs.db")
        connection.execute("CREATE TABLE orders (id INTEGER)")
        async with yard.worker():
            connection.execute("INSERT INTO orders VALUES (1)")
            gone = await work.options(transaction=connection).enqueue(1)
            connection.rollback()
            with pytest.raises(JobNotFound):
                await gone.info()

            connection.execute("INSERT INTO orders VALUES (2)")
            kept = await work.options(transaction=connection).enqueue(2)
            with pytest.raises(JobNotFound):
                await kept.info()
            connection.commit()
            await kept.result(60)
        assert ran == [2]
        assert connection.execute("SELECT id FROM orders").fetchall() == [(2,)]
        with pytest.raises(NotPossible, match="BEGIN IMMEDIATE"):
            await work.options(transaction=connection).enqueue(3)
        with pytest.raises(NotPossible, match="another database"):
            other = sqlite3.connect(tmp_path / "other.db")
            other.execute("BEGIN IMMEDIATE")
            await work.options(transaction=other).enqueue(3)
        other.close()
        with pytest.raises(BadOption):
            await yard.enqueue_many(work.call(1), work.options(transaction=connection).call(2))
        connection.close()
        assert await yard.store.audit() == []


async def test_an_unknown_queue_is_rejected_everywhere(yard: Jobyard) -> None:
    @yard.job(queue="mail")
    async def work(ctx: Context) -> None: ...

    for change in (yard.pause, yard.resume, partial(yard.set_limit, limit=1), yard.remove_limit):
        await change("mail", group="acme")
        with pytest.raises(BadOption) as caught:
            await change("mial", group="acme")
        assert caught.value.option == "queue"
    assert [info.name for info in await yard.queues()] == ["mail"]


async def test_limits_at_run_time(yard: Jobyard) -> None:
    gate, running = asyncio.Event(), 0

    @yard.job(queue="q")
    async def work(ctx: Context) -> None:
        nonlocal running
        running += 1
        await gate.wait()

    await yard.set_limit("q", "acme", 2)
    for _ in range(8):
        await work.options(group="acme").enqueue()
    async with yard.worker(concurrency=20):
        await eventually(lambda: running == 2)
        await yard.set_limit("q", "acme", 5)
        await eventually(lambda: running == 5)
        [group] = [each async for each in yard.groups("q")]
        assert (group.limit, group.running, group.waiting) == (5, 5, 3)
        [waiting, *_] = (await yard.page(JobFilter(state=(State.PENDING,)))).items
        assert "5 of 5" in str((await yard.explain(waiting.id)).sentence)
        await yard.remove_limit("q", "acme")
        await eventually(lambda: running == 8)
        gate.set()


async def test_pause_and_resume(yard: Jobyard) -> None:
    @yard.job(queue="q")
    async def work(ctx: Context) -> str | None:
        return ctx.group

    await yard.pause("q", "acme")
    held = await work.options(group="acme").enqueue()
    free = await work.options(group="other").enqueue()
    async with yard.worker():
        assert await free.result(60) == "other"
        assert (await held.info()).state is State.PENDING
        await yard.resume("q", "acme")
        assert await held.result(60) == "acme"
        await yard.pause("q")
        held = await work.enqueue()
        with pytest.raises(ResultNotReady):
            await held.result(timeout=0.05)
        await yard.resume("q")
        assert await held.result(60) is None


async def test_a_worker_takes_only_its_queues(yard: Jobyard) -> None:
    @yard.job()
    async def work(ctx: Context) -> str:
        return ctx.queue

    other = await work.options(queue="b").enqueue()
    mine = await work.options(queue="a").enqueue()
    async with yard.worker(queues=["a"]):
        assert await mine.result(60) == "a"
    assert (await other.info()).state is State.PENDING


async def test_how_handles_say_that_it_ended_badly(yard: Jobyard) -> None:
    @yard.job(max_attempts=1)
    async def fail(ctx: Context) -> None:
        raise ValueError("broken")

    @yard.job(max_attempts=1, timeout=0.02)
    async def slow(ctx: Context) -> None:
        await asyncio.Event().wait()

    failing, timing, cancelled = await fail.enqueue(), await slow.enqueue(), await fail.options(delay=60).enqueue()
    await cancelled.cancel("no longer wanted")
    async with yard.worker():
        with pytest.raises(JobFailed, match=r"fail.*FAILED: ValueError: broken"):
            await failing.result(60)
        with pytest.raises(JobTimedOut, match="longer than"):
            await timing.result(60)
    with pytest.raises(JobCancelled, match="no longer wanted"):
        await cancelled.result(60)
    with pytest.raises(NotPossible, match="CANCELLED"):
        await cancelled.cancel()
    odd = await fail.options(delay=60).enqueue()
    await odd.cancel("caf\udce9" + "x" * 5000)
    assert (await odd.info()).reason == "caf?" + "x" * 1996
    assert failing.id in repr(failing)
    missing = await fail.options(delay=60).enqueue()
    assert await Commands(yard.store).drain("default") == 1
    for verb in (missing.result(60), missing.info(), missing.cancel(), missing.signal("x")):
        with pytest.raises(JobNotFound):
            await verb


async def test_a_result_that_does_not_fit_its_annotation(yard: Jobyard) -> None:
    @yard.job()
    async def lie(ctx: Context) -> int:
        return "text"  # type: ignore[return-value]

    handle = await lie.enqueue()
    await drain(yard)
    with pytest.raises(JobFailed, match=r"result of lie.*expected int"):
        await handle.result(60)
