"""The context that a handler receives: the job's identity, progress, log, steps and completion."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec

from jobyard.domain.job import LogLine, Progress, Step
from jobyard.errors import BadOption, NotPossible
from jobyard.executors.python.caller_transaction import driver_connection
from jobyard.executors.python.payload import MAX_PAYLOAD_BYTES, text, to_json
from jobyard.ports.executor import Attempt

MAX_REPORT_BYTES = 64 << 10
LEVELS = ("debug", "info", "warning", "error")


class BaseContext:
    """Attributes that both contexts share."""

    def __init__(self, attempt: Attempt, transactional: bool = False) -> None:
        self._attempt = attempt
        self._transactional = transactional
        self._lease = attempt.lease

    @property
    def job_id(self) -> str:
        """The id of the job; the same in every attempt."""
        return self._lease.job_id

    @property
    def kind(self) -> str:
        """The kind of the job: the name of its handler."""
        return self._lease.kind

    @property
    def queue(self) -> str:
        """The queue of the job."""
        return self._lease.queue

    @property
    def group(self) -> str | None:
        """The group of the job, or None."""
        return self._lease.group

    @property
    def attempt(self) -> int:
        """The number of this attempt: 1 for the first."""
        return self._lease.attempt

    @property
    def max_attempts(self) -> int:
        """How many times the job is attempted in all."""
        return self._lease.max_attempts

    @property
    def cancelled(self) -> bool:
        """Whether the attempt should end: cancelled, timed out, lease lost, or the worker is stopping."""
        return self._attempt.is_stopping

    @property
    def signalled(self) -> bool:
        """Whether a signal woke this job from its Park; False in the first run and after the park's deadline."""
        return self._attempt.lease.signal is not None

    @property
    def signal(self) -> Any:
        """The data of the signal that woke a parked job; None also for a signal without data, see `signalled`."""
        data = self._attempt.lease.signal
        return None if data is None else msgspec.json.decode(data)

    @property
    def private(self) -> Any:
        """The private payload, or None."""
        data = self._attempt.lease.private_payload
        return None if data is None else msgspec.json.decode(data)

    def _require_transactional(self) -> None:
        if not self._transactional:
            raise NotPossible(
                f"Cannot complete {self.kind} in a transaction. Declare it with @yard.job(transactional=True)."
            )


class Context(BaseContext):
    """The context of async handlers."""

    async def progress(self, percent: float, message: str = "", data: Any = None) -> None:
        """Report progress: a percentage from 0 to 100, a line of text, and any JSON data."""
        await self._attempt.report(progress=validated_progress(percent, message, data))

    async def log(self, message: str, level: str = "info") -> None:
        """Add a line to the job's log."""
        await self._attempt.report(lines=(validated_line(message, level),))

    async def complete(self, result: Any = None, *, transaction: Any) -> None:
        """Complete the job inside your own database transaction, so that both are committed or neither is.

        Call it last, then commit; the handler's return value is ignored.
        """
        self._require_transactional()
        transaction = driver_connection(transaction)
        data = to_json(result, f"result of {self.kind}", MAX_PAYLOAD_BYTES)
        await self._attempt.complete(data, transaction)

    @asynccontextmanager
    async def step(self, name: str, data: Any = None) -> AsyncIterator[None]:
        """Record a named step: running, then passed, or failed if the block raises."""
        name = text(name)
        data = as_json_data(data, f"data of step {name}")
        await self._attempt.report(step=self._step(name, "running", data))
        try:
            yield
        except BaseException:
            if not self.cancelled:
                await self._attempt.report(step=self._step(name, "failed", data))
            raise
        await self._attempt.report(step=self._step(name, "passed", data))

    def _step(self, name: str, status: str, data: Any) -> Step:
        return Step(name=name, status=status, attempt=self.attempt, data=data)


class BlockingContext(BaseContext):
    """The context of handlers that are plain functions: the same methods, without await."""

    def __init__(self, attempt: Attempt, loop: asyncio.AbstractEventLoop, transactional: bool = False) -> None:
        super().__init__(attempt, transactional)
        self._context = Context(attempt, transactional)
        self._loop = loop

    def progress(self, percent: float, message: str = "", data: Any = None) -> None:
        """Report progress: a percentage from 0 to 100, a line of text, and any JSON data."""
        asyncio.run_coroutine_threadsafe(self._context.progress(percent, message, data), self._loop).result()

    def log(self, message: str, level: str = "info") -> None:
        """Add a line to the job's log."""
        asyncio.run_coroutine_threadsafe(self._context.log(message, level), self._loop).result()

    def complete(self, result: Any = None, *, transaction: Any) -> None:
        """Complete the job inside your own database transaction; call it last, then commit."""
        transaction = driver_connection(transaction)  # in the handler's thread
        asyncio.run_coroutine_threadsafe(self._context.complete(result, transaction=transaction), self._loop).result()

    @contextmanager
    def step(self, name: str, data: Any = None) -> Iterator[None]:
        """Record a named step: running, then passed, or failed if the block raises."""
        step = self._context.step(name, data)
        asyncio.run_coroutine_threadsafe(step.__aenter__(), self._loop).result()
        try:
            yield
        except BaseException as error:
            exiting = step.__aexit__(type(error), error, error.__traceback__)
            asyncio.run_coroutine_threadsafe(_without_reraising(exiting, error), self._loop).result()
            raise
        asyncio.run_coroutine_threadsafe(step.__aexit__(None, None, None), self._loop).result()


async def _without_reraising(exiting: Any, error: BaseException) -> None:
    try:
        await exiting
    except BaseException as raised:
        if raised is not error:
            raise


def validated_progress(percent: float, message: str, data: Any) -> Progress:
    if not (isinstance(percent, int | float) and 0 <= percent <= 100):
        raise BadOption(f"Cannot report progress {percent!r}: pass a percentage from 0 to 100.", option="percent")
    return Progress(percent=percent, message=text(message)[:1000], data=as_json_data(data, "progress data"))


def validated_line(message: str, level: str) -> LogLine:
    if level not in LEVELS:
        raise BadOption(f"Cannot log at level {level!r}: use one of {', '.join(LEVELS)}.", option="level")
    return LogLine(message=text(message)[:10_000], level=level)


def as_json_data(data: Any, what: str) -> Any:
    """A copy of the data as JSON decodes it: the same in every store, and safe from later changes by the handler."""
    return None if data is None else msgspec.json.decode(to_json(data, what, MAX_REPORT_BYTES))
