"""One attempt from start to settlement: perform → judge → settle."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any

from jobyard.domain.job import LogLine, Progress, Step
from jobyard.domain.lease import Lease
from jobyard.domain.outcome import Cancel, Done, Failed, Outcome, Release, TimedOut
from jobyard.domain.state import Settlement, Transition, judge
from jobyard.errors import LeaseLost, NotPossible
from jobyard.observability.current import current_lease
from jobyard.ports.executor import Executor
from jobyard.ports.job_store import JobStore, Report

if TYPE_CHECKING:
    from typing import Protocol

    class Crew(Protocol):
        """What a run needs of its worker."""

        @property
        def id(self) -> str: ...
        @property
        def store(self) -> JobStore: ...
        @property
        def executor(self) -> Executor: ...

        def finished(self, run: Run, transition: Transition | None) -> None: ...
        def reported(self, lease: Lease, progress: Progress) -> None: ...


# A handler that was told to stop and does not is left behind after this long; its outcome no longer counts.
STOP_GRACE_SECONDS = 10.0
NOT_COMMITTED = Failed(
    message="ctx.complete() was called, but the transaction it was given was not committed", type="NotCommitted"
)
# When the worker itself goes, its time to finish is over already.
RELEASE_GRACE_SECONDS = 1.0


class Run:
    """Implements the executor port's Attempt."""

    __slots__ = (
        "_begun",
        "_crew",
        "_deadline",
        "_settled",
        "_verdict",
        "is_lost",
        "is_promised",
        "is_stopping",
        "key",
        "lease",
        "started",
        "task",
    )

    def __init__(self, crew: Crew, lease: Lease, loop: asyncio.AbstractEventLoop) -> None:
        self.lease = lease
        self.key = lease.key
        self.is_stopping = False
        self.is_lost = False
        self.is_promised = False  # completed in the handler's own transaction, if that commits
        self.started = time.monotonic()
        self._crew = crew
        self._verdict: Outcome | None = None  # decided from outside, over what the handler may still say
        self._settled = False
        self._begun = False
        self._deadline: asyncio.TimerHandle | None = None
        if lease.timeout_seconds is not None:
            self._deadline = loop.call_later(lease.timeout_seconds, self._time_out)
        # A name given is a name that need not be made up: a job's task is as cheap as it gets.
        self.task = loop.create_task(self._perform(), name="jobyard-job")

    async def _perform(self) -> None:
        self._begun = True
        current_lease.set(self.lease)  # in the context of this task alone
        try:
            outcome = await self._crew.executor.perform(self)
        except asyncio.CancelledError:
            # Cancelled by nobody we know: the handler cancelled itself.
            outcome = self._verdict or Failed(message="the handler was cancelled from inside", type="CancelledError")
        except LeaseLost:
            self.is_lost = True
            outcome = Release()
        except BaseException as error:
            outcome = Failed(message=f"the executor failed: {error!r}", type=type(error).__qualname__)
            self._settle(outcome)
            if not isinstance(error, Exception):
                raise
            return
        if self.is_promised and not isinstance(outcome, Failed):
            # Refused if the transaction was committed, for then the job has ended: so this is said only if it is true.
            outcome = NOT_COMMITTED
        self._settle(self._verdict or outcome)

    def _settle(self, outcome: Outcome) -> None:
        if self._settled:
            return
        self._settled = True
        if self._deadline is not None:
            self._deadline.cancel()
        if self.is_lost:
            self._crew.finished(self, None)
            return
        try:
            transition = judge(self.lease, outcome, random.random(), self._crew.id)
        except Exception as error:
            # An outcome that makes no sense must not keep the slot, and the lease, for ever.
            senseless = Failed(message=f"the executor gave {outcome!a}: {error!a}", type="BadOutcome", retry=False)
            transition = judge(self.lease, senseless, worker=self._crew.id)
        self._crew.finished(self, transition)

    def _time_out(self) -> None:
        self.stop(TimedOut(f"ran longer than {self.lease.timeout_seconds:g} s"))

    def cancel(self, reason: str) -> None:
        self.stop(Cancel(reason))

    def lose(self) -> None:
        """The lease is gone: stop, and settle nothing."""
        self.is_lost = True
        self.stop(Release())

    def release(self) -> None:
        """The worker stops: hand the job back. A thread that cannot be stopped ends with the process."""
        self.stop(Release(), RELEASE_GRACE_SECONDS)

    def stop(self, verdict: Outcome, grace_seconds: float | None = None) -> None:
        if self.is_stopping or self._settled:
            return
        self.is_stopping = True
        self._verdict = verdict
        self.task.cancel()
        if not self._begun:
            # A task that is cancelled before its first step never gets to say anything.
            self._settle(verdict)
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.task.get_loop().call_later(
            STOP_GRACE_SECONDS if grace_seconds is None else grace_seconds, self._leave_behind
        )

    def _leave_behind(self) -> None:
        """It ignored the cancellation: the slot and the job must not wait for it for ever."""
        self._settle(self._verdict or Release())

    async def report(
        self, *, progress: Progress | None = None, lines: tuple[LogLine, ...] = (), step: Step | None = None
    ) -> None:
        if self._settled or self.is_lost:
            raise LeaseLost(f"Job {self.lease.job_id}: this attempt has ended; what it reports is refused.")
        if self.is_promised:
            # It would wait for the very transaction that the handler has yet to commit.
            raise NotPossible(f"Job {self.lease.job_id}: ctx.complete comes last; report before it.")
        refused = await self._crew.store.report([Report(key=self.key, progress=progress, lines=lines, step=step)])
        if refused:
            self.is_lost = True
            raise LeaseLost(f"Job {self.lease.job_id}: the lease was lost; what this attempt reports is refused.")
        if progress is not None:
            self._crew.reported(self.lease, progress)

    async def complete(self, result: bytes, transaction: Any) -> None:
        if self._settled or self.is_lost or self.is_stopping:
            raise LeaseLost(f"Job {self.lease.job_id}: this attempt has ended, or was told to; it cannot complete.")
        settlement = Settlement(self.key, judge(self.lease, Done(result), worker=self._crew.id))
        # Before it is done: from here on the lease may vanish by the caller's commit.
        self.is_promised = True
        try:
            await self._crew.store.settle(settlement, transaction)
        except BaseException:
            self.is_promised = False
            raise
