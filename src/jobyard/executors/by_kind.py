"""One worker, several executors: each kind of job goes to its own, the rest to one."""

from __future__ import annotations

from collections.abc import Mapping

from jobyard.domain.outcome import Outcome
from jobyard.ports.executor import Attempt, Executor


class ExecutorByKind:
    def __init__(self, kinds: Mapping[str, Executor], rest: Executor) -> None:
        self._kinds = kinds
        self._rest = rest

    async def perform(self, attempt: Attempt) -> Outcome:
        return await self._kinds.get(attempt.lease.kind, self._rest).perform(attempt)
