"""What applications test with: a store of their own, a clock to turn, jobs that run at once or when told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from jobyard.app.jobyard import Jobyard
from jobyard.app.task import Definition
from jobyard.config.store_factory import make_store
from jobyard.domain.instant import FOREVER, Instant
from jobyard.domain.job import Job, NewJob, Progress
from jobyard.domain.lease import Lease
from jobyard.domain.state import Settlement, Transition
from jobyard.errors import BadOption
from jobyard.executors.python.executor import PythonExecutor
from jobyard.ports.admin_store import Filter
from jobyard.ports.job_store import Inserted
from jobyard.ports.store import Store
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock
from jobyard.worker.attempt import Run

# Nobody renews here, and a test may turn the clock far within one job.
LEASE_SECONDS = 10 * 366 * 86_400.0
CLAIM_AT_ONCE = 10_000
# A job that snoozes for ever would keep a drain busy for ever.
MOST_ATTEMPTS = 10_000
SHOWN = 20

Kindlike = str | Definition[Any, Any, Any]


@dataclass(frozen=True)
class Isolated:
    """A yard cut off from its real store, for one test."""

    yard: Jobyard
    store: Store
    clock: ManualClock


@asynccontextmanager
async def isolated(
    yard: Jobyard, *, url: str = "memory://", clock: ManualClock | None = None
) -> AsyncIterator[Isolated]:
    """Give the yard a fresh store on a clock that the test turns; its own store is back afterwards."""
    chosen = clock or ManualClock()
    store = make_store(url, chosen)
    async with yard.using(store, chosen):
        yield Isolated(yard, store, chosen)


@asynccontextmanager
async def inline(yard: Jobyard, *, clock: ManualClock | None = None) -> AsyncIterator[Isolated]:
    """Isolated, and each enqueue answers only when its job has run.

    The clock is turned through delays and back-offs, so the job has ended, unless it parked, was handed off, or a
    limit or pause holds it back.
    """
    chosen = clock or ManualClock()
    store = InlineStore(yard, chosen)
    async with yard.using(store, chosen):
        yield Isolated(yard, store, chosen)


async def drain(
    yard: Jobyard, *, queues: Sequence[str] = (), until_empty: bool = True, with_delayed: bool = False
) -> list[Job]:
    """Run what is due, one job after the other, without a worker; answers the jobs in the order they ran.

    `until_empty=False` runs only what can start now, not what that enqueues. `with_delayed` turns the test's clock to
    the next due time until nothing is left; it needs a ManualClock, as `isolated` gives one.
    """
    clock = yard.clock
    if with_delayed and not isinstance(clock, ManualClock):
        raise BadOption("with_delayed turns the clock: use it inside isolated(yard), or give the yard a ManualClock.")
    crew = Crew(yard, tuple(queues))
    if not until_empty:
        await crew.run_once(CLAIM_AT_ONCE)
        return await crew.ran()
    while True:
        due_at = await crew.run_due()
        if not with_delayed or due_at is None or due_at >= FOREVER:
            return await crew.ran()
        assert isinstance(clock, ManualClock)
        clock.set(max(due_at, clock.now()))


async def assert_enqueued(
    yard: Jobyard,
    kind: Kindlike,
    *,
    queue: str | None = None,
    group: str | None = None,
    payload: Mapping[str, Any] | None = None,
    count: int | None = None,
) -> list[Job]:
    """Such a job was enqueued, `count` of them if given, and has not been removed; answers them, oldest first.

    `payload` needs to name only the parameters that matter.
    """
    matching, others = await _look(yard, kind, queue, group, payload)
    if not matching if count is None else len(matching) != count:
        wanted = _describe(_name(kind), queue, group, payload)
        expected = "at least one" if count is None else str(count)
        raise AssertionError(f"expected {expected} of {wanted}, found {len(matching)}.{_list(matching + others)}")
    return matching


async def refute_enqueued(
    yard: Jobyard,
    kind: Kindlike,
    *,
    queue: str | None = None,
    group: str | None = None,
    payload: Mapping[str, Any] | None = None,
) -> None:
    """No such job was enqueued."""
    matching, _ = await _look(yard, kind, queue, group, payload)
    if matching:
        raise AssertionError(
            f"expected none of {_describe(_name(kind), queue, group, payload)}, found {len(matching)}.{_list(matching)}"
        )


@dataclass
class Crew:
    """What a worker is to its runs, without the background: one trip at a time, in the caller's own time."""

    yard: Jobyard
    queues: tuple[str, ...] = ()
    id: str = "testing"
    _outbox: list[Settlement] = field(default_factory=list)
    _ran: dict[str, None] = field(default_factory=dict)
    _attempts: int = 0

    def __post_init__(self) -> None:
        self.store = self.yard.store
        self.executor = PythonExecutor(self.yard.kinds, self.yard.max_payload_bytes)

    async def run_due(self) -> Instant | None:
        """Run until nothing can start; answers when the next job becomes due."""
        while True:
            due_at, ran = await self.run_once(1)
            if not ran:
                return due_at

    async def run_once(self, wanted: int) -> tuple[Instant | None, int]:
        answer = await self.store.exchange(self.id, [], self.queues, wanted, LEASE_SECONDS)
        for lease in answer.leases:
            await self._run(lease)
        return answer.next_due_at, len(answer.leases)

    async def ran(self) -> list[Job]:
        jobs = [await self.store.get(job_id) for job_id in self._ran]
        return [job for job in jobs if job is not None]

    async def _run(self, lease: Lease) -> None:
        self._attempts += 1
        if self._attempts > MOST_ATTEMPTS:
            raise AssertionError(f"still busy after {MOST_ATTEMPTS} attempts; the last was {lease.kind} {lease.job_id}")
        self._ran[lease.job_id] = None
        await Run(self, lease, asyncio.get_running_loop()).task
        settlements, self._outbox = self._outbox, []
        await self.store.exchange(self.id, settlements, self.queues, 0, LEASE_SECONDS)

    def finished(self, run: Run, transition: Transition | None) -> None:
        if transition is not None:
            self._outbox.append(Settlement(run.key, transition))

    def reported(self, lease: Lease, progress: Progress) -> None:
        """Nobody looks on."""


class InlineStore(MemoryStore):
    """A memory store in which inserting a job runs it."""

    def __init__(self, yard: Jobyard, clock: ManualClock) -> None:
        super().__init__(clock)
        self._yard = yard
        self._manual = clock
        self._unfinished: set[str] = set()
        self._only_insert, self.insert = self.insert, self._insert_and_run

    async def _insert_and_run(self, jobs: Sequence[NewJob], transaction: Any = None) -> list[Inserted]:
        answers = await self._only_insert(jobs, transaction)
        self._unfinished.update(answer.id for answer in answers if answer.created)
        crew = Crew(self._yard)
        await crew.run_due()
        while (due_at := await self._next_due()) is not None:
            self._manual.set(due_at)
            await crew.run_due()
        return answers

    async def _next_due(self) -> Instant | None:
        """When the first unfinished job that only waits for its time is due."""
        due: list[Instant] = []
        for job_id in list(self._unfinished):
            job = await self.get(job_id)
            if job is None or job.state.is_final:
                self._unfinished.discard(job_id)
            elif job.waiting_for is None:
                due.append(job.run_at)
        return min((at for at in due if self._manual.now() < at < FOREVER), default=None)


async def _look(
    yard: Jobyard, kind: Kindlike, queue: str | None, group: str | None, payload: Mapping[str, Any] | None
) -> tuple[list[Job], list[Job]]:
    """Jobs that match, and the others, oldest first."""
    name = yard.kinds.get(_name(kind)).name  # a name that nobody declared is a mistake in the test
    matching: list[Job] = []
    others: list[Job] = []
    async for job in yard.read.walk(Filter()):
        fits = (
            job.kind == name
            and (queue is None or job.queue == queue)
            and (group is None or job.group == group)
            and (payload is None or holds(job.payload_value(), payload))
        )
        (matching if fits else others).append(job)
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


def _name(kind: Kindlike) -> str:
    return kind if isinstance(kind, str) else kind.handler.name


def _describe(kind: str, queue: str | None, group: str | None, payload: Mapping[str, Any] | None) -> str:
    words = {"queue": queue, "group": group, "payload": None if payload is None else dict(payload)}
    return " ".join([kind, *(f"{word}={value!r}" for word, value in words.items() if value is not None)])


def _list(jobs: Sequence[Job]) -> str:
    if not jobs:
        return " Nothing was enqueued."
    lines = [f"  {_describe(job.kind, job.queue, job.group, job.payload_value())} {job.state}" for job in jobs[:SHOWN]]
    more = [f"  … and {len(jobs) - SHOWN} more"] if len(jobs) > SHOWN else []
    return "\n".join([" Enqueued were:", *lines, *more])
