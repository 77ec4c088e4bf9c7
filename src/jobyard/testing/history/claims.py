"""Rules that are judged at each claim: limits, pauses, and the order within a group."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence

from jobyard.testing.history.configuration import RecordedConfiguration
from jobyard.testing.history.job_traces import Claim, JobTraces
from jobyard.testing.history.violation import Violation
from jobyard.testing.history.waits import WaitSpan

GroupKey = tuple[str, str | None]


def claims_in_order(traces: JobTraces) -> list[Claim]:
    found = [claim for trace in traces for claim in trace.claims if not claim.adopted]
    found.sort(key=lambda claim: claim.position)
    return found


def group_of(claim: Claim) -> GroupKey:
    return (claim.lease.queue, claim.lease.group)


def group_waiting(wait: WaitSpan) -> GroupKey:
    assert wait.trace.queue is not None
    return (wait.trace.queue, wait.trace.group)


def violation_at(claim: Claim, code: str, sentence: str, **data: object) -> Violation:
    facts = {"job_id": claim.lease.job_id, "revision": claim.revision, "queue": claim.lease.queue}
    return Violation(code, f"{sentence} (revision {claim.revision})", facts | {"group": claim.lease.group} | data)


def check_limits(traces: JobTraces, configuration: RecordedConfiguration) -> Iterator[Violation]:
    """Compare the jobs that certainly ran with the highest limit that may have been in force."""
    running: dict[tuple[str, ...] | GroupKey, int] = defaultdict(int)
    for claim, started, stopped in _sweep(traces):
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


def _sweep(traces: JobTraces) -> Iterator[tuple[Claim, list[Claim], list[Claim]]]:
    """Each claim, with the claims that certainly began (itself included) and may have ended since the one before."""
    everything = sorted((claim for trace in traces for claim in trace.claims), key=lambda claim: claim.position)
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


def check_pauses(traces: JobTraces, configuration: RecordedConfiguration) -> Iterator[Violation]:
    for claim in claims_in_order(traces):
        lease = claim.lease
        scopes: set[str | None] = {None, lease.group}
        if any(False not in configuration.pauses(lease.queue, scope, claim.position) for scope in scopes):
            sentence = f"job {lease.job_id} was claimed while {lease.queue}/{lease.group} was paused"
            yield violation_at(claim, "claimed_while_paused", sentence)


def check_order(traces: JobTraces, waits: Sequence[WaitSpan]) -> Iterator[Violation]:
    arrivals = sorted(waits, key=lambda wait: wait.since)
    lines: dict[GroupKey, list[tuple[tuple[int, int], int, int]]] = defaultdict(list)
    arrived = 0
    for claim in claims_in_order(traces):
        while arrived < len(arrivals) and arrivals[arrived].since <= claim.position:
            wait = arrivals[arrived]
            heapq.heappush(lines[group_waiting(wait)], (wait.place, wait.until, arrived))
            arrived += 1
        line = lines[group_of(claim)]
        while line and line[0][1] <= claim.position:
            heapq.heappop(line)
        lease = claim.lease
        if line and line[0][0] < (-lease.priority, lease.sequence):
            better = arrivals[line[0][2]].trace.id
            sentence = f"job {lease.job_id} was claimed while {better}, which comes first in its group, was waiting"
            yield violation_at(claim, "order_violated", sentence, better=better)
