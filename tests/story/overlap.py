"""A second witness beside the history: what the handlers themselves saw."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from jobyard.domain.job import Job


def most_at_once(jobs: Iterable[Job]) -> int:
    """How many of these `span` jobs ran at one instant, by the times in their results."""
    turns: list[tuple[int, int]] = []
    for job in jobs:
        assert job.result is not None
        _, started, ended = msgspec.json.decode(job.result, type=tuple[int, int, int])
        turns += [(started, 1), (ended, -1)]
    running = most = 0
    for _, change in sorted(turns):
        running += change
        most = max(most, running)
    return most
