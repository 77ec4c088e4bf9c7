"""An executor that routes each attempt to the executor of its kind."""

from __future__ import annotations

from collections.abc import Mapping

from jobyard.domain.outcome import Outcome
from jobyard.ports.executor import Attempt, Executor


class ExecutorByKind:
    """Kinds without an executor of their own go to `default`."""

    def __init__(self, executors: Mapping[str, Executor], default: Executor) -> None:
        self._executors = executors
        self._default = default

    async def perform(self, attempt: Attempt) -> Outcome:
        return await self._executors.get(attempt.lease.kind, self._default).perform(attempt)
