"""The session of one runner program with the service."""

from __future__ import annotations

import asyncio
from typing import Literal, Protocol

from jobyard.demo.fake_github.entities import Job, Runner

Outcome = Literal["completed", "removed", "killed", "closed"]


class Pool(Protocol):
    def kill(self, session: Session) -> None: ...

    def close(self, session: Session) -> None: ...


class Session:
    """What a runner program sees: a job that it is given, and how the session ended.

    Outcomes: `completed` (its job ended), `removed` (the registration is gone), `killed` and `closed`
    (the program itself ended).
    """

    def __init__(self, *, id: int, runner: Runner, pool: Pool, takes_jobs: bool) -> None:
        self.id = id
        self.runner = runner
        self.job: Job | None = None
        self.takes_jobs = takes_jobs
        self.outcome: Outcome | None = None
        self.assigned = asyncio.Event()
        self.started = asyncio.Event()
        self._ended = asyncio.Event()
        self._pool = pool

    @property
    def state(self) -> str:
        if self.outcome is not None:
            return "ended"
        if self.job is None:
            return "idle"
        return "running" if self.started.is_set() else "assigned"

    def end(self, outcome: Outcome) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self._ended.set()

    async def wait(self) -> Outcome:
        """Wait until the session has ended. The runner program exits then."""
        await self._ended.wait()
        assert self.outcome is not None
        return self.outcome

    def kill(self) -> None:
        """End as by SIGKILL or for lack of memory: GitHub is not told."""
        self._pool.kill(self)

    def close(self) -> None:
        """End as by SIGTERM: GitHub is told."""
        self._pool.close(self)
