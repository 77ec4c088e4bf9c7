"""Limits and pauses, judged at each claim."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator

from jobyard.testing.history.claims import GroupKey, claims_in_order, group_of, violation_at
from jobyard.testing.history.configuration import RecordedConfiguration
from jobyard.testing.history.life import Claim
from jobyard.testing.history.lives import Lives
from jobyard.testing.history.violation import Violation


def check_limits(lives: Lives, configuration: RecordedConfiguration) -> Iterator[Violation]:
    """Counts what certainly ran, against the highest limit that may have been in force."""
    running: dict[tuple[str, ...] | GroupKey, int] = defaultdict(int)
    for claim, started, stopped in _sweep(lives):
        for other in stopped:
            running[group_of(other)] -= 1
            running[(other.lease.queue,)] -= 1
        for other in started:
            running[group_of(other)] += 1
            running[(other.lease.queue,)] += 1
        lease = claim.lease
        counts = (
            ("group_limit_exceeded", group_of(claim), configuration.group_limits(*group_of(claim), claim.position)),
            ("queue_limit_exceeded", (lease.queue,), configuration.queue_limits(lease.queue, claim.position)),
        )
        for code, key, limits in counts:
            if running[key] > max(limits):
                sentence = f"job {lease.job_id} was claimed as number {running[key]} of {key}, limit {max(limits)}"
                yield violation_at(claim, code, sentence, running=running[key], limit=max(limits))


def _sweep(lives: Lives) -> Iterator[tuple[Claim, list[Claim], list[Claim]]]:
    """Each claim with the claims that certainly began, itself included, and perhaps ended since the one before."""
    everything = sorted((claim for life in lives for claim in life.claims), key=lambda claim: claim.position)
    ends: list[tuple[int, int]] = []
    started: list[Claim] = []
    for index, claim in enumerate(everything):
        if claim.runs_until > claim.position:
            started.append(claim)
            heapq.heappush(ends, (claim.runs_until, index))
        if claim.adopted:
            continue
        stopped = []
        while ends and ends[0][0] <= claim.position:
            stopped.append(everything[heapq.heappop(ends)[1]])
        yield claim, started, stopped
        started = []


def check_pauses(lives: Lives, configuration: RecordedConfiguration) -> Iterator[Violation]:
    for claim in claims_in_order(lives):
        lease = claim.lease
        scopes: set[str | None] = {None, lease.group}
        if any(False not in configuration.pauses(lease.queue, scope, claim.position) for scope in scopes):
            sentence = f"job {lease.job_id} was claimed while {lease.queue}/{lease.group} was paused"
            yield violation_at(claim, "claimed_while_paused", sentence)
