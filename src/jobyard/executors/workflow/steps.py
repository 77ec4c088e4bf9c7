"""Steps: a function whose result is stored before the workflow goes on."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

import msgspec

from jobyard.domain.retry import DEFAULT_BACKOFF, Backoff, retry_delay_seconds
from jobyard.errors import LeaseLost, PayloadNotJson, PayloadTooLarge, StepFailed
from jobyard.executors.python.handlers import result_decoder
from jobyard.executors.python.payload import text, to_json
from jobyard.executors.python.thread_pool import HandlerThreadPool
from jobyard.executors.workflow.records import MAX_RESULT_BYTES, StepError, StoredRecord, WorkflowRecord, part
from jobyard.executors.workflow.run import Wait, WorkflowRun, contained_exit

T = TypeVar("T")

DEFAULT_RETRY = 2
# A longer backoff frees the slot.
MAX_SLEEP_SECONDS = 1.0


class StepOptions(NamedTuple):
    retry: int = DEFAULT_RETRY  # repeats after the first attempt
    timeout_seconds: float | None = None
    backoff: Backoff = DEFAULT_BACKOFF


class StepRunner:
    """Runs steps of one attempt, plain functions in threads."""

    def __init__(self, run: WorkflowRun, threads: HandlerThreadPool) -> None:
        self._run = run
        self._journal = run.journal
        self.threads = threads

    async def perform(self, key: str, record: WorkflowRecord, function: Callable[[], Any], options: StepOptions) -> Any:
        """The result of the step as the store has it: from an earlier attempt, or from running it now.

        `record` has the kind, name and position. Raises StepFailed when its attempts are used up.
        """
        self._journal.begin(key)
        decode = _decoder(_unwrapped(function))  # before it runs: a result that cannot be stored is an error
        stored = self._journal.entries.get(key)
        if stored is None:
            await self._run.require_going_on(is_new=not is_undo(record))
            stored = await self._run_until_recorded(key, record, function, options)
        error = stored.record.error
        if error is not None:
            raise StepFailed.of(record.name, error.type, error.message)
        return decode(bytes(stored.record.result))

    async def _run_until_recorded(
        self, key: str, record: WorkflowRecord, function: Callable[[], Any], options: StepOptions
    ) -> StoredRecord:
        failures = await self._await_backoff(key)
        while True:
            started_at = int(time.time() * 1000)
            with self._run.working():
                try:
                    result = await self._call(function, options.timeout_seconds)
                    data = to_json(result, f"result of step {record.name}", MAX_RESULT_BYTES)
                except (LeaseLost, asyncio.CancelledError):
                    raise
                except Exception as raised:
                    error = StepError(type(raised).__qualname__, text(str(raised))[:2000])
                    is_final = isinstance(raised, PayloadTooLarge | PayloadNotJson)
                else:
                    kind, name, position = record.kind, record.name, record.position
                    result = msgspec.Raw(data)
                    ended = WorkflowRecord(
                        kind=kind, name=name, position=position, result=result, started_at=started_at
                    )
                    return await self._journal.record(key, ended)
                failures += 1
                if failures > options.retry or is_final:
                    failed = msgspec.structs.replace(record, error=error, started_at=started_at)
                    return await self._journal.record(key, failed)
            await self._back_off(key, failures, error, options.backoff)

    async def _await_backoff(self, key: str) -> int:
        """The failures that earlier attempts recorded, after the backoff of the last one."""
        failures = 0
        while (tried := self._journal.entries.get(part(key, f"try{failures + 1}"))) is not None:
            failures += 1
            last = tried
        if failures:
            until = last.at + int((last.record.seconds or 0.0) * 1000)
            with self._run.working():
                now = await self._journal.now()
            if until > now:
                await self._run.block(Wait(f"retry of {key}", until=until))
        return failures

    async def _back_off(self, key: str, failures: int, error: StepError, backoff: Backoff) -> None:
        seconds = retry_delay_seconds(backoff, failures, random.random())
        with self._run.working():
            if seconds < MAX_SLEEP_SECONDS:
                await asyncio.sleep(seconds)
                return
            tried = await self._journal.record(
                part(key, f"try{failures}"), WorkflowRecord(error=error, seconds=seconds)
            )
        await self._run.block(Wait(f"retry of {key}", until=tried.at + int(seconds * 1000)))

    async def _call(self, function: Callable[[], Any], timeout_seconds: float | None) -> Any:
        return await within(timeout_seconds, self._run_function(function))

    async def _run_function(self, function: Callable[[], Any]) -> Any:
        with contained_exit():
            if _is_async(_unwrapped(function)):
                return await function()
            value = await self.threads.run(function)
            return await value if inspect.isawaitable(value) else value


async def within(seconds: float | None, running: Coroutine[Any, Any, T]) -> T:
    """The result of an attempt. Raises TimeoutError, which says so, after the timeout."""
    if seconds is None:
        return await running
    try:
        async with asyncio.timeout(seconds) as limit:
            return await running
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(f"ran longer than {seconds:g} s") from error
        raise


def is_undo(record: WorkflowRecord) -> bool:
    return record.kind == "undo"


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


@functools.lru_cache(maxsize=1000)
def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function)


@functools.lru_cache(maxsize=1000)
def _decoder(function: Callable[..., Any]) -> Callable[[bytes], Any]:
    return result_decoder(function)
