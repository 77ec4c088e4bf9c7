"""Run one attempt of a Python handler and say how it went."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import traceback
from typing import Any

import msgspec

from jobyard.domain.job import LogLine
from jobyard.domain.outcome import Done, Failed, Outcome, Park, Snooze
from jobyard.errors import BadInput, LeaseLost, PayloadNotJson, PayloadTooLarge, UnknownKind
from jobyard.executors.python.context import BlockingContext, Context
from jobyard.executors.python.handlers import OUTCOMES, Handler, HandlerRegistry
from jobyard.executors.python.payload import MAX_PAYLOAD_BYTES, text, to_json
from jobyard.executors.python.thread_pool import HandlerThreadPool
from jobyard.ports.executor import Attempt

log = logging.getLogger("jobyard.executor")

MAX_TRACEBACK = 16_000
# How long a job rests after a worker that does not know its kind handed it back.
UNKNOWN_KIND_SECONDS = 10.0


class Interrupted(BaseException):
    """Raised inside a blocking handler that should stop; not an Exception, so that handlers do not swallow it."""


class PythonExecutor:
    def __init__(self, kinds: HandlerRegistry, max_result_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self._kinds = kinds
        self._max_result_bytes = max_result_bytes
        self._threads = HandlerThreadPool()

    async def perform(self, attempt: Attempt) -> Outcome:
        lease = attempt.lease
        try:
            kind = self._kinds.get(lease.kind)
            arguments = kind.decode(lease.payload)
        except UnknownKind as error:
            return await hand_back(attempt, error)
        except BadInput as error:
            return Failed(message=str(error), type="BadInput", retry=False)
        try:
            if kind.is_async:
                value = await kind.call(Context(attempt, kind.transactional), arguments)
            else:
                value = await self._in_thread(kind, attempt, arguments)
        except LeaseLost:
            raise
        except (Exception, SystemExit) as error:
            # sys.exit() in a handler ends its attempt, not the worker with everybody else's.
            return failed(error, kind, lease.attempt)
        return self._outcome(kind, value)

    async def _in_thread(self, kind: Handler, attempt: Attempt, arguments: tuple[Any, ...]) -> Any:
        context = BlockingContext(attempt, asyncio.get_running_loop(), kind.transactional)
        call = self._threads.start(functools.partial(kind.call, context, arguments))
        try:
            return await asyncio.shield(call.future)
        except asyncio.CancelledError:
            call.interrupt(Interrupted)
            await asyncio.wait([call.future])
            if not call.future.cancelled():
                call.future.exception()
            raise

    def _outcome(self, kind: Handler, value: Any) -> Outcome:
        if value is None:
            return DONE
        if isinstance(value, OUTCOMES):
            return checked(value, kind)
        try:
            return Done(to_json(value, f"result of {kind.name}", self._max_result_bytes))
        except (PayloadNotJson, PayloadTooLarge) as error:
            # Running it again would give the same; what it did is done.
            return Failed(message=str(error), type=type(error).__name__, retry=False)


DONE = Done()


async def hand_back(attempt: Attempt, error: UnknownKind) -> Outcome:
    """Another worker may know this kind, or this one after its next deployment: no attempt is burnt on the question."""
    lease = attempt.lease
    log.warning("%s; job %s is handed back for %g s", str(error).rstrip("."), lease.job_id, UNKNOWN_KIND_SECONDS)
    await attempt.report(lines=(LogLine(message=f"handed back by a worker: {error}", level="warning"),))
    return Snooze(UNKNOWN_KIND_SECONDS)


def checked(outcome: Any, kind: Handler) -> Outcome:
    """An outcome that a handler made by hand; one that no store could take must not get that far."""
    try:
        fit: Outcome = msgspec.convert(msgspec.structs.asdict(outcome), type(outcome))
        if isinstance(fit, Done):
            msgspec.json.decode(fit.result)
        elif isinstance(fit, Snooze | Park) and not 0 <= (fit.seconds or 0) < math.inf:
            raise ValueError(f"{fit.seconds} seconds")
        if isinstance(fit, Park) and not fit.signal:
            raise ValueError("a signal without a name")
        msgspec.json.encode(fit)
    except (ValueError, TypeError, RecursionError) as error:
        hint = " Done takes JSON as bytes; return a plain value instead." if isinstance(outcome, Done) else ""
        message = f"{kind.name} returned a {type(outcome).__name__} that does not fit: {text(str(error))}.{hint}"
        return Failed(message=message, type="BadOutcome", retry=False)
    return fit


def describe(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def failed(error: BaseException, kind: Handler, attempt: int) -> Failed:
    trace = text("".join(traceback.format_exception(error)))
    return Failed(
        message=text(describe(error))[:2000],
        type=type(error).__qualname__,
        traceback=trace if len(trace) <= MAX_TRACEBACK else "…" + trace[-MAX_TRACEBACK:],
        retry_after_seconds=own_backoff(kind, attempt),
    )


def own_backoff(kind: Handler, attempt: int) -> float | None:
    """The handler's own back-off; one that fails itself must not hide the handler's error."""
    if kind.retry_after is None:
        return None
    try:
        return max(0.0, float(kind.retry_after(attempt)))
    except Exception:
        log.exception("the back-off of %s failed; the job's own is used", kind.name)
        return None
