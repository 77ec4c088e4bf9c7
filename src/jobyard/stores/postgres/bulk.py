"""Many jobs at once go by COPY: less than half the price of passing them to a function."""

from __future__ import annotations

from collections.abc import Sequence

from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.domain.job import NewJob
from jobyard.ports.store import Inserted
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
    "used",
    "deaths",
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
    ready: list[tuple[object, ...]] = []
    delayed: list[tuple[object, ...]] = []
    groups: dict[tuple[str, str], Arrivals] = {}
    for job, sequence in zip(jobs, sequences, strict=True):
        queue, group, private = job.queue, job.group or "", job.private_payload
        flags = 0 if private is None else HAS_PRIVATE
        run_at = now
        if job.run_at is not None:
            run_at = min(FOREVER, job.run_at)
        elif job.delay_seconds > 0:
            run_at = after(now, job.delay_seconds)
        ord_ = (-job.priority << PLACES) + sequence
        rows.append(
            (
                sequence,
                job.id,
                job.kind,
                queue,
                group,
                job.priority,
                job.max_attempts,
                flags,
                run_at,
                now,
                job.timeout_seconds,
                job.payload,
                private,
                stored_backoff(job),
                0,
                0,
            )
        )
        arrivals = groups.get((queue, group))
        if arrivals is None:
            arrivals = groups[queue, group] = Arrivals(ord_)
        elif ord_ < arrivals.ord:
            arrivals.ord = ord_
        if run_at <= now:
            arrivals.waiting += 1
            ready.append((queue, group, ord_, 0, flags))
        else:
            arrivals.delayed += 1
            arrivals.run_at = run_at if arrivals.run_at is None else min(run_at, arrivals.run_at)
            delayed.append((queue, run_at, sequence, group, ord_, 0, flags, False))
    ready.sort()  # neighbours share a page
    for table, names, records in (("job", JOB, rows), ("ready", READY, ready), ("delayed", DELAYED, delayed)):
        if records:
            await connection.copy_records_to_table(
                f"jobyard_{table}", records=records, columns=names, schema_name=statements.schema
            )
    # A group whose jobs all come later joins no line now: its place among the others means nothing.
    letters = [
        (queue, group, item.waiting, item.delayed, item.ord, item.run_at) for (queue, group), item in groups.items()
    ]
    await connection.execute(statements["end_bulk"], now, *map(list, zip(*letters, strict=True)))
