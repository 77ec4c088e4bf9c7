"""The executor port: how an attempt is run."""

from __future__ import annotations

from typing import Any, Protocol

from jobyard.domain.history import EndedJob
from jobyard.domain.job import LogLine, Progress, Step
from jobyard.domain.lease import Lease
from jobyard.domain.outcome import Outcome


class ChildEnds(Protocol):
    """Ends of child jobs that the worker itself has delivered to their parents."""

    def expect(self, job_id: str, kind: str) -> bool:
        """Whether it is worth keeping the slot for a child that is about to be inserted.

        If so, `wait` or `forget` must follow.
        """

    async def wait(self, job_id: str, kind: str) -> EndedJob | None:
        """The end of the child, once it is in the history of its parent; None if it takes too long."""

    def forget(self, job_id: str) -> None: ...


class Attempt(Protocol):
    """One attempt as the executor sees it."""

    @property
    def lease(self) -> Lease: ...

    ends_itself: bool  # a workflow: when cancelled, it goes back to its queue and ends its own work in the next attempt
    child_ends: ChildEnds | None  # None: a workflow always frees its slot while a child runs
    raised: BaseException | None  # by the handler, for logs and error trackers; the outcome has its text

    @property
    def is_stopping(self) -> bool:
        """Whether the attempt should end: cancelled, timed out, lease lost, or the worker is stopping."""

    async def report(
        self, *, progress: Progress | None = None, lines: tuple[LogLine, ...] = (), step: Step | None = None
    ) -> None:
        """Record in the store. Raises LeaseLost when the attempt no longer holds its lease."""

    async def complete(self, result: bytes, transaction: Any) -> None:
        """Complete the job inside the caller's own transaction: both take effect if and only if it commits.

        Raises LeaseLost when the attempt no longer holds its lease, NotPossible when the store has no transactions.
        """


class Executor(Protocol):
    async def perform(self, attempt: Attempt) -> Outcome:
        """Run the attempt and return its outcome. A handler's error is an outcome, not an exception.

        When cancelled, it must stop the work as far as possible, then let CancelledError propagate.
        """
