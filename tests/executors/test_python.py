"""Every outcome of a Python handler, through the executor and a store."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import pytest
from tests.support import eventually

from jobyard import BlockingContext, Cancel, Context, Done, Failed, Handoff, Job, Jobyard, Park, Snooze, State
from jobyard.app.declarations import declarations_of
from jobyard.domain.instant import as_datetime
from jobyard.domain.job import Ending, NewJob
from jobyard.errors import BadOption, PayloadNotJson
from jobyard.testing import Isolated, drain, isolated


@dataclass
class Stock:
    count: int


@pytest.fixture
def yard() -> Jobyard:
    return Jobyard("memory://", max_payload_bytes=10_000)


@pytest.fixture
async def test(yard: Jobyard) -> AsyncIterator[Isolated]:
    async with isolated(yard) as test:
        yield test
        assert await test.store.audit() == []


async def run_job(yard: Jobyard, value: Any, **declared: Any) -> Job:
    """Run a job whose handler returns, or raises, the value."""

    @yard.job(name=f"kind-{len(declarations_of(yard).tasks)}", **declared)
    async def handler(ctx: Context) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    handle = await handler.enqueue()
    await drain(yard)
    return await handle.info()


async def test_result(yard: Jobyard, test: Isolated) -> None:
    job = await run_job(yard, {"a": [1, 2.5, "x", None, True]})
    assert (job.state, job.attempt) == (State.COMPLETED, 1)
    assert job.result == {"a": [1, 2.5, "x", None, True]}
    assert (await run_job(yard, None)).result is None
    assert (await run_job(yard, Done(b'"made by hand"'))).result == "made by hand"


async def test_an_exception_is_retried_and_its_traceback_recorded(yard: Jobyard, test: Isolated) -> None:
    job = await run_job(yard, ValueError("broken"), max_attempts=2, backoff=30)
    [error] = job.errors
    assert (job.state, job.attempt, error.ending) == (State.PENDING, 1, Ending.ERROR)
    assert (error.message, error.type, error.worker, error.attempt) == ("broken", "ValueError", "testing", 1)
    assert error.traceback is not None
    assert "in handler" in error.traceback
    assert error.traceback.rstrip().endswith("ValueError: broken")
    assert job.run_at == as_datetime(test.clock.now() + 30_000)
    assert await drain(yard) == []
    test.clock.advance(30)
    [job] = await drain(yard)
    assert (job.state, job.attempt, job.reason, len(job.errors)) == (State.FAILED, 2, "broken", 2)


async def test_a_returned_failed_outcome_fails_or_retries_the_job(yard: Jobyard, test: Isolated) -> None:
    job = await run_job(yard, Failed(message="give up", retry=False))
    assert (job.state, job.attempt, job.reason) == (State.FAILED, 1, "give up")
    job = await run_job(yard, Failed(message="later", retry_after_seconds=99))
    assert (job.state, job.run_at) == (State.PENDING, as_datetime(test.clock.now() + 99_000))


async def test_backoff_function(yard: Jobyard, test: Isolated) -> None:
    job = await run_job(yard, ValueError("no"), backoff=lambda failures: failures * 7.0, max_attempts=3)
    assert job.run_at == as_datetime(test.clock.now() + 7_000)
    test.clock.advance(7)
    [job] = await drain(yard)
    assert job.run_at == as_datetime(test.clock.now() + 14_000)


async def test_a_failing_backoff_function_does_not_hide_the_error(yard: Jobyard, test: Isolated) -> None:
    job = await run_job(yard, ValueError("no"), backoff=lambda failures: failures / 0)
    assert (job.state, job.errors[0].message) == (State.PENDING, "no")


async def test_snooze_is_not_counted(yard: Jobyard, test: Isolated) -> None:
    job = await run_job(yard, Snooze(60), max_attempts=1)
    assert (job.state, job.attempt, job.errors, job.run_at) == (
        State.PENDING,
        0,
        (),
        as_datetime(test.clock.now() + 60_000),
    )
    test.clock.advance(60)
    assert len(await drain(yard)) == 1


async def test_cancel(yard: Jobyard, test: Isolated) -> None:
    job = await run_job(yard, Cancel("not needed"))
    assert (job.state, job.reason) == (State.CANCELLED, "not needed")


async def test_handoff_keeps_the_slot(yard: Jobyard, test: Isolated) -> None:
    job = await run_job(yard, Handoff("pod-7"))
    assert (job.state, job.external_id) == (State.RUNNING, "pod-7")
    test.clock.advance(86_400 * 365 * 20)
    assert await test.store.reclaim() == []
    [queue] = await yard.queues()
    assert queue.running == 1


async def test_park_waits_for_its_signal(yard: Jobyard, test: Isolated) -> None:
    @yard.job(max_attempts=1)
    async def ask(ctx: Context) -> Park | str:
        return Park("answer") if ctx.signal is None else f"they said {ctx.signal}"

    handle = await ask.enqueue()
    [job] = await drain(yard)
    assert (job.state, job.waiting_for, job.attempt) == (State.PENDING, "answer", 0)
    assert not await handle.signal("other", 1)
    assert await drain(yard, with_delayed=True) == []
    assert await handle.signal("answer", ["yes"])
    await drain(yard)
    assert await handle.result(60) == "they said ['yes']"


async def test_park_with_a_time(yard: Jobyard, test: Isolated) -> None:
    job = await run_job(yard, Park("answer", 30))
    assert job.run_at == as_datetime(test.clock.now() + 30_000)


@pytest.mark.parametrize("value", [object(), {"a": float("nan")}, {1, object()}, "\udcff", "x" * 20_000])
async def test_a_result_that_is_not_json_fails_the_job(yard: Jobyard, test: Isolated, value: Any) -> None:
    job = await run_job(yard, value)
    assert (job.state, job.attempt, job.result) == (State.FAILED, 1, None)
    assert job.reason is not None
    assert job.reason.startswith("The result of kind-0 ")


async def test_nan_is_found_inside_dataclasses(yard: Jobyard, test: Isolated) -> None:
    @dataclass
    class Measure:
        value: float | None

    assert "holds inf" in str((await run_job(yard, [Measure(float("inf"))])).reason)
    assert (await run_job(yard, [Measure(None)])).state is State.COMPLETED


anything: Any = {"a": 1}
INVALID_OUTCOMES = [
    Done(b'"' + b"x" * 10_000 + b'"'),  # beyond max_payload_bytes
    Failed(message="x" * 10_000),
    Cancel("x" * 10_000),
    Done(anything),
    Done(b"no json"),
    Snooze(anything),
    Snooze(float("nan")),
    Snooze(-1),
    Park(anything),
    Park("a", float("inf")),
    Cancel(anything),
    Cancel("\udcff"),
    Failed(message=anything),
    Handoff(anything),
]


@pytest.mark.parametrize("value", INVALID_OUTCOMES)
async def test_an_invalid_outcome_fails_the_job(yard: Jobyard, test: Isolated, value: Any) -> None:
    job = await run_job(yard, value)
    assert (job.state, job.errors[0].type) == (State.FAILED, "BadOutcome")


class ErrorWithoutText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SystemExit(3), "3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (BaseException("anything"), "anything"),
        (ValueError("caf\udce9"), "caf?"),
        (KeyError(), "KeyError"),
        (ErrorWithoutText(), "ErrorWithoutText"),
    ],
)
async def test_errors_of_every_kind_are_recorded(
    yard: Jobyard, test: Isolated, error: BaseException, message: str
) -> None:
    job = await run_job(yard, error)
    assert (job.state, job.errors[0].message) == (State.PENDING, message)


async def test_an_interrupt_in_a_thread_ends_its_job_only(yard: Jobyard, test: Isolated) -> None:
    @yard.job
    def interrupted() -> None:
        raise KeyboardInterrupt

    handle = await interrupted.enqueue()
    await drain(yard)
    job = await handle.info()
    assert (job.state, job.errors[0].type) == (State.PENDING, "KeyboardInterrupt")


@dataclass
class Exiting:
    """A payload whose validation exits."""

    number: int

    def __post_init__(self) -> None:
        if self.number == 13:
            raise SystemExit("while decoding")


async def test_an_exit_beside_the_handler_ends_its_job_only(yard: Jobyard, test: Isolated) -> None:
    """In the payload type, in the backoff function."""

    def exits(_: int) -> float:
        raise SystemExit("no delay")

    @yard.job
    async def takes(value: Exiting) -> None: ...

    @yard.job(backoff=exits)
    async def fails() -> None:
        raise ValueError("broken")

    await test.store.insert([NewJob(id="1", kind="takes", payload=b'{"value":{"number":13}}')])
    handle = await fails.enqueue()
    await drain(yard)
    assert (await yard.get("1")).errors[0].message == "while decoding"
    assert (await handle.info()).errors[0].message == "broken"


async def test_a_handler_that_cancels_itself_has_failed(yard: Jobyard, test: Isolated) -> None:
    job = await run_job(yard, asyncio.CancelledError())
    assert (job.state, job.errors[0].type) == (State.PENDING, "CancelledError")


async def test_long_messages_and_tracebacks_are_cut(yard: Jobyard, test: Isolated) -> None:
    job = await run_job(yard, ValueError("x" * 50_000))
    error = job.errors[0]
    assert error.traceback is not None
    assert (len(error.message), len(error.traceback)) == (2000, 16_001)


async def test_a_job_of_an_unknown_kind_goes_back_to_the_queue(yard: Jobyard, test: Isolated) -> None:
    """Another worker may know it, or this one after its next deployment: no attempt is counted."""

    @yard.job(name="send_mail")
    async def send(ctx: Context) -> None: ...

    await test.store.insert([NewJob(id="1", kind="send_mial")])
    [job] = await drain(yard)
    assert (job.state, job.attempt, job.errors) == (State.PENDING, 0, ())
    assert job.run_at is not None
    assert job.run_at > as_datetime(test.clock.now())
    seen = await yard.get("1")
    assert "Did you mean" in seen.log[0].message


@pytest.mark.parametrize("payload", [b'{"a":"x"}', b"{}", b'{"a":1,"b":2}', b"[1]", b"no json", b"[" * 5000])
async def test_an_invalid_payload_is_not_retried(yard: Jobyard, test: Isolated, payload: bytes) -> None:
    @yard.job()
    async def work(ctx: Context, a: int) -> None:
        raise AssertionError("never called")

    await test.store.insert([NewJob(id="1", kind="work", payload=payload)])
    await drain(yard)
    job = await yard.get("1")
    assert (job.state, job.attempt, job.errors[0].type) == (State.FAILED, 1, "BadInput")
    assert "payload" in job.errors[0].message


async def test_a_plain_function_is_interrupted(yard: Jobyard) -> None:
    began, ended = threading.Event(), threading.Event()

    @yard.job(max_attempts=1, timeout=2)  # a busy machine takes long to start a thread
    def work(ctx: BlockingContext) -> None:
        began.set()
        try:
            while True:
                with suppress(Exception):
                    time.sleep(0.001)
        finally:
            assert ctx.cancelled
            ended.set()

    async with yard, yard.worker():
        handle = await work.enqueue()
        await eventually(began.is_set)
        await eventually(ended.is_set)
        await eventually(lambda: is_in(handle.info, State.TIMEOUT))


async def is_in(look: Any, state: State) -> bool:
    return bool((await look()).state is state)


async def test_threads_are_reused(yard: Jobyard, test: Isolated) -> None:
    seen: set[int] = set()

    @yard.job()
    def work(ctx: BlockingContext) -> None:
        seen.add(threading.get_ident())

    for _ in range(20):
        await work.enqueue()
    async with yard.worker(concurrency=1):
        await eventually(lambda: all_done(yard))
    assert len(seen) == 1


async def all_done(yard: Jobyard) -> bool:
    [queue] = await yard.queues()
    return queue.completed == 20


async def test_reports_are_validated(yard: Jobyard, test: Isolated) -> None:
    box = {"a": 1}

    @yard.job()
    async def work(ctx: Context) -> None:
        for percent in (-1, 101, float("nan"), 10**400, "5"):
            with pytest.raises(BadOption) as caught:
                await ctx.progress(percent)  # type: ignore[arg-type]
            assert caught.value.option == "percent"
        with pytest.raises(PayloadNotJson, match="progress data"):
            await ctx.progress(1, data=object())
        with pytest.raises(BadOption) as caught:
            await ctx.log("x", "loud")
        assert caught.value.option == "level"
        with pytest.raises(PayloadNotJson, match="step s"):
            async with ctx.step("s", object()):
                pass
        await ctx.progress(1, "caf\udce9", box)
        box["a"] = 2
        await ctx.log("caf\udce9")

    job = (await work.enqueue()).info
    await drain(yard)
    seen = await job()
    assert seen.state is State.COMPLETED, seen.errors
    assert seen.progress is not None
    assert (seen.progress.data, seen.progress.message, seen.log[0].message) == ({"a": 1}, "caf?", "caf?")


def test_invalid_declarations() -> None:
    yard = Jobyard("memory://")
    with pytest.raises(BadOption):

        @yard.job(transactional=True)
        async def without_context(number: int) -> None: ...

    with pytest.raises(BadOption, match="named parameters"):

        @yard.job()
        async def many(ctx: Context, *words: str) -> None: ...

    @yard.job(name="same")
    async def one(ctx: Context) -> None: ...

    with pytest.raises(BadOption, match="Two handlers are named same"):

        @yard.job(name="same")
        async def two(ctx: Context) -> None: ...


async def _generator(ctx: Context) -> Any:
    yield 1


def _plain_generator() -> Any:
    yield 1


class _Class:
    def __init__(self, number: int) -> None: ...


async def _async_blocking(ctx: BlockingContext) -> None: ...


def _plain_async(ctx: Context) -> None: ...


@pytest.mark.parametrize("function", [_generator, _plain_generator, _Class, _async_blocking, _plain_async])
def test_what_cannot_be_a_handler_is_refused_where_it_is_declared(yard: Jobyard, function: Any) -> None:
    with pytest.raises(BadOption):
        yard.job(function)


async def test_an_object_with_an_async_call_is_a_handler(yard: Jobyard, test: Isolated) -> None:
    class Adder:
        async def __call__(self, one: int, other: int) -> int:
            return one + other

    add = yard.job(name="add")(Adder())
    handle = await add.enqueue(1, 2)
    await drain(yard)
    assert (await handle.info()).result == 3


@pytest.mark.parametrize(
    ("hint", "value", "fits"),
    [
        (str, "text", True),
        (str, 5, False),
        (str, None, False),
        (str | None, None, True),
        (None, None, True),
        (None, 5, False),
        (float, 5, True),
        (list[int], [1, 2], True),
        (list[int], [1, "two"], False),
        (dict, {"a": 1}, True),
        (Any, object, None),
        (int | Snooze, 5, True),
        (int | Snooze, "text", False),
        (Stock, Stock(1), True),
        (Stock, Stock(cast("int", "many")), False),
        (Stock, {"count": 1}, True),
        (str, Done(b"5"), False),
        (int, Done(b"5"), True),
        (Done, Done(b"5"), True),
    ],
)
async def test_a_result_that_its_type_cannot_read_fails_the_job(
    yard: Jobyard, test: Isolated, hint: Any, value: Any, fits: bool | None
) -> None:
    async def handler() -> Any:
        return value

    handler.__annotations__["return"] = hint
    job_handle = await yard.job(handler).enqueue()
    await drain(yard)
    job = await job_handle.info()
    if fits:
        assert (job.state, job.attempt) == (State.COMPLETED, 1)
        await job_handle.result()
        return
    assert (job.state, job.attempt) == (State.FAILED, 1)
    assert job.reason is not None
    assert job.reason.startswith("The result of handler ")
    if fits is False:
        assert "does not fit its declared type: " in job.reason
        assert job.reason.endswith(". Return a value of that type, or correct the annotation.")
