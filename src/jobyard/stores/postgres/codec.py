"""New jobs as columns: one array per field, so that thousands travel in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from jobyard.domain.job import NewJob, Unique, UniqueScope
from jobyard.domain.retry import DEFAULT_BACKOFF, Backoff
from jobyard.errors import BadInput

SCOPES = {UniqueScope.ACTIVE: 0, UniqueScope.PERIOD: 1, UniqueScope.FOREVER: 2}
# A priority and a sequence share one number on the server.
MOST_PRIORITY = 1 << 20


def encode_backoff(backoff: Backoff) -> bytes:
    return msgspec.json.encode(backoff)


def milliseconds(seconds: float) -> int:
    """As `domain.instant.after` counts; the server cuts what would go past all time.

    >>> milliseconds(2.5), milliseconds(1e30)
    (2500, 1000000000000000)
    """
    return round(min(seconds, 1e12) * 1000)


def stored_backoff(job: NewJob) -> bytes | None:
    return None if job.backoff is DEFAULT_BACKOFF else encode_backoff(job.backoff)


def stored_tags(job: NewJob) -> bytes | None:
    return msgspec.json.encode(job.tags) if job.tags else None


def stored_unique(unique: Unique | None) -> tuple[str | None, int | None, int | None]:
    """Key, scope and period of a unique key."""
    if unique is None:
        return None, None, None
    return unique.key, SCOPES[unique.scope], milliseconds(unique.period_seconds or 0.0)


def checked_priority(priority: int) -> int:
    if not -MOST_PRIORITY < priority < MOST_PRIORITY:
        raise BadInput(f"A priority of {priority} is beyond what PostgreSQL orders: stay within {MOST_PRIORITY - 1:,}.")
    return priority


def is_plain_job(job: NewJob) -> bool:
    """Due at once, and nothing about it needs to be looked at."""
    return (
        job.unique is None
        and not job.tags
        and job.private_payload is None
        and job.run_at is None
        and job.delay_seconds <= 0
    )


def plain_arguments(job: NewJob) -> tuple[Any, ...]:
    """From the id on, as jobyard_insert_one takes them."""
    return (
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


def columns(jobs: Sequence[NewJob]) -> list[Any]:
    """From the names of the queues on, as jobyard_insert takes them; what no job has stays empty."""
    queues = [job.queue for job in jobs]
    priorities = [job.priority for job in jobs]
    checked_priority(max(priorities, key=abs))
    private: list[Any] = []
    timeouts: list[Any] = []
    backoffs: list[Any] = []
    delays: list[Any] = []
    times: list[Any] = []
    keys: list[Any] = []
    scopes: list[Any] = []
    periods: list[Any] = []
    tags: list[Any] = []
    tag_of: list[int] = []
    tag: list[str] = []
    if any(job.private_payload is not None for job in jobs):
        private = [job.private_payload for job in jobs]
    if any(job.timeout_seconds is not None for job in jobs):
        timeouts = [job.timeout_seconds for job in jobs]
    if any(job.backoff is not DEFAULT_BACKOFF for job in jobs):
        backoffs = [stored_backoff(job) for job in jobs]
    if any(job.delay_seconds > 0 for job in jobs):
        delays = [milliseconds(job.delay_seconds) for job in jobs]
    if any(job.run_at is not None for job in jobs):
        times = [job.run_at for job in jobs]
    if any(job.unique is not None for job in jobs):
        keys, scopes, periods = map(list, zip(*(stored_unique(job.unique) for job in jobs), strict=True))
    if any(job.tags for job in jobs):
        tags = [stored_tags(job) for job in jobs]
        for number, job in enumerate(jobs, 1):
            tag_of += [number] * len(job.tags)
            tag += job.tags
    return [
        list(dict.fromkeys(queues)),
        True,
        [job.id for job in jobs],
        [job.kind for job in jobs],
        queues,
        [job.group or "" for job in jobs],
        priorities,
        [job.payload for job in jobs],
        [job.max_attempts for job in jobs],
        private,
        timeouts,
        backoffs,
        delays,
        times,
        keys,
        scopes,
        periods,
        tags,
        tag_of,
        tag,
    ]
