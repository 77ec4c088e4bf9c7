"""Executor of workflows: one attempt from the journal to an outcome, with the cleanup of a workflow that ends badly."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec

from jobyard.domain.history import NO_RESULT, signal_scope
from jobyard.domain.job import Ending, LogLine
from jobyard.domain.outcome import Cancel, Done, Failed, Outcome, Snooze, TimedOut
from jobyard.errors import (
    BadInput,
    ChildFailed,
    ExpressionError,
    InvalidWorkflow,
    LeaseLost,
    NonDeterminism,
    NotPossible,
    PayloadNotJson,
    PayloadTooLarge,
    StepFailed,
)
from jobyard.executors.python.executor import failed, snooze_unknown_kind
from jobyard.executors.python.handlers import OUTCOMES, Handler
from jobyard.executors.python.payload import MAX_PAYLOAD_BYTES, to_json
from jobyard.executors.python.thread_pool import HandlerThreadPool
from jobyard.executors.workflow.batching import StoreBatches
from jobyard.executors.workflow.context import ContinueAsNew, WorkflowContext
from jobyard.executors.workflow.journal import Journal
from jobyard.executors.workflow.records import (
    BATCH_KIND,
    EPOCH_KEY,
    PART,
    Record,
    StepError,
    StoredRecord,
    entry_of,
    part,
    registered_children,
)
from jobyard.executors.workflow.relay import find_batch
from jobyard.executors.workflow.run import OutOfTime, UnknownHere, WorkflowRun
from jobyard.executors.workflow.steps import StepRunner
from jobyard.executors.workflow.undo import carry, restore
from jobyard.ports.executor import Attempt
from jobyard.ports.store import Store
from jobyard.ports.workflow_store import Restart

# Another attempt would replay the same records and raise the same error.
FINAL_ERRORS = (StepFailed, ChildFailed, NonDeterminism, BadInput, ExpressionError, InvalidWorkflow)
CANCELLED, FAILED, TIMED_OUT = "cancelled", "failed", "timed out"


class WorkflowExecutor:
    def __init__(self, store: Store, threads: HandlerThreadPool, max_result_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self._store = store
        self._threads = threads
        self._max_result_bytes = max_result_bytes
        self._batches = StoreBatches(store)

    async def perform(self, attempt: Attempt, handler: Handler, arguments: tuple[Any, ...]) -> Outcome:
        attempt.ends_itself = True
        journal = Journal(attempt.lease, self._store, self._batches)
        await journal.load()
        if _was_ended(journal):
            if not await self._was_settled(journal):
                # The process died after the last part of the end.
                return _outcome(_endings(journal)[-1].record)
            if _has_undone(journal):
                # It was retried by hand after its steps were undone: it begins again.
                return await self._restart(journal, attempt.lease.payload)
        run = WorkflowRun(attempt, self._store, journal)
        ctx = WorkflowContext(run, StepRunner(run, self._threads))
        header = journal.entries.get(EPOCH_KEY)
        if header is not None and header.record.result != NO_RESULT:
            ctx.compensations += restore(header.record.result)
        ending = self._open_ending(journal)
        run.is_ending = ending is not None
        value: Any = None
        error: BaseException | None = None
        try:
            value = await run.call(partial(handler.call, ctx, arguments), run.remaining_seconds())
        except BaseException as raised:
            error = raised
        # First what the code of the workflow cannot decide: it may have caught the exception that says so.
        if journal.is_lost or isinstance(error, LeaseLost):
            raise LeaseLost(f"Cannot continue job {attempt.lease.job_id}: its lease was lost.")
        if run.is_stopped or (isinstance(error, asyncio.CancelledError) and not run.is_suspended):
            raise error or asyncio.CancelledError
        if journal.fault is not None:
            return await self._fail(run, ctx, handler, journal.fault, FAILED)
        if run.is_suspended:
            return await run.suspend() if ending is None else await self._end(run, ctx, ending)
        return await self._finish(run, ctx, handler, ending, value, error)

    async def _finish(
        self,
        run: WorkflowRun,
        ctx: WorkflowContext,
        handler: Handler,
        ending: Record | None,
        value: Any,
        error: BaseException | None,
    ) -> Outcome:
        """The function has returned or raised."""
        if isinstance(error, OutOfTime):
            return await self._fail(run, ctx, handler, error, TIMED_OUT)
        if error is not None and not isinstance(error, ContinueAsNew):
            if ending is not None:
                return await self._end(run, ctx, ending)
            return await self._fail(run, ctx, handler, error, FAILED)
        if ending is not None and len(_endings(run.journal)) > _ended(run.journal):
            return await self._end(run, ctx, ending)  # an earlier attempt has begun to end it
        if error is None:
            try:
                run.journal.require_all_read()
            except NonDeterminism as fault:
                return await self._fail(run, ctx, handler, fault, FAILED)
        waits = await ctx.children.end_open()
        if waits:
            return await run.suspend(waits)
        if isinstance(error, ContinueAsNew):
            return await self._continue_as_new(run.journal, handler, ctx, error)
        return self._done(handler, value)

    def _done(self, handler: Handler, value: Any) -> Outcome:
        if value is None:
            return Done()
        if isinstance(value, OUTCOMES):
            word = type(value).__name__
            message = f"Workflow {handler.name} returned a {word}. Use ctx.sleep or ctx.wait_for, or raise an error."
            return Failed(message=message, type="BadOutcome", retry=False)
        try:
            return Done(to_json(value, f"result of {handler.name}", self._max_result_bytes))
        except (PayloadNotJson, PayloadTooLarge) as error:
            return Failed(message=str(error), type=type(error).__name__, retry=False)

    # Beginning again

    async def _continue_as_new(
        self, journal: Journal, handler: Handler, ctx: WorkflowContext, new: ContinueAsNew
    ) -> Outcome:
        args, kwargs = new.arguments
        try:
            payload = handler.encode(handler.bind(args, kwargs))
            carried = carry(ctx.compensations) if ctx.compensations else NO_RESULT
        except (BadInput, NotPossible) as error:
            return Failed(message=str(error), type=type(error).__name__, retry=False)
        return await self._restart(journal, payload, carried)

    async def _restart(self, journal: Journal, payload: bytes, carried: msgspec.Raw = NO_RESULT) -> Outcome:
        taken = tuple(
            (signal_scope(each.record.kind.removeprefix("signal ")), each.record.name)
            for key, each in journal.entries.items()
            if key.endswith(part("", "received")) and each.record.result != NO_RESULT
        )
        header = entry_of(EPOCH_KEY, Record(epoch=journal.epoch + 1, result=carried))
        await self._batches.checkpoints.write(journal.lease.key, (header,), Restart(payload, taken))
        return Snooze(0)

    # Ending badly

    def _open_ending(self, journal: Journal) -> Record | None:
        """How the workflow is being ended: by a cancel request, or by a failure that an earlier attempt recorded."""
        begun = _endings(journal)
        if len(begun) > _ended(journal):
            return begun[-1].record
        reason = journal.lease.cancel_requested
        return None if reason is None else Record(name=CANCELLED, error=StepError("Cancelled", reason))

    async def _fail(
        self, run: WorkflowRun, ctx: WorkflowContext, handler: Handler, error: BaseException, how: str
    ) -> Outcome:
        if isinstance(error, UnknownHere):
            return await snooze_unknown_kind(run.attempt, error.error)
        lease = run.attempt.lease
        fault = run.journal.fault
        run.attempt.raised = fault or error
        if fault is not None:
            return msgspec.structs.replace(failed(fault, handler, lease.attempt), retry=False)
        is_final = lease.attempt >= lease.max_attempts or (how == FAILED and isinstance(error, FINAL_ERRORS))
        outcome: Outcome = (
            TimedOut(f"worked longer than {lease.timeout_seconds:g} s")
            if how == TIMED_OUT
            else failed(error, handler, lease.attempt)
        )
        if not is_final:
            return outcome
        if isinstance(outcome, Failed):
            outcome = msgspec.structs.replace(outcome, retry=False)
        if not ctx.compensations and not any(registered_children(lease.job_id, run.journal.entries)):
            return outcome
        message = outcome.message if isinstance(outcome, Failed | TimedOut) else ""
        kind = outcome.type or "Error" if isinstance(outcome, Failed) else "TimeoutError"
        return await self._end(run, ctx, Record(name=how, error=StepError(kind, message)), outcome)

    async def _end(
        self, run: WorkflowRun, ctx: WorkflowContext, ending: Record, outcome: Outcome | None = None
    ) -> Outcome:
        """End the child jobs, then undo, then end. Each part is stored, and any attempt goes on where it stopped."""
        journal = run.journal
        number = _ended(journal) + 1
        if f"{PART}end{PART}{number}" not in journal.entries:
            await journal.record(f"{PART}end{PART}{number}", ending)
        assert ending.error is not None
        children = list(registered_children(ctx.job_id, journal.entries))
        if run.attempt.lease.kind == BATCH_KIND and not children:
            children = await find_batch(self._store, ctx.job_id)
        waits = await ctx.children.end_all(children, f"its parent {ctx.job_id} was {ending.name}")
        if waits:
            return await run.suspend(waits)
        undone = await self._undo(run, ctx)
        if isinstance(undone, Snooze):
            return undone
        await journal.record(f"{PART}ended{PART}{number}", Record(attempt=run.attempt.lease.attempt))
        return outcome or _outcome(ending)

    async def _was_settled(self, journal: Journal) -> bool:
        """Whether the end that was recorded last has become the job's end. Then it has been retried since."""
        ended = journal.entries[f"{PART}ended{PART}{_ended(journal)}"]
        job = await self._store.get(journal.lease.job_id)
        return job is None or any(
            error.ending is not Ending.LOST and error.attempt == ended.record.attempt and error.at >= ended.at
            for error in job.errors
        )

    async def _undo(self, run: WorkflowRun, ctx: WorkflowContext) -> Snooze | None:
        run.begin_undo()
        steps = StepRunner(run, self._threads)
        # By their records: branches may be replayed in another order. Those of an earlier run were recorded before.
        entries = run.journal.entries
        numbers = {each.key: entries[each.key].number for each in ctx.compensations if each.key in entries}
        registered = sorted(ctx.compensations, key=lambda each: numbers.get(each.key, 0))
        for compensation in reversed(registered):
            key = part(compensation.key, "undo")
            record = Record(kind="undo", name=compensation.name)

            async def undo(key: str = key, record: Record = record, each: Any = compensation) -> None:
                await steps.perform(key, record, each.function, each.options)

            try:
                await run.call(undo, None)
            except asyncio.CancelledError:
                if run.is_suspended:
                    outcome = await run.suspend()
                    assert isinstance(outcome, Snooze)
                    return outcome
                raise
            except StepFailed as error:
                await run.attempt.report(lines=(LogLine(message=f"undo failed: {error}", level="error"),))
        return None


def _endings(journal: Journal) -> list[StoredRecord]:
    return [each for key, each in journal.entries.items() if key.startswith(f"{PART}end{PART}")]


def _ended(journal: Journal) -> int:
    return sum(key.startswith(f"{PART}ended{PART}") for key in journal.entries)


def _was_ended(journal: Journal) -> bool:
    return 0 < len(_endings(journal)) == _ended(journal)


def _outcome(ending: Record) -> Outcome:
    assert ending.error is not None
    match ending.name:
        case "cancelled":
            return Cancel(ending.error.message)
        case "timed out":
            return TimedOut(ending.error.message)
    return Failed(message=ending.error.message, type=ending.error.type, retry=False)


def _has_undone(journal: Journal) -> bool:
    return any(each.record.kind == "undo" for each in journal.entries.values())
