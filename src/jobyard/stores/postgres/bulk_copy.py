"""Many jobs at once go by COPY: less than half the price of passing them to a function."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.domain.job import NewJob
from jobyard.ports.job_store import Inserted
from jobyard.stores.postgres.columns import checked_priority, stored_backoff
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.statements import Statements

# Fewer are cheaper by one call of a function than by the several trips of a copy.
WORTH_IT = 200
# A priority and a sequence share one number.
PLACES = 42
HAS_PRIVATE = 2
JOB = (
    "sequence",
    "id",
    "kind",
    "queue",
    "group_name",
    "priority",
    "max_attempts",
    "flags",
    "run_at",
    "created_at",
    "timeout_seconds",
    "payload",
    "private_payload",
    "backoff",
)
READY = ("queue", "group_name", "ord", "used", "flags")
DELAYED = ("queue", "run_at", "sequence", "group_name", "ord", "used", "flags", "parked")


def can_copy(jobs: Sequence[NewJob]) -> bool:
    """Unique keys must be judged one by one, on the server."""
    return len(jobs) >= WORTH_IT and all(job.unique is None and not job.tags for job in jobs)


class Arrivals:
    """What the inbox says of one group."""

    __slots__ = ("delayed", "ord", "run_at", "waiting")

    def __init__(self, ord_: int) -> None:
        self.waiting = self.delayed = 0
        self.ord = ord_
        self.run_at: Instant | None = None


async def copy(
    connection: Connection, statements: Statements, now: Instant | None, jobs: Sequence[NewJob]
) -> list[Inserted] | None:
    """In one transaction; None, with nothing done, when a queue limits what may wait."""
    names = list({job.queue for job in jobs})
    for job in jobs:
        checked_priority(job.priority)
    async with connection.transaction():
        row = await connection.fetchrow(statements["begin_bulk"], now, names, len(jobs))
        assert row is not None
        if row[1] is None:
            return None
        await _copy_rows(connection, statements, row[0], jobs, row[1])
    return [Inserted(job.id, True, sequence) for job, sequence in zip(jobs, row[1], strict=True)]


async def _copy_rows(
    connection: Connection, statements: Statements, now: Instant, jobs: Sequence[NewJob], sequences: Sequence[int]
) -> None:
    rows: list[tuple[object, ...]] = []
    places: list[tuple[Instant, int, int]] = []
    for job, sequence in zip(jobs, sequences, strict=True):
        private, priority = job.private_payload, job.priority
        flags = 0 if private is None else HAS_PRIVATE
        run_at = now
        if job.run_at is not None:
            run_at = min(FOREVER, job.run_at)
        elif job.delay_seconds > 0:
            run_at = after(now, job.delay_seconds)
        places.append((run_at, (-priority << PLACES) + sequence, flags))
        rows.append(
            (
                sequence,
                job.id,
                job.kind,
                job.queue,
                job.group or "",
                priority,
                job.max_attempts,
                flags,
                run_at,
                now,
                job.timeout_seconds,
                job.payload,
                private,
                stored_backoff(job),
            )
        )

    async def to(table: str, columns: tuple[str, ...], records: Iterable[tuple[object, ...]]) -> None:
        await connection.copy_records_to_table(
            f"jobyard_{table}", records=records, columns=columns, schema_name=statements.schema
        )

    # The server has its hands full with the jobs: meanwhile we see to where they stand.
    sent = asyncio.Event()
    copying = asyncio.create_task(to("job", JOB, _telling(rows, sent)))
    copying.add_done_callback(lambda _: sent.set())
    try:
        await sent.wait()
        ready, delayed, letters = _stand(now, jobs, sequences, places)
    finally:
        await copying
    if ready:
        await to("ready", READY, ready)
    if delayed:
        await to("delayed", DELAYED, delayed)
    await connection.execute(statements["end_bulk"], now, *map(list, zip(*letters, strict=True)))


def _telling(rows: list[tuple[object, ...]], all_read: asyncio.Event) -> Iterator[tuple[object, ...]]:
    yield from rows
    all_read.set()


def _stand(
    now: Instant, jobs: Sequence[NewJob], sequences: Sequence[int], places: list[tuple[Instant, int, int]]
) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]], list[tuple[object, ...]]]:
    """The rows of those that are due, of those that are delayed, and what the inbox is told of each group."""
    ready: list[tuple[object, ...]] = []
    delayed: list[tuple[object, ...]] = []
    groups: dict[tuple[str, str], Arrivals] = {}
    first_due: dict[tuple[str, str], int] = {}
    for place, (job, sequence, (run_at, ord_, flags)) in enumerate(zip(jobs, sequences, places, strict=True)):
        queue, group = job.queue, job.group or ""
        arrivals = groups.get((queue, group))
        if arrivals is None:
            arrivals = groups[queue, group] = Arrivals(ord_)
        elif ord_ < arrivals.ord:
            arrivals.ord = ord_
        if run_at <= now:
            arrivals.waiting += 1
            first_due.setdefault((queue, group), place)
            ready.append((queue, group, ord_, 0, flags))
        else:
            arrivals.delayed += 1
            arrivals.run_at = run_at if arrivals.run_at is None else min(run_at, arrivals.run_at)
            delayed.append((queue, run_at, sequence, group, ord_, 0, flags, False))
    ready.sort()  # neighbours share a page
    # In the order in which they join the line; a group whose jobs all come later joins none now.
    in_order = sorted(groups.items(), key=lambda each: first_due.get(each[0], len(jobs)))
    return ready, delayed, [(*key, item.waiting, item.delayed, item.ord, item.run_at) for key, item in in_order]
