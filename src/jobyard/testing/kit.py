"""Test helpers for applications: an isolated store, a manual clock, and jobs that run inline or on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from jobyard.api.convert import readable_job
from jobyard.api.schemas.jobs import JobView
from jobyard.app.declarations import declarations_of
from jobyard.app.executors import make_executor
from jobyard.app.jobyard import Jobyard
from jobyard.app.task import Task
from jobyard.config.store_factory import make_store
from jobyard.domain.instant import FOREVER, Instant
from jobyard.domain.job import NewJob
from jobyard.domain.lease import Lease
from jobyard.domain.state import Settlement, Transition
from jobyard.errors import BadOption
from jobyard.executors.workflow.relay import deliver_ended
from jobyard.operations.queries import Queries
from jobyard.ports.admin_store import Filter
from jobyard.ports.job_store import Inserted
from jobyard.ports.store import Store
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock
from jobyard.worker.attempt import AttemptRuntime, JobAttempt

# These leases are not renewed, and a test may advance the clock far during one job.
LEASE_SECONDS = 10 * 366 * 86_400.0
MAX_CLAIMS = 10_000
# Stops a drain of a job that snoozes forever.
MAX_ATTEMPTS = 10_000
LISTED = 20

KindOrJob = str | Task[Any, Any, Any]


@dataclass(frozen=True)
class Isolated:
    """A yard with a store of its own, for one test."""

    yard: Jobyard
    store: Store
    clock: ManualClock


@asynccontextmanager
async def isolated(
    yard: Jobyard, *, url: str = "memory://", clock: ManualClock | None = None
) -> AsyncIterator[Isolated]:
    """Give the yard a fresh store with a manual clock; its own store is restored afterwards."""
    chosen = clock or ManualClock()
    store = make_store(url, chosen)
    async with yard.using(store, chosen):
        yield Isolated(yard, store, chosen)


@asynccontextmanager
async def inline(yard: Jobyard, *, clock: ManualClock | None = None) -> AsyncIterator[Isolated]:
    """Like `isolated`, but each enqueue returns only after its job has run.

    The clock is advanced through delays and backoffs, so the job has ended, unless it parked, was handed off, or is
    held back by a limit or a pause.
    """
    chosen = clock or ManualClock()
    store = InlineStore(yard, chosen)
    async with yard.using(store, chosen):
        yield Isolated(yard, store, chosen)


async def drain(
    yard: Jobyard, *, queues: Sequence[str] = (), until_empty: bool = True, with_delayed: bool = False
) -> list[JobView]:
    """Run the due jobs one after the other, without a worker, and return them in the order they ran.

    `until_empty=False` runs only the jobs that can start now, not those that they enqueue. `with_delayed` advances the
    clock to the next due time until no job is left; it needs a ManualClock, which `isolated` provides.
    """
    clock = yard.clock
    if with_delayed and not isinstance(clock, ManualClock):
        raise BadOption(
            "Cannot advance the clock: with_delayed needs a ManualClock. Use it inside isolated(yard).",
            option="with_delayed",
        )
    worker = InlineWorker(yard, tuple(queues))
    if not until_empty:
        await worker.run_once(MAX_CLAIMS)
        return await worker.ran()
    while True:
        due_at = await worker.run_due()
        if not with_delayed or due_at is None or due_at >= FOREVER:
            return await worker.ran()
        assert isinstance(clock, ManualClock)
        clock.set(max(due_at, clock.now()))


async def assert_enqueued(
    yard: Jobyard,
    kind: KindOrJob,
    *,
    queue: str | None = None,
    group: str | None = None,
    payload: Mapping[str, Any] | None = None,
    count: int | None = None,
) -> list[JobView]:
    """Assert that such a job was enqueued (`count` of them, if given) and return the matching jobs, oldest first.

    `payload` may contain only the parameters that matter.
    """
    matching, others = await _matching_jobs(yard, kind, queue, group, payload)
    if not matching if count is None else len(matching) != count:
        wanted = _describe(_name(kind), queue, group, payload)
        expected = "at least one" if count is None else count or "none"
        raise AssertionError(f"expected {expected} of {wanted}, found {len(matching)}.{_list(matching + others)}")
    return matching


async def refute_enqueued(
    yard: Jobyard,
    kind: KindOrJob,
    *,
    queue: str | None = None,
    group: str | None = None,
    payload: Mapping[str, Any] | None = None,
) -> None:
    """Assert that no such job was enqueued."""
    await assert_enqueued(yard, kind, queue=queue, group=group, payload=payload, count=0)


@dataclass
class InlineWorker:
    """A worker without background tasks: it runs one job at a time, in the caller's task."""

    yard: Jobyard
    queues: tuple[str, ...] = ()
    id: str = "testing"
    _outbox: list[Settlement] = field(default_factory=list)
    _ran: dict[str, None] = field(default_factory=dict)
    _attempts: int = 0

    def __post_init__(self) -> None:
        self.store = self.yard.store
        executor = make_executor(declarations_of(self.yard).handlers, self.store, self.yard.max_payload_bytes)
        self._runtime = AttemptRuntime(self.id, self.store, executor, self._finished, lambda *_: None, lambda _: None)

    async def run_due(self) -> Instant | None:
        """Run until no job can start; return when the next one becomes due."""
        while True:
            due_at, ran = await self.run_once(1)
            if not ran and not await deliver_ended(self.store):
                return due_at

    async def run_once(self, wanted: int) -> tuple[Instant | None, int]:
        response = await self.store.exchange(self.id, [], self.queues, wanted, LEASE_SECONDS)
        for lease in response.leases:
            await self._run(lease)
        return response.next_due_at, len(response.leases)

    async def ran(self) -> list[JobView]:
        jobs = [await self.store.get(job_id) for job_id in self._ran]
        return [readable_job(job) for job in jobs if job is not None]

    async def _run(self, lease: Lease) -> None:
        self._attempts += 1
        if self._attempts > MAX_ATTEMPTS:
            raise AssertionError(f"still busy after {MAX_ATTEMPTS} attempts; the last was {lease.kind} {lease.job_id}")
        self._ran[lease.job_id] = None
        await JobAttempt(self._runtime, lease, asyncio.get_running_loop()).task
        settlements, self._outbox = self._outbox, []
        await self.store.exchange(self.id, settlements, self.queues, 0, LEASE_SECONDS)

    def _finished(self, attempt: JobAttempt, transition: Transition | None) -> None:
        if transition is not None:
            self._outbox.append(Settlement(attempt.key, transition))


class InlineStore(MemoryStore):
    """A memory store that runs a job when it is inserted."""

    def __init__(self, yard: Jobyard, clock: ManualClock) -> None:
        super().__init__(clock)
        self._yard = yard
        self._manual = clock
        self._unfinished: set[str] = set()
        self._only_insert, self.insert = self.insert, self._insert_and_run

    async def _insert_and_run(self, jobs: Sequence[NewJob], transaction: Any = None) -> list[Inserted]:
        inserted = await self._only_insert(jobs, transaction)
        self._unfinished.update(each.id for each in inserted if each.created)
        worker = InlineWorker(self._yard)
        await worker.run_due()
        while (due_at := await self._next_due()) is not None:
            self._manual.set(due_at)
            await worker.run_due()
        return inserted

    async def _next_due(self) -> Instant | None:
        """When the next unfinished job that waits only for its time is due."""
        due: list[Instant] = []
        for job_id in list(self._unfinished):
            job = await self.get(job_id)
            if job is None or job.state.is_final:
                self._unfinished.discard(job_id)
            elif job.waiting_for is None:
                due.append(job.run_at)
        return min((at for at in due if self._manual.now() < at < FOREVER), default=None)


async def _matching_jobs(
    yard: Jobyard, kind: KindOrJob, queue: str | None, group: str | None, payload: Mapping[str, Any] | None
) -> tuple[list[JobView], list[JobView]]:
    """The jobs that match and the others, each oldest first."""
    name = declarations_of(yard).handlers.get(_name(kind)).name  # an undeclared name is a mistake in the test
    matching: list[JobView] = []
    others: list[JobView] = []
    async for stored in Queries(yard.store).walk(Filter()):
        job = readable_job(stored)
        matches = (
            job.kind == name
            and (queue is None or job.queue == queue)
            and (group is None or job.group == group)
            and (payload is None or holds(job.payload, payload))
        )
        (matching if matches else others).append(job)
    return matching[::-1], others[::-1]


def holds(whole: Any, part: Any) -> bool:
    """
    >>> holds({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 2}})
    True
    >>> holds({"a": 1}, {"a": 1, "b": None})
    False
    """
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(key in whole and holds(whole[key], part[key]) for key in part)
    return bool(whole == part)


def _name(kind: KindOrJob) -> str:
    return kind if isinstance(kind, str) else kind.handler.name


def _describe(kind: str, queue: str | None, group: str | None, payload: Mapping[str, Any] | None) -> str:
    words = {"queue": queue, "group": group, "payload": None if payload is None else dict(payload)}
    return " ".join([kind, *(f"{word}={value!r}" for word, value in words.items() if value is not None)])


def _list(jobs: Sequence[JobView]) -> str:
    if not jobs:
        return " No job was enqueued."
    lines = [f"  {_describe(job.kind, job.queue, job.group, job.payload)} {job.state}" for job in jobs[:LISTED]]
    more = [f"  … and {len(jobs) - LISTED} more"] if len(jobs) > LISTED else []
    return "\n".join([" Enqueued jobs:", *lines, *more])
