"""Dead letters in groups: those of one kind with the same error."""

from __future__ import annotations

import re
from collections.abc import Iterable

from jobyard.api.schemas.operations import DeadLetterGroup
from jobyard.domain.instant import rfc3339
from jobyard.domain.job import Ending, Job, error_summary

MAX_ERROR = 200
# No handler raised these, so that they have no type of their own.
_TYPES = {Ending.TIMEOUT: "TimeoutError"}
# Parts of a message that differ from job to job: ids, addresses in memory, numbers, quoted values.
_VARIABLE = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|0x[0-9a-fA-F]+|\b[0-9a-fA-F]{12,}\b|(?<![A-Za-z])\d+(?:\.\d+)?|'[^'\n]{1,80}'"
)


def error_group(job: Job) -> str:
    """The first line of the last error, with its variable parts replaced; the reason if it has none."""
    if job.errors:
        last = job.errors[-1]
        text = error_summary(last.type or _TYPES.get(last.ending), last.message)
    else:
        text = job.reason or str(job.state)
    return variable_parts_replaced(text)


def variable_parts_replaced(text: str) -> str:
    """The first line of an error without names, numbers and addresses.

    >>> variable_parts_replaced("KeyError: 'ann' at 0x7f01 after 3.5 s\\nmore")
    'KeyError: … at … after … s'
    """
    line = next(iter(text.splitlines()), "")
    return _VARIABLE.sub("…", line)[:MAX_ERROR]


def dead_letter_groups(jobs: Iterable[Job]) -> tuple[DeadLetterGroup, ...]:
    """Most frequent first."""
    found: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        found.setdefault((job.kind, error_group(job)), []).append(job)
    groups = [_group(kind, error, each) for (kind, error), each in found.items()]
    return tuple(sorted(groups, key=lambda group: (-group.count, group.kind, group.error)))


def _group(kind: str, error: str, jobs: list[Job]) -> DeadLetterGroup:
    times = [job.finished_at or job.created_at for job in jobs]
    newest = max(jobs, key=lambda job: job.finished_at or 0)
    return DeadLetterGroup(
        kind=kind,
        error=error,
        sample_error=newest.errors[-1].message[:MAX_ERROR] if newest.errors else newest.reason or "",
        count=len(jobs),
        first_at=rfc3339(min(times)),
        last_at=rfc3339(max(times)),
        queues=tuple(sorted({job.queue for job in jobs})),
        states=tuple(sorted({job.state for job in jobs})),
        newest_job_id=newest.id,
    )
