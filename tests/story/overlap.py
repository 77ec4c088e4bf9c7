"""A second witness beside the history: what the handlers themselves saw."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from jobyard.domain.job import Job


def seen(job: Job) -> tuple[int, int, int]:
    """The process that ran this `span` job, and from when to when."""
    assert job.result is not None
    return msgspec.json.decode(job.result, type=tuple[int, int, int])


def who_ran(jobs: Iterable[Job]) -> set[int]:
    return {seen(job)[0] for job in jobs}


def most_at_once(jobs: Iterable[Job]) -> int:
    """How many of these `span` jobs ran at one instant, by the times in their results."""
    turns: list[tuple[int, int]] = []
    for job in jobs:
        _, started, ended = seen(job)
        turns += [(started, 1), (ended, -1)]
    running = most = 0
    for _, change in sorted(turns):
        running += change
        most = max(most, running)
    return most
