"""Executor of workflows: one attempt from the journal to an outcome, with the cleanup of a workflow that ends badly."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import msgspec

from jobyard.domain.history import NO_RESULT, signal_scope
from jobyard.domain.job import Ending, LogLine
from jobyard.domain.lease import MAX_DEATHS, Lease
from jobyard.domain.outcome import Cancel, Done, Failed, Outcome, Snooze, TimedOut
from jobyard.domain.state import quarantine_reason
from jobyard.errors import (
    BadInput,
    ChildFailed,
    ExpressionError,
    InvalidWorkflow,
    LeaseLost,
    NonDeterminism,
    NotPossible,
    StepFailed,
)
from jobyard.executors.python.executor import failed, snooze_unknown_kind
from jobyard.executors.python.handlers import OUTCOMES, Handler
from jobyard.executors.python.payload import MAX_PAYLOAD_BYTES
from jobyard.executors.python.thread_pool import HandlerThreadPool
from jobyard.executors.workflow.batching import StoreBatches
from jobyard.executors.workflow.context import ContinueAsNew, WorkflowContext
from jobyard.executors.workflow.journal import Journal, NotAwaited
from jobyard.executors.workflow.records import (
    BATCH_KIND,
    EPOCH_KEY,
    MAX_RESULT_BYTES,
    PART,
    StepError,
    StoredRecord,
    WorkflowRecord,
    entry_of,
    part,
    registered_children,
)
from jobyard.executors.workflow.relay import find_batch
from jobyard.executors.workflow.run import MissingKind, OutOfTime, WorkflowRun
from jobyard.executors.workflow.steps import StepRunner
from jobyard.executors.workflow.undo import carried_names, carry, restore
from jobyard.ports.executor import Attempt
from jobyard.ports.store import Store
from jobyard.ports.workflow_store import Restart

# Another attempt would replay the same records and raise the same error.
FINAL_ERRORS = (StepFailed, ChildFailed, NonDeterminism, NotAwaited, BadInput, ExpressionError, InvalidWorkflow)
CANCELLED, FAILED, TIMED_OUT, QUARANTINED = "cancelled", "failed", "timed out", "quarantined"
MAX_REASON = 2000

log = logging.getLogger("jobyard.workflow")


class WorkflowExecutor:
    def __init__(self, store: Store, threads: HandlerThreadPool, max_result_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self._store = store
        self._threads = threads
        self._max_result_bytes = min(max_result_bytes, MAX_RESULT_BYTES)
        self._batches = StoreBatches(store)

    async def perform(self, attempt: Attempt, handler: Handler, arguments: tuple[Any, ...]) -> Outcome:
        attempt.ends_itself = True
        journal = Journal(attempt.lease, self._store, self._batches)
        await journal.load()
        if _was_ended(journal):
            if not await self._was_settled(journal):
                # The process died after the last part of the end.
                ended = journal.entries[_ended_key(_ended(journal))].record
                return _outcome(msgspec.structs.replace(_endings(journal)[-1].record, error=ended.error))
            if _has_undone(journal):
                # It was retried by hand after its steps were undone: it begins again.
                return await self._restart(journal, attempt.lease.payload)
        if attempt.lease.deaths >= MAX_DEATHS and not _has_begun_to_end(journal):
            if _doomed_key(journal) in journal.entries:
                return _given_up(journal)
            await journal.record(_doomed_key(journal), _quarantine(attempt.lease))
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
        ending: WorkflowRecord | None,
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
        if error is None or isinstance(error, ContinueAsNew):
            try:
                run.journal.require_all_begun()
                if error is None:
                    run.journal.require_all_read()
            except (NonDeterminism, NotAwaited) as fault:
                return await self._fail(run, ctx, handler, fault, FAILED)
        waits = await ctx.children.end_open()
        if waits:
            return await run.suspend(waits)
        if isinstance(error, ContinueAsNew):
            return await self._continue_as_new(run.journal, handler, ctx, error)
        return self._done(handler, value)

    def _done(self, handler: Handler, value: Any) -> Outcome:
        if isinstance(value, OUTCOMES):
            word = type(value).__name__
            message = f"Workflow {handler.name} returned a {word}. Use ctx.sleep or ctx.wait_for, or raise an error."
            return Failed(message=message, type="BadOutcome", retry=False)
        try:
            return Done(handler.encode_result(value, self._max_result_bytes))
        except BadInput as error:
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
        header = entry_of(EPOCH_KEY, WorkflowRecord(epoch=journal.epoch + 1, result=carried))
        await self._batches.checkpoints.write(journal.lease.key, (header,), Restart(payload, taken))
        return Snooze(0)

    # Ending badly

    def _open_ending(self, journal: Journal) -> WorkflowRecord | None:
        """How the workflow is being ended: by a cancel request, or by a failure that an earlier attempt recorded."""
        begun = _endings(journal)
        if len(begun) > _ended(journal):
            return begun[-1].record
        doomed = journal.entries.get(_doomed_key(journal))
        if doomed is not None:
            return doomed.record
        reason = journal.lease.cancel_requested
        return None if reason is None else WorkflowRecord(name=CANCELLED, error=StepError("Cancelled", reason))

    async def _fail(
        self, run: WorkflowRun, ctx: WorkflowContext, handler: Handler, error: BaseException, how: str
    ) -> Outcome:
        if isinstance(error, MissingKind):
            return await snooze_unknown_kind(run.attempt, error.error)
        lease = run.attempt.lease
        fault = run.journal.fault
        run.attempt.raised = fault or error
        if fault is not None:
            return msgspec.structs.replace(failed(fault, handler, lease.attempt), retry=False)
        # The timeout of a file is that of the whole run: another attempt would hold its platform as long again.
        is_final = (
            lease.attempt >= lease.max_attempts
            or (how == FAILED and isinstance(error, FINAL_ERRORS))
            or (how == TIMED_OUT and run.on_failure is not None)
        )
        outcome: Outcome = (
            TimedOut(f"worked longer than {lease.timeout_seconds:g} s", retry=not is_final)
            if how == TIMED_OUT
            else failed(error, handler, lease.attempt)
        )
        if not is_final:
            return outcome
        if isinstance(outcome, Failed):
            outcome = msgspec.structs.replace(outcome, retry=False)
        has_failure_steps = how == TIMED_OUT and run.on_failure is not None
        has_children = any(registered_children(lease.job_id, run.journal.entries))
        if not (ctx.compensations or has_failure_steps or has_children):
            return outcome
        message = outcome.message if isinstance(outcome, Failed | TimedOut) else ""
        kind = outcome.type or "Error" if isinstance(outcome, Failed) else "TimeoutError"
        return await self._end(run, ctx, WorkflowRecord(name=how, error=StepError(kind, message)), outcome)

    async def _end(
        self, run: WorkflowRun, ctx: WorkflowContext, ending: WorkflowRecord, outcome: Outcome | None = None
    ) -> Outcome:
        """End the child jobs, then undo, then end. Each part is stored, and any attempt goes on where it stopped."""
        journal = run.journal
        number = _ended(journal) + 1
        # With its end begun, what has killed the workers since is what this runs first.
        is_deadly = _has_begun_to_end(journal) and run.attempt.lease.deaths >= MAX_DEATHS
        if not _has_begun_to_end(journal):
            await journal.record(f"{PART}end{PART}{number}", ending)
        assert ending.error is not None
        children = list(registered_children(ctx.job_id, journal.entries))
        if run.attempt.lease.kind == BATCH_KIND and not children:
            children = await find_batch(self._store, ctx.job_id)
        waits = await ctx.children.ends.cancel_all(children, f"its parent {ctx.job_id} was {ending.name}")
        if waits:
            return await run.suspend(waits)
        failures: list[str] = []
        if run.on_failure is not None and ending.name in (TIMED_OUT, QUARANTINED):
            try:
                failures += await self._run_failure_steps(run, ending.error.message, is_deadly=is_deadly)
            except MissingKind as missing:
                return await snooze_unknown_kind(run.attempt, missing.error)
        undone = await self._undo(run, ctx, failures, is_deadly=is_deadly)
        if undone is not None:
            return undone
        message = "; ".join([ending.error.message, *failures])[:MAX_REASON]
        error = StepError(ending.error.type, message)
        await journal.record(_ended_key(number), WorkflowRecord(attempt=run.attempt.lease.attempt, error=error))
        if isinstance(outcome, Failed | TimedOut):
            return msgspec.structs.replace(outcome, message=message)
        return _outcome(msgspec.structs.replace(ending, error=error))

    async def _run_failure_steps(self, run: WorkflowRun, reason: str, *, is_deadly: bool) -> list[str]:
        """The `on_failure` steps of a file that has not come to them itself, for as long as a run may work."""
        assert run.on_failure is not None
        run.begin_undo()
        seconds = run.attempt.lease.timeout_seconds
        try:
            failures: list[str] = await run.call(partial(run.on_failure, reason, is_deadly), seconds)
        except OutOfTime:
            return [f"its on_failure steps worked longer than {seconds:g} s"]
        return failures

    async def _was_settled(self, journal: Journal) -> bool:
        """Whether the end that was recorded last has become the job's end. Then it has been retried since."""
        ended = journal.entries[_ended_key(_ended(journal))]
        job = await self._store.get(journal.lease.job_id)
        return job is None or any(
            error.ending is not Ending.LOST and error.attempt == ended.record.attempt and error.at >= ended.at
            for error in job.errors
        )

    async def _undo(
        self, run: WorkflowRun, ctx: WorkflowContext, failures: list[str], *, is_deadly: bool
    ) -> Snooze | None:
        """Run the undo steps that are left, and add those that failed to `failures`."""
        run.begin_undo()
        steps = StepRunner(run, self._threads)
        # By their records: branches may be replayed in another order. Those of an earlier run were recorded before.
        entries = run.journal.entries
        numbers = {each.key: entries[each.key].number for each in ctx.compensations if each.key in entries}
        registered = sorted(ctx.compensations, key=lambda each: numbers.get(each.key, 0))
        for compensation in reversed(registered):
            key = part(compensation.key, "undo")
            record = WorkflowRecord(kind="undo", name=compensation.name)
            if is_deadly and key not in entries:
                is_deadly = False
                died = StepError("", f"{MAX_DEATHS} workers died while running it")
                await run.journal.record(key, msgspec.structs.replace(record, error=died))

            async def undo(key: str = key, record: WorkflowRecord = record, each: Any = compensation) -> None:
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
                what = f"{error.error_type}: {error.message}" if error.error_type else error.message
                failures.append(f"undo step {compensation.name} failed: {what}")
                log.warning("workflow job %s: %s", ctx.job_id, failures[-1])
                await run.attempt.report(lines=(LogLine(message=f"undo failed: {error}", level="error"),))
        return None


def _endings(journal: Journal) -> list[StoredRecord]:
    return [each for key, each in journal.entries.items() if key.startswith(f"{PART}end{PART}")]


def _ended(journal: Journal) -> int:
    return sum(key.startswith(f"{PART}ended{PART}") for key in journal.entries)


def _ended_key(number: int) -> str:
    return f"{PART}ended{PART}{number}"


def _has_begun_to_end(journal: Journal) -> bool:
    """Whether the function was replayed to its end, and its undo steps were about to run."""
    return len(_endings(journal)) > _ended(journal)


def _doomed_key(journal: Journal) -> str:
    """Of the record that the function killed its workers, written before it is replayed only to be undone."""
    return f"{PART}doomed{PART}{_ended(journal) + 1}"


def _quarantine(lease: Lease) -> WorkflowRecord:
    if lease.cancel_requested is not None:
        return WorkflowRecord(name=CANCELLED, error=StepError("Cancelled", lease.cancel_requested))
    return WorkflowRecord(name=QUARANTINED, error=StepError("", quarantine_reason(MAX_DEATHS)))


def _given_up(journal: Journal) -> Outcome:
    """The end without a replay, because that too kills the workers. A retry goes on with the undo steps."""
    doomed = journal.entries[_doomed_key(journal)].record
    assert doomed.error is not None
    owed = [
        each.record.name
        for key, each in journal.entries.items()
        if each.record.kind == "compensate" and part(key, "undo") not in journal.entries
    ]
    header = journal.entries.get(EPOCH_KEY)
    if header is not None and header.record.result != NO_RESULT:
        owed = carried_names(header.record.result) + owed
    if not owed:
        return _outcome(doomed)
    message = (
        f"{doomed.error.message}; undo steps not run: {', '.join(reversed(owed))}. "
        f"To run them, mend the code and retry the job: jobyard jobs retry {journal.lease.job_id}"
    )
    return _outcome(msgspec.structs.replace(doomed, error=StepError(doomed.error.type, message)))


def _was_ended(journal: Journal) -> bool:
    return 0 < len(_endings(journal)) == _ended(journal)


def _outcome(ending: WorkflowRecord) -> Outcome:
    assert ending.error is not None
    match ending.name:
        case "cancelled":
            return Cancel(ending.error.message)
        case "timed out":
            return TimedOut(ending.error.message, retry=False)
    return Failed(message=ending.error.message, type=ending.error.type or None, retry=False)


def _has_undone(journal: Journal) -> bool:
    return any(each.record.kind == "undo" for each in journal.entries.values())
