"""The context of a workflow function: durable steps, waits, child jobs and undo steps."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import random as random_module
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import UTC, datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, TypeVarTuple, overload

import msgspec

from jobyard.domain.history import NO_RESULT, Wake, signal_scope
from jobyard.domain.job_options import BackoffLike, Seconds
from jobyard.domain.options import check_integer, check_name, check_positive_seconds, check_seconds
from jobyard.domain.retry import DEFAULT_BACKOFF, as_backoff
from jobyard.errors import BadOption, ChildFailed, SignalTimeout
from jobyard.executors.python.context import BaseContext, Context
from jobyard.executors.python.prepared_job import PreparedJob
from jobyard.executors.workflow.child_ends import ChildResults, result_of
from jobyard.executors.workflow.children import ChildJobs, preparing
from jobyard.executors.workflow.gather import run_side_by_side
from jobyard.executors.workflow.journal import Operation, current_scope
from jobyard.executors.workflow.records import WorkflowRecord, part
from jobyard.executors.workflow.relay import load_history
from jobyard.executors.workflow.run import Wait, WorkflowRun
from jobyard.executors.workflow.steps import DEFAULT_RETRY, StepOptions, StepRunner
from jobyard.executors.workflow.undo import Compensation

if TYPE_CHECKING:
    from jobyard.domain.history import ChildEnd

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class ContinueAsNew(BaseException):
    """Ends the run; the job begins again with these arguments and an empty history."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.arguments = args, kwargs


class WorkflowContext(BaseContext):
    """The context of workflow functions. What its operations return is stored; after a crash the function runs again
    from the top, and finished operations return what is stored."""

    def __init__(self, run: WorkflowRun, steps: StepRunner) -> None:
        super().__init__(run.attempt)
        self._run = run
        self._journal = run.journal
        self._steps = steps
        self.children = ChildJobs(run)
        self._reports = Context(run.attempt)
        self.compensations: list[Compensation] = []

    async def progress(self, percent: float, message: str = "", data: Any = None) -> None:
        """Report progress: a percentage from 0 to 100, a line of text, and any JSON data."""
        await self._reports.progress(percent, message, data)

    async def log(self, message: str, level: str = "info") -> None:
        """Add a line to the job's log. A replay adds it again; log inside a step to add it once."""
        await self._reports.log(message, level)

    # Steps

    @overload
    def step(
        self,
        function: Callable[[*Ts], Coroutine[Any, Any, R]],
        /,
        *args: *Ts,
        retry: int = ...,
        timeout: Seconds | None = ...,
        backoff: BackoffLike | None = ...,
        name: str | None = ...,
        id: str | None = ...,
    ) -> Awaitable[R]: ...
    @overload
    def step(
        self,
        function: Callable[[*Ts], R],
        /,
        *args: *Ts,
        retry: int = ...,
        timeout: Seconds | None = ...,
        backoff: BackoffLike | None = ...,
        name: str | None = ...,
        id: str | None = ...,
    ) -> Awaitable[R]: ...
    def step(
        self,
        function: Callable[[*Ts], Any],
        /,
        *args: *Ts,
        retry: int = DEFAULT_RETRY,
        timeout: Seconds | None = None,
        backoff: BackoffLike | None = None,
        name: str | None = None,
        id: str | None = None,
    ) -> Awaitable[Any]:
        """Run a function once and store its result: `paid = await ctx.step(charge, order, retry=3, timeout=30)`.

        A finished step is not run again after a crash, a retry or a redeploy; a step that was interrupted is. It is
        repeated up to `retry` times with the backoff in between; then StepFailed is raised. A plain function runs in a
        thread. `name` is shown instead of the function's name; `id` identifies the step although the code around it
        changes. Pass keyword arguments with functools.partial.
        """
        options = step_options(retry, timeout, backoff)
        operation = self._journal.operation("step", name or function_name(function), id)
        return self._perform(operation, functools.partial(function, *args) if args else function, options)

    def _perform(self, operation: Operation, function: Callable[[], Any], options: StepOptions) -> Awaitable[Any]:
        return self._steps.perform(operation.key, record_of(operation), function, options)

    def gather(self, *awaitables: Any, at_most: int | None = None) -> Awaitable[list[Any]]:
        """Run steps and branches side by side and return their results in order.

        Takes awaitables, or one iterable of them that is read as there is room: `ctx.gather((ctx.step(scan, url) for
        url in urls), at_most=20)`. A coroutine that itself uses `ctx` is a branch with steps of its own. The first
        failure stops the others.
        """
        if at_most is not None:
            check_integer("at_most", at_most, 1, 1_000_000)
        operation = self._journal.operation("gather", "gather")
        many: Iterable[Any] = awaitables
        if len(awaitables) == 1 and not isinstance(awaitables[0], Awaitable):
            many = awaitables[0]
        return run_side_by_side(self._run, many, at_most, operation)

    # Waiting

    def sleep(
        self, seconds: Seconds = 0, *, minutes: float = 0, hours: float = 0, days: float = 0, hold: bool = False
    ) -> Awaitable[None]:
        """Wait without a worker slot: `await ctx.sleep(days=3)`. With `hold` the slot is kept."""
        total = check_seconds("seconds", seconds) + 60 * minutes + 3600 * hours + 86_400 * days
        total = check_seconds("sleep", total)
        return self._sleep(self._journal.operation("sleep", "sleep"), total, hold=hold)

    async def _sleep(self, operation: Operation, seconds: float, *, hold: bool) -> None:
        self._journal.begin(operation.key)
        stored = operation.stored
        if stored is None:
            await self._run.require_going_on(is_new=True)
            with self._run.working():
                stored = await self._journal.record(operation.key, record_of(operation, seconds=seconds))
        until = stored.at + int((stored.record.seconds or 0.0) * 1000)
        with self._run.working():
            rest = until - await self._journal.now()
        if rest <= 0:
            return
        await self._run.require_going_on()
        if hold:
            with self._run.working():
                await asyncio.sleep(rest / 1000)
            return
        await self._run.block(Wait("its sleep to end", until=until))

    def wait_for(self, name: str, *, timeout: Seconds | None = None) -> Awaitable[Any]:
        """Wait for a signal without a worker slot and return its data; raises SignalTimeout.

        Signals of a name are taken in the order of arrival, also those that came before.
        """
        limit = None if timeout is None else check_positive_seconds("timeout", timeout)
        return self._wait_for(self._journal.operation("wait_for", check_name("name", name)), limit)

    async def _wait_for(self, operation: Operation, timeout: float | None) -> Any:
        self._journal.begin(operation.key)
        name, received = operation.name, part(operation.key, "received")
        stored, resolved = operation.stored, self._journal.entries.get(received)
        if resolved is None:
            if stored is None:
                await self._run.require_going_on(is_new=True)
                with self._run.working():
                    stored = await self._journal.record(operation.key, record_of(operation, seconds=timeout))
            with self._run.working():
                signals = await load_history(self._run.store, self.job_id, signal_scope(name))
                taken = {
                    each.record.name
                    for key, each in self._journal.entries.items()
                    if key.endswith(part("", "received")) and each.record.kind == f"signal {name}"
                }
                # Another branch may be recording that it takes one.
                reserved = self._journal.taken_signals
                signal = next(
                    (each for each in signals if each.key not in taken and (name, each.key) not in reserved), None
                )
                until = None if stored.record.seconds is None else stored.at + int(stored.record.seconds * 1000)
                if signal is not None:
                    reserved.add((name, signal.key))
                    record = WorkflowRecord(kind=f"signal {name}", name=signal.key, result=msgspec.Raw(signal.data))
                    resolved = await self._journal.record(received, record)
                elif until is not None and until <= await self._journal.now():
                    resolved = await self._journal.record(received, WorkflowRecord())
            if resolved is None:
                await self._run.block(Wait(f"signal {name}", Wake(signal_scope(name), len(signals) + 1), until))
        if resolved.record.result == NO_RESULT:
            raise SignalTimeout(f"Signal {name} did not arrive within {stored.record.seconds if stored else 0:g} s.")
        return msgspec.json.decode(resolved.record.result)

    # Child jobs

    def run(self, job: PreparedJob[R], *, id: str | None = None) -> Awaitable[R]:
        """Run a job as a child and return its result: `await ctx.run(scan.options(group="acme").call(url))`.

        The child obeys the limits of its queue, and this workflow holds no slot meanwhile. Raises ChildFailed, with
        the id of the child, when it does not complete.
        """
        if not isinstance(job, PreparedJob):
            raise BadOption(f"Cannot run {job!r} as a child job. Write ctx.run(task.call(…)).")
        return self.children.run_one(self._journal.operation("run", job.new_job.kind, id), job)

    @overload
    def map(
        self,
        call: Callable[[T], PreparedJob[R]],
        items: Iterable[T],
        *,
        at_most: int | None = ...,
        on_error: Literal["raise"] = ...,
        id: str | None = ...,
    ) -> ChildResults[R]: ...
    @overload
    def map(
        self,
        call: Callable[[T], PreparedJob[R]],
        items: Iterable[T],
        *,
        at_most: int | None = ...,
        on_error: Literal["collect"],
        id: str | None = ...,
    ) -> ChildResults[R | ChildFailed]: ...
    def map(
        self,
        call: Callable[[Any], PreparedJob[Any]],
        items: Iterable[Any],
        *,
        at_most: int | None = None,
        on_error: Literal["raise", "collect"] = "raise",
        id: str | None = None,
    ) -> ChildResults[Any]:
        """Run a child job for each item: `await ctx.map(pack.call, order.items, at_most=20)`.

        At most `at_most` of them are unfinished at any time. `await` returns the results in the order of the items;
        `async for` yields each as its job ends, in pages, so that any number of items fits into memory. The first
        failure cancels the rest and raises ChildFailed; with on_error="collect" failures are among the results.
        """
        if at_most is not None:
            check_integer("at_most", at_most, 1, 1_000_000)
        if on_error not in ("raise", "collect"):
            raise BadOption(f'on_error must be "raise" or "collect", not {on_error!r}.', option="on_error")
        make = preparing(call)
        operation = self._journal.operation("map", _call_name(call), id)
        raises = on_error == "raise"
        # The results are decoded by the handler of the first job; a replay that starts no job makes one to know it.
        first: list[PreparedJob[Any]] = []
        # Kept for that, because a generator cannot give it again.
        first_item: list[Any] = []

        def start() -> Awaitable[int]:
            rest = iter(items)
            first_item[:] = islice(rest, 1)
            return self.children.run_many(operation, chain(first_item, rest), prepare, at_most, raises=raises)

        def prepare(item: Any) -> PreparedJob[Any]:
            job = make(item)
            if not first:
                first.append(job)
            return job

        def decode(end: ChildEnd) -> Any:
            if not first:
                prepare(first_item[0])
            try:
                return result_of(end, first[0].handler)
            except ChildFailed as error:
                if raises:
                    raise
                return error

        return ChildResults(start, lambda: self.children.ends.of_map(operation), decode)

    def collect_batch(self, total: int) -> Awaitable[dict[str, int]]:
        """Wait for the jobs of a batch, and count how they ended. For the workflow of batches."""
        return self.children.collect(self._journal.operation("batch", "batch", "batch"), total)

    # Undo

    def compensate(
        self,
        function: Callable[[*Ts], Any],
        /,
        *args: *Ts,
        retry: int = DEFAULT_RETRY,
        timeout: Seconds | None = None,
        backoff: BackoffLike | None = None,
        name: str | None = None,
    ) -> Awaitable[None]:
        """Register an undo step before the action that it undoes: `await ctx.compensate(refund, order.id)`.

        When the workflow fails for good or is cancelled, undo steps run in reverse order, each stored and retried like
        a step. They must bear that the action never happened. One that fails does not stop the others.
        """
        options = step_options(retry, timeout, backoff)
        operation = self._journal.operation("compensate", name or function_name(function))
        undo = functools.partial(function, *args) if args else function
        return self._compensate(Compensation(operation.key, operation.name, undo, options), operation)

    async def _compensate(self, compensation: Compensation, operation: Operation) -> None:
        self._journal.begin(operation.key)
        if operation.stored is None:
            await self._run.require_going_on(is_new=True)
            with self._run.working():
                await self._journal.record(operation.key, record_of(operation))
        self.compensations.append(compensation)

    def continue_as_new(self, *args: Any, **kwargs: Any) -> NoReturn:
        """End this run and begin again with these arguments and an empty history: for endless workflows.

        Signals that were not received and undo steps stay; child jobs must have ended. Undo steps must be functions of
        a module, because the next run finds them by their names.
        """
        raise ContinueAsNew(args, kwargs)

    # The same in every replay

    def version(self, name: str, number: int) -> Awaitable[int]:
        """The version of a change: `if await ctx.version("ask twice", 2) >= 2: …`.

        A run that began before the change gets 1, a new one gets `number`; the answer is stored.
        """
        check_integer("number", number, 1, 1_000_000)
        scope = current_scope.get(None)
        is_old = scope is not None and self._journal.has_unread(scope.path)
        operation = self._journal.operation("version", check_name("name", name), f"version {name}")
        return self._value(operation, 1 if is_old else number)

    async def _value(self, operation: Operation, value: Any) -> Any:
        self._journal.begin(operation.key)
        stored = operation.stored
        if stored is None:
            await self._run.require_going_on()
            record = record_of(operation, result=msgspec.Raw(msgspec.json.encode(value)))
            with self._run.working():
                stored = await self._journal.record(operation.key, record)
        return msgspec.json.decode(stored.record.result)

    def now(self) -> Awaitable[datetime]:
        """The time by the store's clock, recorded: the same in every replay."""
        return self._now(self._journal.operation("now", "now"))

    async def _now(self, operation: Operation) -> datetime:
        self._journal.begin(operation.key)
        stored = operation.stored
        if stored is None:
            await self._run.require_going_on(is_new=True)
            with self._run.working():
                stored = await self._journal.record(operation.key, record_of(operation))
        return datetime.fromtimestamp(stored.at / 1000, tz=UTC)

    def random(self) -> random_module.Random:
        """A random generator that yields the same numbers in every replay."""
        return random_module.Random(self._seed("random"))

    def uuid(self) -> str:
        """An id that is the same in every replay."""
        return str(uuid.UUID(bytes=self._seed("uuid")[:16], version=4))

    def _seed(self, name: str) -> bytes:
        scope = current_scope.get()
        scope.names[f"\x1f{name}"] += 1
        text = f"{self.job_id}/{self._journal.epoch}/{scope.path}{name}#{scope.names[f'{chr(31)}{name}']}"
        return hashlib.sha256(text.encode()).digest()


def step_options(retry: int, timeout: Seconds | None, backoff: BackoffLike | None) -> StepOptions:
    check_integer("retry", retry, 0, 1_000_000)
    seconds = None if timeout is None else check_positive_seconds("timeout", timeout)
    return StepOptions(retry, seconds, DEFAULT_BACKOFF if backoff is None else as_backoff(backoff))


def function_name(function: Callable[..., Any]) -> str:
    """
    >>> function_name(functools.partial(print, 1))
    'print'
    """
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _call_name(call: Any) -> str:
    handler = getattr(call, "handler", None) or getattr(getattr(call, "__self__", None), "handler", None)
    return handler.name if handler is not None else function_name(call)


def record_of(operation: Operation, **more: Any) -> WorkflowRecord:
    return WorkflowRecord(kind=operation.kind, name=operation.name, position=operation.position, **more)


def parts_of(ctx: WorkflowContext) -> tuple[WorkflowRun, StepRunner]:
    """What workflow files need of a context. Internal."""
    return ctx._run, ctx._steps
