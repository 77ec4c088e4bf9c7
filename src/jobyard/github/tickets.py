"""Tickets: jobs of kind `runner`, each the permission to launch one runner once it is admitted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from uuid_utils import uuid7

from jobyard.domain.job import Job, NewJob, State, Unique, UniqueScope
from jobyard.domain.lease import Lease, LeaseKey
from jobyard.domain.outcome import Handoff
from jobyard.domain.retry import Fixed
from jobyard.domain.runners.github_job import GitHubJob, RunnerScope
from jobyard.domain.runners.plan import Ticket
from jobyard.domain.state import Settlement, Transition, judge
from jobyard.errors import LeaseLost
from jobyard.operations.organizations import RUNNERS_QUEUE
from jobyard.ports.admin_store import Action, Filter
from jobyard.ports.store import Store

QUEUE = RUNNERS_QUEUE
KIND = "runner"
# The first attempt and three more, 30 seconds apart.
MAX_ATTEMPTS = 4
RETRY_SECONDS = 30.0
# A claim that takes longer hangs: every call of the launch has a deadline of its own.
TIMEOUT_SECONDS = 120.0
# A replica that plans from old facts within this time does not add a second ticket.
UNIQUE_SECONDS = 3600.0
PAGE = 500
# The name under which tickets are settled; it claims nothing, so its leases have no duration.
SETTLER = "runner-manager"
SETTLE_SECONDS = 30.0


class TicketPayload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    org_name: str
    profile: str
    job_id: int
    repository: str | None = None  # of a user account: runners are registered with the repository
    repo_full_name: str = ""
    job_name: str = ""
    adopted_uid: str | None = None  # of the instance that was found running, if it was

    @property
    def scope(self) -> RunnerScope:
        return RunnerScope(self.org_name, self.repository)


_decoder = msgspec.json.Decoder(TicketPayload)


def payload_of(lease: Lease) -> TicketPayload:
    return _decoder.decode(lease.payload)


def new_ticket(job: GitHubJob, number: int) -> NewJob:
    """The ticket because of this job; `number` counts the tickets of the job from 1."""
    assert job.profile is not None
    payload = TicketPayload(
        org_name=job.org_name,
        profile=job.profile,
        job_id=job.job_id,
        repository=job.scope.repository,
        repo_full_name=job.repo_full_name,
        job_name=job.job_name,
    )
    return NewJob(
        id=str(uuid7()),
        kind=KIND,
        queue=QUEUE,
        group=job.org_name,
        # A job whose runner was lost has waited longest.
        priority=int(number > 1),
        payload=msgspec.json.encode(payload),
        max_attempts=MAX_ATTEMPTS,
        timeout_seconds=TIMEOUT_SECONDS,
        backoff=Fixed(RETRY_SECONDS),
        unique=Unique(f"{job.job_id}.{number}", UniqueScope.PERIOD, UNIQUE_SECONDS),
    )


def ticket_of(job: Job) -> Ticket:
    payload = _decoder.decode(job.payload)
    return Ticket(
        id=job.id,
        scope=payload.scope,
        profile=payload.profile,
        job_id=payload.job_id,
        sequence=job.sequence,
        is_running=job.state is State.RUNNING,
    )


def adopted_uid(job: Job) -> str | None:
    return _decoder.decode(job.payload).adopted_uid


class Tickets:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def hand_off(self, lease: Lease, name: str) -> None:
        """Keep the ticket running for this runner, without a worker's lease. Raises LeaseLost."""
        await self.settle(lease.key, judge(lease, Handoff(name)))

    async def settle(self, key: LeaseKey, transition: Transition) -> None:
        """Settle a ticket from any process. Raises LeaseLost when the key no longer holds it."""
        answer = await self._store.exchange(SETTLER, [Settlement(key, transition)], (), 0, SETTLE_SECONDS)
        if answer.refused:
            raise LeaseLost(f"Cannot settle ticket {key.job_id}: its lease was lost.")

    async def is_claimed(self, key: LeaseKey) -> bool:
        job = await self._store.get(key.job_id)
        return job is not None and job.state is State.RUNNING

    async def add(self, jobs: Iterable[GitHubJob]) -> int:
        """Add one ticket because of each job, whose `tickets` already counts it; returns how many are new."""
        made = [new_ticket(job, job.tickets) for job in jobs]
        inserted = await self._store.insert(made) if made else []
        return sum(each.created for each in inserted)

    async def withdraw(self, ticket_ids: Sequence[str]) -> int:
        """Remove waiting tickets; one that was claimed in the meantime is kept."""
        if not ticket_ids:
            return 0
        changed = await self._store.change(Action.DELETE, ticket_ids)
        return len(changed.changed)

    async def live(self) -> list[Job]:
        """All waiting and running tickets."""
        where = Filter(queue=QUEUE, states=(State.PENDING, State.RUNNING))
        found: list[Job] = []
        cursor: str | None = None
        while True:
            page = await self._store.find(where, PAGE, cursor)
            found += [job for job in page.jobs if job.kind == KIND]
            cursor = page.cursor
            if cursor is None:
                return found
