"""Codec between domain objects and the parameters and rows of the server-side functions.

Each named tuple lists parameters of a function in `functions/` in the order in which its statement in `sql/` numbers
them; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob, Parent, Unique, UniqueScope
from jobyard.domain.lease import Lease
from jobyard.domain.retry import DEFAULT_BACKOFF
from jobyard.domain.state import Settlement
from jobyard.errors import BadInput
from jobyard.ports.job_store import Report
from jobyard.stores._shared.job_rows import decode_backoff

SCOPES = {UniqueScope.ACTIVE: 0, UniqueScope.PERIOD: 1, UniqueScope.FOREVER: 2}
# The server orders jobs by one 64-bit number: the negated priority above the sequence, which has this many bits.
SEQUENCE_BITS = 42
MAX_PRIORITY = 1 << 20
# Columns of an exchange's rows that are used by position.
QUEUE, PLACE, SPECIAL = 3, 14, 18


def milliseconds(seconds: float) -> int:
    """Round as `domain.instant.after` does; the server cuts what would go past its last instant.

    >>> milliseconds(2.5), milliseconds(1e30)
    (2500, 1000000000000000)
    """
    return round(min(seconds, 1e12) * 1000)


def storable(text: str | None) -> str | None:
    """Replace NUL, the one character that PostgreSQL's text cannot hold.

    >>> storable("a\\0b")
    'a␀b'
    """
    return text if text is None or "\0" not in text else text.replace("\0", "␀")


def order_of(priority: int, sequence: int) -> int:
    """The `ord` of a job: its position among the jobs of its group.

    >>> order_of(1, 7) < order_of(0, 5) < order_of(0, 6)
    True
    """
    return (-priority << SEQUENCE_BITS) + sequence


def checked_priority(priority: int) -> int:
    if not -MAX_PRIORITY < priority < MAX_PRIORITY:
        limit = MAX_PRIORITY - 1
        raise BadInput(f"Cannot store priority {priority}: PostgreSQL allows {-limit:,} to {limit:,}.")
    return priority


def stored_backoff(job: NewJob) -> bytes | None:
    return None if job.backoff is DEFAULT_BACKOFF else msgspec.json.encode(job.backoff)


def stored_tags(job: NewJob) -> bytes | None:
    return msgspec.json.encode(job.tags) if job.tags else None


def stored_parent(job: NewJob) -> str | None:
    return None if job.parent is None else msgspec.json.encode(job.parent).decode()


def stored_unique(unique: Unique | None) -> tuple[str | None, int | None, int | None]:
    """Key, scope and period in ms of a unique key."""
    if unique is None:
        return None, None, None
    return unique.key, SCOPES[unique.scope], milliseconds(unique.period_seconds or 0.0)


class PlainJob(NamedTuple):
    """A job that is due at once and has no unique key, tags, private payload or parent, and is not a workflow."""

    id: str
    kind: str
    queue: str
    group: str
    priority: int
    payload: bytes
    max_attempts: int
    timeout: float | None
    backoff: bytes | None


def is_plain_job(job: NewJob) -> bool:
    return (
        job.unique is None
        and not job.tags
        and job.private_payload is None
        and job.run_at is None
        and job.delay_seconds <= 0
        and job.parent is None
        and not job.is_workflow
    )


def plain_job(job: NewJob) -> PlainJob:
    return PlainJob(
        job.id,
        job.kind,
        job.queue,
        job.group or "",
        checked_priority(job.priority),
        job.payload,
        job.max_attempts,
        job.timeout_seconds,
        stored_backoff(job),
    )


class JobColumns(NamedTuple):
    """Jobs as one array per field; a field that no job has is empty."""

    id: Sequence[str | None]
    kind: list[str]
    queue: list[str]
    group: list[str]
    priority: list[int]
    payload: list[bytes]
    max_attempts: list[int]
    private: Sequence[bytes | None] = ()
    timeout: Sequence[float | None] = ()
    backoff: Sequence[bytes | None] = ()
    delay: Sequence[int] = ()
    run_at: Sequence[Instant | None] = ()
    unique: Sequence[str | None] = ()
    scope: Sequence[int | None] = ()
    period: Sequence[int | None] = ()
    tags: Sequence[bytes | None] = ()
    tag_of: Sequence[int] = ()  # with `tag`: the 1-based position of a job, once per tag
    tag: Sequence[str] = ()
    parent: Sequence[str | None] = ()
    workflow: Sequence[bool] = ()

    @property
    def queues(self) -> list[str]:
        """Each queue once."""
        return list(dict.fromkeys(self.queue))


def job_columns(jobs: Sequence[NewJob]) -> JobColumns:
    priorities = [job.priority for job in jobs]
    checked_priority(max(priorities, key=abs))
    optional: dict[str, list[Any]] = {}
    if any(job.private_payload is not None for job in jobs):
        optional["private"] = [job.private_payload for job in jobs]
    if any(job.timeout_seconds is not None for job in jobs):
        optional["timeout"] = [job.timeout_seconds for job in jobs]
    if any(job.backoff is not DEFAULT_BACKOFF for job in jobs):
        optional["backoff"] = [stored_backoff(job) for job in jobs]
    if any(job.delay_seconds > 0 for job in jobs):
        optional["delay"] = [milliseconds(job.delay_seconds) for job in jobs]
    if any(job.run_at is not None for job in jobs):
        optional["run_at"] = [job.run_at for job in jobs]
    if any(job.unique is not None for job in jobs):
        unique = zip(*(stored_unique(job.unique) for job in jobs), strict=True)
        optional["unique"], optional["scope"], optional["period"] = map(list, unique)
    if any(job.tags for job in jobs):
        optional["tags"] = [stored_tags(job) for job in jobs]
        optional["tag_of"] = [number for number, job in enumerate(jobs, 1) for _ in job.tags]
        optional["tag"] = [tag for job in jobs for tag in job.tags]
    if any(job.parent is not None for job in jobs):
        optional["parent"] = [stored_parent(job) for job in jobs]
    if any(job.is_workflow for job in jobs):
        optional["workflow"] = [job.is_workflow for job in jobs]
    return JobColumns(
        [job.id for job in jobs],
        [job.kind for job in jobs],
        [job.queue for job in jobs],
        [job.group or "" for job in jobs],
        priorities,
        [job.payload for job in jobs],
        [job.max_attempts for job in jobs],
        **optional,
    )


class ClaimRequest(NamedTuple):
    worker: str
    token: str
    queues: list[str]  # empty: all
    wanted: int
    lease: int  # milliseconds


class TransitionRow(NamedTuple):
    sequence: int
    token: str
    to: str
    counted: bool
    died: bool
    delay: int
    signal: str | None
    park: int | None
    external: str | None
    result: bytes | None
    reason: str | None
    error: bytes | None
    wake: str | None


def transition_row(settlement: Settlement) -> TransitionRow:
    key, transition = settlement.key, settlement.transition
    return TransitionRow(
        key.sequence,
        key.token,
        str(transition.to),
        transition.counted,
        transition.died,
        milliseconds(transition.delay_seconds),
        transition.signal,
        None if transition.park_seconds is None else milliseconds(transition.park_seconds),
        transition.external_id,
        transition.result,
        storable(transition.reason),
        None if transition.error is None else msgspec.json.encode(transition.error),
        msgspec.json.encode(transition.wake).decode() if transition.wake else None,
    )


class ExchangeArguments(NamedTuple):
    """Named exactly as the parameters of jobyard_exchange: c_* are plain completions, o_* other transitions."""

    p_now: Instant | None
    p_worker: str
    p_token: str
    p_queues: list[str]
    p_wanted: int
    p_lease: int
    c_sequence: Sequence[int] = ()
    c_token: Sequence[str] = ()
    c_result: Sequence[bytes | None] = ()
    p_keep: Sequence[int] = ()
    o_sequence: Sequence[int] = ()
    o_token: Sequence[str] = ()
    o_to: Sequence[str] = ()
    o_counted: Sequence[bool] = ()
    o_died: Sequence[bool] = ()
    o_delay: Sequence[int] = ()
    o_signal: Sequence[str | None] = ()
    o_park: Sequence[int | None] = ()
    o_external: Sequence[str | None] = ()
    o_result: Sequence[bytes | None] = ()
    o_reason: Sequence[str | None] = ()
    o_error: Sequence[bytes | None] = ()
    p_expired_before: Instant | None = None
    p_impatient: bool = False
    p_from: list[str] | None = None
    o_wake: Sequence[str | None] = ()


class SpecialLease(msgspec.Struct, frozen=True):
    """What only child jobs and workflows have; as JSON in a column of its own."""

    is_workflow: bool
    parent: Parent | None
    cancel_requested: str | None


_special_lease = msgspec.json.Decoder(SpecialLease)


def leases_from_rows(rows: Sequence[Any], token: str) -> tuple[Lease, ...]:
    ordered = in_claim_order(rows)
    leases = [
        Lease(
            job_id,
            sequence,
            token,
            kind,
            queue,
            group or None,
            priority,
            attempt,
            max_attempts,
            deaths,
            payload,
            private,
            timeout,
            DEFAULT_BACKOFF if backoff is None else decode_backoff(backoff),
            signal,
        )
        for (
            sequence,
            job_id,
            kind,
            queue,
            group,
            priority,
            attempt,
            max_attempts,
            deaths,
            payload,
            private,
            timeout,
            backoff,
            signal,
            *_,
        ) in ordered
    ]
    for position, row in enumerate(ordered):
        if row[SPECIAL] is not None:
            special = msgspec.structs.asdict(_special_lease.decode(row[SPECIAL]))
            leases[position] = msgspec.structs.replace(leases[position], **special)
    return tuple(leases)


def in_claim_order(rows: Sequence[Any]) -> Sequence[Any]:
    """Reorder rows, which come group after group, into the order of single claims: round-robin over the groups.

    With several queues, round-robin over the queues as well.

    >>> rows = [[name, *"..q", *range(10), place] for name, place in (("a1", 7), ("a2", 7), ("b1", 9))]
    >>> [row[0] for row in in_claim_order(rows)]
    ['a1', 'b1', 'a2']
    """
    if len(rows) < 2:
        return rows
    ordered = _round_robin(rows, PLACE)
    # Places grow from queue to queue, so that each round of the queues is in their order as well.
    return _round_robin(ordered, QUEUE) if len({row[QUEUE] for row in rows}) > 1 else ordered


def _round_robin(rows: Sequence[Any], column: int) -> list[Any]:
    """The first row of each value of the column, then the second of each."""
    counts: dict[Any, int] = {}
    turns: list[tuple[int, int, Any]] = []
    for row in rows:
        count = counts.get(row[column], 0)
        counts[row[column]] = count + 1
        turns.append((count, row[PLACE], row))
    turns.sort(key=itemgetter(0, 1))
    return [row for _, _, row in turns]


class ReportRow(NamedTuple):
    sequence: int
    token: str
    progress: bytes | None
    lines: list[bytes]
    step_name: str | None
    step_runs: bool | None
    step: bytes | None


def report_row(report: Report) -> ReportRow:
    encode = msgspec.json.encode
    step = report.step
    return ReportRow(
        report.key.sequence,
        report.key.token,
        None if report.progress is None else encode(report.progress),
        [encode(line) for line in report.lines],
        None if step is None else storable(step.name),
        None if step is None else step.status == "running",
        None if step is None else encode(step),
    )


class AdoptColumns(NamedTuple):
    """What `adopt` needs beside a `PlainJob`."""

    private: bytes | None
    unique: str | None
    scope: int | None
    period: int | None
    tags: bytes | None
    tag: list[str]
    worker: str
    token: str
    external: str
    parent: str | None
    workflow: bool


def adoption(job: NewJob, worker: str, token: str, external_id: str) -> AdoptColumns:
    unique, special = stored_unique(job.unique), (stored_parent(job), job.is_workflow)
    tags = stored_tags(job), list(job.tags)
    return AdoptColumns(job.private_payload, *unique, *tags, worker, token, external_id, *special)
