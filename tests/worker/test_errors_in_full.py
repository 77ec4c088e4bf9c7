"""What a handler raised reaches the log, the error tracker and the caller; what blocks the loop is named."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
import traceback
from pathlib import Path

import pytest
from tests.support import Events, eventually

from jobyard import Jobyard, WorkflowContext
from jobyard.domain import events as e
from jobyard.errors import HandlerError, JobFailed
from jobyard.observability.composite import CompositeObserver
from jobyard.observability.logs import LogObserver
from jobyard.operations.queries import Queries


def fail_deeply(key: str) -> str:
    orders: dict[str, str] = {}
    return orders[key]


@pytest.fixture
def quick(tmp_path: Path) -> Jobyard:
    yard = Jobyard(f"sqlite:///{tmp_path}/jobs.db")

    @yard.job(max_attempts=2, backoff=[0.01])
    async def charge(order: str) -> str:
        return fail_deeply(order)

    @yard.workflow(max_attempts=1)
    async def ship(ctx: WorkflowContext) -> None:
        fail_deeply("y")

    return yard


async def test_a_log_record_has_the_exception_for_error_trackers(
    quick: Jobyard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "jobyard")
    async with quick, quick.worker():
        handle = await quick.enqueue("charge", {"order": "x"})
        await handle.wait(60)
        await eventually(lambda: [record for record in caplog.records if record.levelno == logging.ERROR])
    again, ended = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert "(KeyError: 'x'); it will run again" in again.getMessage()
    assert ended.getMessage() == f"charge {handle.id} is FAILED: KeyError: 'x'"
    for record in (again, ended):
        assert record.exc_info is not None
        kind, error, trace = record.exc_info
        assert (kind, str(error)) == (KeyError, "'x'")
        assert [frame.name for frame in traceback.extract_tb(trace)][-2:] == ["charge", "fail_deeply"]


async def test_a_workflow_that_fails_is_logged_with_its_exception(
    quick: Jobyard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "jobyard")
    async with quick, quick.worker():
        await (await quick.enqueue("ship")).wait(60)
        [record] = await eventually(lambda: caplog.records)
    assert "is FAILED: KeyError: 'y'" in record.getMessage()
    assert record.exc_info[0] is KeyError


async def test_an_exception_is_freed_with_its_job(quick: Jobyard) -> None:
    """The frames of a traceback refer to the attempt; an attempt that refers to the exception would be a cycle."""
    freed = threading.Event()
    quick.observer = CompositeObserver()  # a log record, which pytest keeps, has the exception

    class Large:
        def __del__(self) -> None:
            freed.set()

    @quick.job(max_attempts=1)
    async def hold() -> None:
        _large = Large()
        raise ValueError("no")

    async with quick, quick.worker():
        gc.collect()
        gc.disable()
        try:
            await (await quick.enqueue("hold")).wait(60)
            await eventually(freed.is_set)
        finally:
            gc.enable()


async def test_the_cause_of_a_failure_is_what_the_handler_raised(quick: Jobyard) -> None:
    async with quick, quick.worker():
        handle = await quick.enqueue("charge", {"order": "x"})
        with pytest.raises(JobFailed, match=r"FAILED: KeyError: 'x'$") as caught:
            await handle.result(60)
    cause = caught.value.__cause__
    assert isinstance(cause, HandlerError)
    assert (cause.error_type, cause.message) == ("KeyError", "'x'")
    assert "in fail_deeply" in str(cause)
    assert "in fail_deeply" in "".join(traceback.format_exception(caught.value))


async def test_a_job_that_was_not_ended_by_its_handler_has_no_cause(quick: Jobyard) -> None:
    async with quick:
        handle = await quick.enqueue("charge", {"order": "x"})
        await handle.cancel("not wanted")
        with pytest.raises(Exception, match="not wanted") as caught:
            await Queries(quick.store).result(handle.id, 60)
    assert caught.value.__cause__ is None


BLOCKED_SECONDS = 50.0  # unless it is reported


def block(until: threading.Event) -> None:
    until.wait(BLOCKED_SECONDS)


async def test_a_blocked_event_loop_is_reported_with_its_handler_and_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("jobyard.worker.loop_monitor.BLOCKED_AFTER_SECONDS", 0.05)
    released, events = threading.Event(), Events()
    yard = Jobyard(f"sqlite:///{tmp_path}/jobs.db", observer=events)

    @yard.job
    async def resize() -> None:
        block(released)

    def reports() -> list[e.EventLoopBlocked]:
        # On a busy machine the loop may be late without this handler, too.
        return [event for event in events.of(e.EventLoopBlocked) if any("in block" in call for call in event.stack)]

    def release_when_seen() -> None:
        deadline = time.monotonic() + BLOCKED_SECONDS
        while not reports() and time.monotonic() < deadline:
            time.sleep(0.005)
        released.set()

    async with yard, yard.worker(lease=1.5):
        handle = await yard.enqueue("resize")
        await asyncio.gather(asyncio.to_thread(release_when_seen), handle.wait(60))
    blocked = reports()[0]
    assert blocked.lease is not None
    assert (blocked.lease.kind, blocked.lease.job_id) == ("resize", handle.id)
    assert "in resize" in blocked.stack[0]
    assert any("in block" in call and "until.wait(BLOCKED_SECONDS)" in call for call in blocked.stack)

    caplog.set_level(logging.WARNING, "jobyard")
    LogObserver().observe(blocked)
    [record] = caplog.records
    assert record.getMessage().startswith(f"resize {handle.id} has blocked the event loop for ")
    assert "in resize" in str(record.stack_info)
    assert record.__dict__["job_id"] == handle.id
