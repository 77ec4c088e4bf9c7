"""Steps of workflow files: one handler call, in this process, whose result is stored before the run goes on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import LogLine, Progress, Step
from jobyard.domain.lease import Lease
from jobyard.domain.outcome import Done, Failed
from jobyard.domain.retry import Backoff, retry_delay_seconds
from jobyard.domain.workflow_files.definition import StepDefinition
from jobyard.domain.workflow_files.step_state import StepState, completed, failed
from jobyard.errors import BadInput, ExpressionError, LeaseLost, NotPossible, PayloadNotJson, PayloadTooLarge
from jobyard.executors.python.context import BlockingContext, Context
from jobyard.executors.python.declared_task import DeclaredTask
from jobyard.executors.python.executor import describe, handler_delay, validated
from jobyard.executors.python.handlers import OUTCOMES, Handler
from jobyard.executors.python.payload import MAX_PAYLOAD_BYTES, text, to_json
from jobyard.executors.workflow.file_progress import FileProgress
from jobyard.executors.workflow.file_records import FileHistory, error_text
from jobyard.executors.workflow.records import MAX_RESULT_BYTES, StepError, StoredRecord, WorkflowRecord
from jobyard.executors.workflow.run import WorkflowRun, contained_exit
from jobyard.executors.workflow.steps import StepRunner, within
from jobyard.ports.executor import Attempt

MAX_MESSAGE = 2000


class StepFailure(Exception):
    """An attempt failed, with the error as it is recorded."""

    def __init__(self, error: StepError, *, is_final: bool) -> None:
        super().__init__(error.message)
        self.error = error
        self.is_final = is_final


class FileStepOptions(NamedTuple):
    """Attempts, backoff and timeout of a step: those of the file, else those that its handler declares."""

    max_attempts: int
    backoff: Backoff | None  # None: the backoff function of the handler
    timeout_seconds: float | None

    @classmethod
    def of(cls, step: StepDefinition, task: DeclaredTask) -> FileStepOptions:
        own = task.defaults
        has_function = task.handler.backoff_function is not None
        return cls(
            own.max_attempts if step.max_attempts is None else step.max_attempts,
            step.backoff or (None if has_function else own.backoff),
            own.timeout_seconds if step.timeout_seconds is None else step.timeout_seconds,
        )


class FileSteps:
    """Runs the steps of one attempt of a run."""

    def __init__(self, run: WorkflowRun, steps: StepRunner, history: FileHistory, progress: FileProgress) -> None:
        self._run = run
        self._journal = run.journal
        self._threads = steps.threads
        self._history = history
        self._progress = progress

    @property
    def recorded(self) -> int:
        return len(self._journal.entries)

    async def now(self) -> Instant:
        """The store's clock, which also says when a step has ended."""
        with self._run.working():
            return await self._journal.now()

    def ended_item(self, step: StepDefinition, index: int) -> StepState | None:
        """The state of an item that an earlier attempt of the job has recorded."""
        found = self._history.of_item(step, index)
        if found is None:
            return None
        self._progress.item_ended(step.id, index, found.state, is_news=False)
        return found.state

    async def record_items(
        self, step: StepDefinition, count: int, started_at: Instant, error: StepError | None = None
    ) -> StepState:
        """Record that all items have ended, or why the step failed."""
        key = self._history.key(step)
        record = WorkflowRecord(kind="for_each", name=step.kind, count=count, error=error, started_at=started_at)
        await self._journal.record(key if error is None else self._history.failed_key(key), record)
        return completed() if error is None else failed(error_text(error))

    async def perform(
        self,
        step: StepDefinition,
        task: DeclaredTask,
        make_input: Callable[[], dict[str, Any]],
        index: int | None = None,
    ) -> StepState:
        """Run the step, or one of its items, until it has completed or its attempts are used up.

        Between two attempts the slot is kept, because the job holds its platform until it ends.
        """
        state = await self._until_ended(step, task, make_input, index)
        if index is not None:
            self._progress.item_ended(step.id, index, state)
        return state

    async def _until_ended(
        self, step: StepDefinition, task: DeclaredTask, make_input: Callable[[], dict[str, Any]], index: int | None
    ) -> StepState:
        key, options = self._history.key(step, index), FileStepOptions.of(step, task)
        record = WorkflowRecord(kind="step" if index is None else "item", name=step.kind)
        with self._run.working():
            started_at = await self._journal.now()
            failures = await self._await_backoff(key)
            while True:
                try:
                    call = self._call(step, task.handler, make_input, index, failures + 1, options)
                    data = await within(options.timeout_seconds, call)
                except (LeaseLost, asyncio.CancelledError):
                    raise
                except StepFailure as failure:
                    error, is_final = failure.error, failure.is_final
                except Exception as raised:
                    error, is_final = _error(raised), False
                else:
                    ended = msgspec.structs.replace(record, result=msgspec.Raw(data), started_at=started_at)
                    stored = await self._journal.record(key, ended)
                    return completed(msgspec.json.decode(stored.record.result))
                failures += 1
                if is_final or failures >= options.max_attempts:
                    ended = msgspec.structs.replace(record, error=error, started_at=started_at)
                    await self._journal.record(self._history.failed_key(key), ended)
                    return failed(error_text(error))
                await self._back_off(key, failures, error, _delay(options, task.handler, failures))

    async def _await_backoff(self, key: str) -> int:
        """The failed attempts that are recorded, after the wait that follows the last one."""
        failures = self._history.failures(key)
        if failures:
            await self._sleep_after(failures[-1])
        return len(failures)

    async def _back_off(self, key: str, failures: int, error: StepError, seconds: float) -> None:
        tried = WorkflowRecord(error=error, seconds=seconds)
        await self._sleep_after(await self._journal.record(self._history.try_key(key, failures), tried))

    async def _sleep_after(self, tried: StoredRecord) -> None:
        until = tried.at + int((tried.record.seconds or 0.0) * 1000)
        await asyncio.sleep(max(0.0, (until - await self._journal.now()) / 1000))

    async def _call(
        self,
        step: StepDefinition,
        handler: Handler,
        make_input: Callable[[], dict[str, Any]],
        index: int | None,
        number: int,
        options: FileStepOptions,
    ) -> bytes:
        """Call the handler once; its result as JSON."""
        if handler.is_workflow or handler.transactional:
            what = "is a workflow function" if handler.is_workflow else "completes its jobs in transactions of its own"
            message = f"{step.kind} cannot be a step: it {what}. Declare a handler with @yard.job for the step."
            raise StepFailure(StepError("NotPossible", message), is_final=True)
        try:
            payload = to_json(make_input(), f"input of step {step.id}", MAX_PAYLOAD_BYTES)
            arguments = handler.decode(payload)
        except (BadInput, ExpressionError) as error:
            raise StepFailure(_error(error), is_final=True) from error
        lease = msgspec.structs.replace(
            self._run.attempt.lease, kind=step.kind, payload=payload, attempt=number, max_attempts=options.max_attempts
        )
        attempt = StepAttempt(self._run.attempt, lease, step.id, index, self._progress)
        with contained_exit():
            if handler.is_async:
                value = await handler.call(Context(attempt), arguments)
            else:
                context = BlockingContext(attempt, asyncio.get_running_loop())
                value = await self._threads.run(partial(handler.call, context, arguments))
        return _output(step, handler, value)


class StepAttempt(Attempt):
    """The attempt of a job as the handler of one of its steps sees it."""

    def __init__(self, whole: Attempt, lease: Lease, step_id: str, index: int | None, progress: FileProgress) -> None:
        self._whole = whole
        self._lease = lease
        self._step_id = step_id
        self._index = index
        self._progress = progress
        self.ends_itself = False
        self.child_ends = None
        self.raised: BaseException | None = None

    @property
    def lease(self) -> Lease:
        return self._lease

    @property
    def is_stopping(self) -> bool:
        return self._whole.is_stopping

    async def report(
        self, *, progress: Progress | None = None, lines: tuple[LogLine, ...] = (), step: Step | None = None
    ) -> None:
        """Progress is that of the step; log lines and steps of the handler get the name of the step."""
        name = self._step_id if self._index is None else f"{self._step_id}[{self._index}]"
        if progress is not None:
            self._progress.advanced(self._step_id, self._index, progress)
        if lines or step is not None:
            named = tuple(msgspec.structs.replace(line, message=f"{name}: {line.message}") for line in lines)
            below = None if step is None else msgspec.structs.replace(step, name=f"{name}/{step.name}")
            await self._whole.report(lines=named, step=below)

    async def complete(self, result: bytes, transaction: Any) -> None:
        raise NotPossible("Cannot complete a step of a workflow in a transaction. Return its result instead.")


def _output(step: StepDefinition, handler: Handler, value: Any) -> bytes:
    """The output of a step as JSON, from what its handler returned. Raises StepFailure."""
    outcome = validated(value, handler, MAX_RESULT_BYTES) if isinstance(value, OUTCOMES) else None
    match outcome:
        case None:
            try:
                return to_json(value, f"output of step {step.id}", MAX_RESULT_BYTES)
            except (PayloadNotJson, PayloadTooLarge) as error:
                raise StepFailure(_error(error), is_final=True) from error
        case Done(result):
            return result
        case Failed():
            reported = StepError(outcome.type or "Failed", text(outcome.message)[:MAX_MESSAGE])
            raise StepFailure(reported, is_final=not outcome.retry)
    message = f"{step.kind} returned a {type(outcome).__name__}, which a step of a workflow cannot. Return a result."
    raise StepFailure(StepError("BadOutcome", message), is_final=True)


def _error(raised: Exception) -> StepError:
    kind = "" if isinstance(raised, ExpressionError) else type(raised).__qualname__
    return StepError(kind, text(describe(raised))[:MAX_MESSAGE])


def _delay(options: FileStepOptions, handler: Handler, failures: int) -> float:
    if options.backoff is not None:
        return retry_delay_seconds(options.backoff, failures, random.random())
    return handler_delay(handler, failures) or 0.0
