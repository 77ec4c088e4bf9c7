"""Claims that wait in this process: an insert of the same process can serve one in its own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from jobyard.domain.job import NewJob
from jobyard.ports.job_store import Exchange

# With more jobs than this, the time of the insert itself dominates.
MAX_JOBS = 50


class PostgresWaitingClaim:
    """A claim that found no job. An insert that takes it must give it an answer."""

    def __init__(self, worker: str, queues: Sequence[str], wanted: int, lease_seconds: float) -> None:
        self.worker = worker
        self.queues = tuple(queues)
        self.wanted = wanted
        self.lease_seconds = lease_seconds
        self.is_taken = False
        # None: the claim was not served and must try again itself.
        self.answer: asyncio.Future[Exchange | None] = asyncio.get_running_loop().create_future()

    def withdraw(self, _: object = None) -> None:
        """Stop waiting, unless an insert has taken the claim: its leases must not be dropped."""
        if not self.is_taken:
            self.give(None)

    def give(self, answer: Exchange | None) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


class PostgresWaitingClaims:
    def __init__(self) -> None:
        self._claims: list[PostgresWaitingClaim] = []

    def __len__(self) -> int:
        return len(self._claims)

    def __contains__(self, claim: PostgresWaitingClaim) -> bool:
        return claim in self._claims

    def add(self, claim: PostgresWaitingClaim) -> None:
        self._claims.append(claim)

    def discard(self, claim: PostgresWaitingClaim) -> None:
        if claim in self._claims:
            self._claims.remove(claim)

    def take(self, jobs: Sequence[NewJob]) -> PostgresWaitingClaim | None:
        """Take the first claim that these jobs can serve. Jobs with a unique key or a delay serve none."""
        if not self._claims or len(jobs) > MAX_JOBS:
            return None
        if any(job.unique is not None or job.run_at is not None or job.delay_seconds > 0 for job in jobs):
            return None
        for claim in self._claims:
            if claim.answer.done():
                # Withdrawn, but its caller has not run yet: it would never see another answer.
                continue
            if not claim.queues or all(job.queue in claim.queues for job in jobs):
                self._claims.remove(claim)
                claim.is_taken = True
                return claim
        return None
