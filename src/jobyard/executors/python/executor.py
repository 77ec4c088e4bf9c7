"""Executor that runs one attempt of a Python handler and returns its outcome."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import os
import traceback
from pathlib import Path
from typing import Any, Protocol

import msgspec

from jobyard.domain.job import LogLine
from jobyard.domain.outcome import Done, Failed, Outcome, Park, Snooze
from jobyard.errors import BadInput, LeaseLost, UnknownKind
from jobyard.executors.python.context import BlockingContext, Context
from jobyard.executors.python.forked_child import run_in_this_process, watch_forks
from jobyard.executors.python.handlers import OUTCOMES, Handler, HandlerRegistry
from jobyard.executors.python.payload import MAX_PAYLOAD_BYTES, text
from jobyard.executors.python.thread_pool import HandlerThreadPool
from jobyard.ports.executor import Attempt

log = logging.getLogger("jobyard.executor")

MAX_TRACEBACK = 16_000
PACKAGE = f"{Path(__file__).parents[2]}{os.sep}"
# A job whose kind is unknown here is due again after this long, so that it does not bounce between workers.
UNKNOWN_KIND_SECONDS = 10.0


class WorkflowRuntime(Protocol):
    async def perform(self, attempt: Attempt, handler: Handler, arguments: tuple[Any, ...]) -> Outcome:
        """Run one attempt of a workflow."""


class PythonExecutor:
    def __init__(
        self,
        handlers: HandlerRegistry,
        max_result_bytes: int = MAX_PAYLOAD_BYTES,
        workflows: WorkflowRuntime | None = None,
        threads: HandlerThreadPool | None = None,
    ) -> None:
        self._handlers = handlers
        self._max_result_bytes = max_result_bytes
        self._workflows = workflows
        self._threads = threads or HandlerThreadPool()

    async def perform(self, attempt: Attempt) -> Outcome:
        watch_forks(asyncio.get_running_loop())
        return await run_in_this_process(self._perform(attempt))

    async def _perform(self, attempt: Attempt) -> Outcome:
        lease = attempt.lease
        try:
            handler = self._handlers.get(lease.kind)
        except UnknownKind as error:
            return await snooze_unknown_kind(attempt, error)
        try:
            try:
                arguments = handler.decode(lease.payload)
            except BadInput as error:
                return Failed(message=str(error), type="BadInput", retry=False)
            if handler.is_workflow and self._workflows is not None:
                return await self._workflows.perform(attempt, handler, arguments)
            if handler.is_async:
                value = await handler.call(Context(attempt, handler.transactional), arguments)
            else:
                value = await self._in_thread(handler, attempt, arguments)
            return self._outcome(handler, value)
        except (LeaseLost, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            # sys.exit() or KeyboardInterrupt in a handler ends this attempt only, not the worker and its other jobs.
            attempt.raised = error
            return failed(error, handler, lease.attempt)

    async def _in_thread(self, handler: Handler, attempt: Attempt, arguments: tuple[Any, ...]) -> Any:
        context = BlockingContext(attempt, asyncio.get_running_loop(), handler.transactional)
        return await self._threads.run(functools.partial(handler.call, context, arguments))

    def _outcome(self, handler: Handler, value: Any) -> Outcome:
        try:
            if isinstance(value, OUTCOMES):
                outcome = validated(value, handler, self._max_result_bytes)
                if isinstance(outcome, Done) and outcome != DONE:
                    handler.decode_result(outcome.result)
                return outcome
            data = handler.encode_result(value, self._max_result_bytes)
            return DONE if value is None else Done(data)
        except BadInput as error:
            # Another attempt would return the same value, and the handler's effects have happened.
            return Failed(message=str(error), type=type(error).__name__, retry=False)


DONE = Done()


async def snooze_unknown_kind(attempt: Attempt, error: UnknownKind) -> Outcome:
    """Snooze a job of an unknown kind: another worker may know it, or this one after its next deployment."""
    lease = attempt.lease
    log.warning(
        "%s; job %s goes back to the queue for %g s", str(error).rstrip("."), lease.job_id, UNKNOWN_KIND_SECONDS
    )
    await attempt.report(lines=(LogLine(message=f"returned to the queue by a worker: {error}", level="warning"),))
    return Snooze(UNKNOWN_KIND_SECONDS)


def validated(outcome: Any, handler: Handler, max_bytes: int = MAX_PAYLOAD_BYTES) -> Outcome:
    """Validate an outcome that a handler returned, so that no store receives one it cannot hold."""
    try:
        valid: Outcome = msgspec.convert(msgspec.structs.asdict(outcome), type(outcome))
        if isinstance(valid, Done):
            msgspec.json.decode(valid.result)
        elif isinstance(valid, Snooze | Park) and not 0 <= (valid.seconds or 0) < math.inf:
            raise ValueError(f"{valid.seconds} seconds")
        if isinstance(valid, Park) and not valid.signal:
            raise ValueError("a signal without a name")
        size = len(valid.result if isinstance(valid, Done) else msgspec.json.encode(valid))
        if size > max_bytes:
            raise ValueError(f"it has {size:,} bytes; the limit is {max_bytes:,}")
    except (ValueError, TypeError, RecursionError) as error:
        advice = " Done takes JSON as bytes; return a plain value instead." if isinstance(outcome, Done) else ""
        message = f"{handler.name} returned a {type(outcome).__name__} that is invalid: {text(str(error))}.{advice}"
        return Failed(message=message, type="BadOutcome", retry=False)
    return valid


def describe(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except BaseException:
        return type(error).__name__


def failed(error: BaseException, handler: Handler, attempt: int) -> Failed:
    trace = text("".join(_traceback(error).format()))
    return Failed(
        message=text(describe(error))[:2000],
        type=type(error).__qualname__,
        traceback=trace if len(trace) <= MAX_TRACEBACK else "…" + trace[-MAX_TRACEBACK:],
        retry_after_seconds=handler_delay(handler, attempt),
    )


def _traceback(error: BaseException) -> traceback.TracebackException:
    """The frames of the application; those of jobyard, which called it or was called by it, are left out."""
    found = traceback.TracebackException.from_exception(error)
    waiting: list[traceback.TracebackException | None] = [found]
    while waiting:
        each = waiting.pop()
        if each is None:
            continue
        own = [frame for frame in each.stack if not frame.filename.startswith(PACKAGE)]
        if own:  # else it was raised by jobyard itself
            each.stack = traceback.StackSummary.from_list(own)
        waiting += (each.__cause__, each.__context__, *(each.exceptions or ()))
    return found


def handler_delay(handler: Handler, attempt: int) -> float | None:
    """The delay from the handler's backoff function, or None (the job's backoff) if it has none or that raises."""
    if handler.backoff_function is None:
        return None
    try:
        return max(0.0, float(handler.backoff_function(attempt)))
    except BaseException:
        log.exception("the backoff function of %s failed; the job's backoff applies", handler.name)
        return None
