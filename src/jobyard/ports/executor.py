"""The executor port: how an attempt is run."""

from __future__ import annotations

from typing import Any, Protocol

from jobyard.domain.job import LogLine, Progress, Step
from jobyard.domain.lease import Lease
from jobyard.domain.outcome import Outcome


class Attempt(Protocol):
    """One attempt as the executor sees it."""

    @property
    def lease(self) -> Lease: ...

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
