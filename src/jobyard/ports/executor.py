"""What carries out an attempt."""

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
        """The attempt was asked to end: cancelled, out of time, lease lost, or the worker stops."""
        ...

    async def report(
        self, *, progress: Progress | None = None, lines: tuple[LogLine, ...] = (), step: Step | None = None
    ) -> None:
        """Tell the store; raises LeaseLost when the attempt may no longer speak."""
        ...

    async def complete(self, result: bytes, transaction: Any) -> None:
        """Complete the job inside the caller's own transaction: both count when, and only if, that commits.

        Raises LeaseLost when the attempt may no longer speak, NotPossible where the store has no transactions.
        """
        ...


class Executor(Protocol):
    async def perform(self, attempt: Attempt) -> Outcome:
        """Carry the attempt out and say how it went. A handler's error is an outcome, not an exception.

        When cancelled it must stop the work as well as it can, then let CancelledError out.
        """
        ...
