"""Results of a story, for `tests.soak`."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from jobyard.domain.job import Ending
from jobyard.testing.history import History, Summary
from jobyard.testing.history.events import (
    ExchangeReturned,
    ReclaimReturned,
    RecordedExchange,
    RecordedReclaim,
)

# Where each story appends its result as one line of JSON, if anywhere.
RESULTS_VARIABLE = "STORY_RESULTS"


class Kill(msgspec.Struct, frozen=True):
    worker: str
    at: int  # nanoseconds of CLOCK_MONOTONIC


class Result(msgspec.Struct, frozen=True, kw_only=True):
    story: str
    processes: int
    kills: int
    seconds: float
    violations: list[str]
    history: Summary
    # From a kill until each of its jobs was claimed again; from a server's return until something was claimed.
    recovery_seconds: list[float]


def record(result: Result) -> None:
    path = os.environ.get(RESULTS_VARIABLE)
    if path:
        with Path(path).open("ab") as file:
            file.write(msgspec.json.encode(result) + b"\n")


def recoveries(history: History, kills: Sequence[Kill]) -> list[float]:
    killed_at = {kill.worker: kill.at for kill in kills}
    claimed: dict[str, list[int]] = defaultdict(list)
    for operation, _, response in history.select(RecordedExchange, ExchangeReturned):
        for lease in response.leases if response else ():
            claimed[lease.job_id].append(operation.end)
    lost: dict[str, list[int]] = defaultdict(list)
    reclaims = [
        (operation.begin, reclaimed.ended)
        for operation, _, reclaimed in history.select(RecordedReclaim, ReclaimReturned)
        if reclaimed
    ]
    for begin, some in reclaims:
        for ended in some:
            lost[ended.job_id].append(begin)
    found = []
    for begin, some in reclaims:
        for ended in some:
            again = min((end for end in claimed[ended.job_id] if end > begin), default=None)
            # A quarantined job is not meant to run again until it is redriven.
            is_lost = ended.error.ending is Ending.LOST
            if not is_lost or ended.worker not in killed_at or again is None:
                continue
            # Lost once more before that: a worker claimed it and was killed before it recorded the claim.
            if not any(begin < later < again for later in lost[ended.job_id]):
                found.append((again - killed_at[ended.worker]) / 1e9)
    return sorted(found)


def resumptions(history: History, returns: Sequence[int]) -> list[float]:
    """How long after each return of the store the next claim came; not those that nothing came after."""
    claimed = sorted(
        operation.end
        for operation, _, response in history.select(RecordedExchange, ExchangeReturned)
        if response and response.leases
    )
    places = [(returned, bisect_right(claimed, returned)) for returned in returns]
    return sorted((claimed[place] - returned) / 1e9 for returned, place in places if place < len(claimed))
