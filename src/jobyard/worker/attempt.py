"""One attempt of a job: start → perform → judge → settle."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jobyard.domain.job import LogLine, Progress, Step
from jobyard.domain.lease import Lease, LeaseKey
from jobyard.domain.outcome import Cancel, Done, Failed, Outcome, Release, TimedOut
from jobyard.domain.state import Settlement, Transition, judge
from jobyard.errors import LeaseLost, NotPossible, StoreError
from jobyard.observability.current import current_lease
from jobyard.operations.store_backoff import StoreBackoff
from jobyard.ports.executor import ChildEnds, Executor
from jobyard.ports.job_store import JobStore, Report
from jobyard.ports.observer import Emit

# A handler that ignores its cancellation for this long is abandoned; without it, it would keep its slot forever.
STOP_GRACE_SECONDS = 10.0
# While the worker stops, the shutdown grace has already passed.
RELEASE_GRACE_SECONDS = 1.0
# Log lines that are kept through an outage, the last ones; all of a chatty handler's would fill the memory.
MAX_UNSENT_LINES = 100
NOT_COMMITTED = Failed(
    message="ctx.complete() was called, but the transaction it was given was not committed", type="NotCommitted"
)


class AttemptRuntime(NamedTuple):
    worker_id: str
    store: JobStore
    executor: Executor
    finished: Callable[[JobAttempt, Transition | None], None]  # None: nothing to settle, the lease is lost
    reported: Callable[[Lease, Progress], None]
    emit: Emit
    child_ends: ChildEnds | None = None


class JobAttempt:
    """A running attempt; implements the executor port's Attempt."""

    __slots__ = (
        "_deadline",
        "_has_begun",
        "_is_settled",
        "_runtime",
        "_unsent",
        "_verdict",
        "awaits_commit",
        "child_ends",
        "ends_itself",
        "is_lost",
        "is_stopping",
        "key",
        "lease",
        "raised",
        "started",
        "task",
    )

    def __init__(self, runtime: AttemptRuntime, lease: Lease, loop: asyncio.AbstractEventLoop) -> None:
        self.lease = lease
        self.key = lease.key
        self.is_stopping = False
        self.is_lost = False
        self.awaits_commit = False  # completed in the handler's own transaction, if that commits
        self.ends_itself = False
        self.child_ends = runtime.child_ends
        self.raised: BaseException | None = None
        self.started = time.monotonic()
        self._runtime = runtime
        self._verdict: Outcome | None = None  # decided from outside; overrides the handler's outcome
        self._unsent: Report | None = None  # progress and log lines that the store was not there to take
        self._is_settled = False
        self._has_begun = False
        self._deadline: asyncio.TimerHandle | None = None
        if lease.timeout_seconds is not None and not lease.is_workflow:  # the executor counts a workflow's own time
            self._deadline = loop.call_later(lease.timeout_seconds, self._time_out)
        # With a name given, asyncio does not have to make one up: this runs once per job.
        self.task = loop.create_task(self._run(), name="jobyard-job")

    async def _run(self) -> None:
        self._has_begun = True
        current_lease.set(self.lease)  # in the context of this task only
        try:
            outcome = await self._runtime.executor.perform(self)
        except BaseException as error:
            self._settle(self._outcome_of(error))
            if not isinstance(error, Exception | asyncio.CancelledError):
                raise
            return
        if self.awaits_commit and not isinstance(outcome, Failed):
            # The store refuses this settlement if the transaction was committed, because the job has ended then.
            outcome = NOT_COMMITTED
        self._settle(self._verdict or outcome)

    def _outcome_of(self, error: BaseException) -> Outcome:
        if isinstance(error, asyncio.CancelledError):
            # Without a verdict the handler cancelled itself.
            return self._verdict or Failed(message="the handler cancelled itself", type="CancelledError")
        if isinstance(error, LeaseLost):
            self.is_lost = True
            return Release()
        self.raised = error
        return Failed(message=f"the executor failed: {error!r}", type=type(error).__qualname__)

    def _settle(self, outcome: Outcome) -> None:
        if self._is_settled:
            return
        self._is_settled = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._runtime.finished(self, None if self.is_lost else self._judge(outcome))

    def _judge(self, outcome: Outcome) -> Transition:
        try:
            return judge(self.lease, outcome, random.random(), self._runtime.worker_id)
        except Exception as error:
            # An invalid outcome must not keep the slot and the lease forever.
            invalid = Failed(message=f"the executor returned {outcome!a}: {error!a}", type="BadOutcome", retry=False)
            return judge(self.lease, invalid, worker=self._runtime.worker_id)

    # Ending it from outside

    def _time_out(self) -> None:
        self.stop(TimedOut(f"ran longer than {self.lease.timeout_seconds:g} s"))

    def cancel(self, reason: str) -> None:
        # A workflow ends its child jobs and undoes its steps in its next attempt, unless it is doing that already.
        is_first = self.ends_itself and self.lease.cancel_requested is None
        self.stop(Release() if is_first else Cancel(reason))

    def lose(self) -> None:
        """Stop without settling: the lease is lost."""
        self.is_lost = True
        self.stop(Release())

    def release(self) -> None:
        """Hand the job back because the worker stops. A thread that cannot be stopped ends with the process."""
        self.stop(Release(), RELEASE_GRACE_SECONDS)

    def stop(self, verdict: Outcome, grace_seconds: float | None = None) -> None:
        if self.is_stopping or self._is_settled:
            return
        self.is_stopping = True
        self._verdict = verdict
        self.task.cancel()
        if not self._has_begun:
            # A task that is cancelled before its first step never runs, so it cannot settle itself.
            self._settle(verdict)
            return
        if self._deadline is not None:
            self._deadline.cancel()
        grace = STOP_GRACE_SECONDS if grace_seconds is None else grace_seconds
        # Settled then, although the handler ignores its cancellation.
        self._deadline = self.task.get_loop().call_later(grace, self._settle, verdict)

    # What the handler may do

    async def report(
        self, *, progress: Progress | None = None, lines: tuple[LogLine, ...] = (), step: Step | None = None
    ) -> None:
        if self._is_settled or self.is_lost:
            raise LeaseLost(f"Cannot report on job {self.lease.job_id}: this attempt has ended.")
        if self.awaits_commit:
            # The report would wait for the very transaction that the handler has yet to commit.
            raise NotPossible(f"Cannot report on job {self.lease.job_id} after ctx.complete(). Report before it.")
        unsent, self._unsent = self._unsent, None
        if unsent is not None:
            progress, lines = progress or unsent.progress, (*unsent.lines, *lines)[-MAX_UNSENT_LINES:]
        report = Report(key=self.key, progress=progress, lines=lines, step=step)
        refused = await self._send(report)
        if refused is None:
            self._unsent = report
            return
        if refused:
            self.is_lost = True
            raise LeaseLost(f"Cannot report on job {self.lease.job_id}: its lease was lost.")
        if progress is not None:
            self._runtime.reported(self.lease, progress)

    async def _send(self, report: Report) -> Sequence[LeaseKey] | None:
        """The refused keys. In an outage, which must not fail the job, a step waits for the store; others get None."""
        backoff = StoreBackoff(self._runtime.emit)
        while True:
            try:
                return await self._runtime.store.report([report])
            except StoreError as error:
                delay = backoff.delay(f"reporting on job {self.lease.job_id}", error)
                if report.step is None:
                    return None
            await asyncio.sleep(delay)

    async def complete(self, result: bytes, transaction: Any) -> None:
        if self._is_settled or self.is_lost or self.is_stopping:
            raise LeaseLost(f"Cannot complete job {self.lease.job_id}: this attempt has ended or is being stopped.")
        settlement = Settlement(self.key, judge(self.lease, Done(result), worker=self._runtime.worker_id))
        # Set before the call: from here on the caller's commit may end the lease.
        self.awaits_commit = True
        try:
            await self._runtime.store.settle(settlement, transaction)
        except BaseException:
            self.awaits_commit = False
            raise
