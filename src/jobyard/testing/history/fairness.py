"""Fairness between the groups of a queue, judged at each claim."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterator, Sequence

from jobyard.testing.history.claims import GroupKey, claims_in_order, group_of, group_waiting, violation_at
from jobyard.testing.history.configuration import RecordedConfiguration
from jobyard.testing.history.job_traces import JobTraces
from jobyard.testing.history.violation import Violation
from jobyard.testing.history.waits import WaitSpan

# A claim is compared with this many of the groups that have waited longest; more would make the check quadratic.
GROUPS_LOOKED_AT = 256


def check_fairness(traces: JobTraces, waits: Sequence[WaitSpan], config: RecordedConfiguration) -> Iterator[Violation]:
    """Once served, a group goes to the end of the line: it must not be served again before others that had room."""
    stretches = _stretches(traces, waits)
    may_run = _possible_running(traces)
    counts: dict[GroupKey, int] = defaultdict(int)
    in_line: dict[str, list[tuple[int, int, GroupKey]]] = defaultdict(list)
    served: dict[GroupKey, int] = {}
    joined = moved = 0
    for claim in claims_in_order(traces):
        position, key = claim.position, group_of(claim)
        while moved < len(may_run) and may_run[moved][0] <= position:
            counts[may_run[moved][2]] += may_run[moved][1]
            moved += 1
        while joined < len(stretches) and stretches[joined][0] <= position:
            since, until, waiting = stretches[joined]
            insort(in_line[waiting[0]], (since, until, waiting), key=lambda stretch: stretch[0])
            joined += 1
        before = served.get(key, -1)
        served[key] = position
        line = in_line[key[0]]
        if line and line[0][0] <= before:
            line[:] = [stretch for stretch in line if stretch[1] > position]
        for since, _, waiting in line[:GROUPS_LOOKED_AT]:
            if since > before:
                break
            if waiting != key and _has_room(config, waiting, counts[waiting], position):
                sentence = f"group {key[1]} was served twice while group {waiting[1]} of {key[0]} was waiting"
                yield violation_at(claim, "group_passed_twice", sentence, passed=waiting[1])


def _has_room(configuration: RecordedConfiguration, key: GroupKey, running: int, position: int) -> bool:
    paused = key[1] is not None and True in configuration.pauses(*key, position)
    return not paused and running < min(configuration.group_limits(*key, position))


def _possible_running(traces: JobTraces) -> list[tuple[int, int, GroupKey]]:
    moves: list[tuple[int, int, GroupKey]] = []
    for trace in traces:
        if trace.queue is None:
            continue
        key = (trace.queue, trace.group)
        spans = [(claim.since, claim.may_run_until) for claim in trace.claims]
        spans += [(gap.since, gap.until) for gap in trace.gaps if gap.hidden]
        moves += [move for since, until in spans for move in ((since, 1, key), (until, -1, key))]
    moves.sort(key=lambda move: move[:2])
    return moves


def _stretches(traces: JobTraces, waits: Sequence[WaitSpan]) -> list[tuple[int, int, GroupKey]]:
    """Intervals in which a group certainly had a waiting job and was certainly not served."""
    intervals: dict[GroupKey, list[tuple[int, int]]] = defaultdict(list)
    for wait in waits:
        intervals[group_waiting(wait)].append((wait.since, wait.until))
    cuts: dict[GroupKey, list[tuple[int, int]]] = defaultdict(list)
    for trace in traces:
        if trace.queue is not None:
            cuts[trace.queue, trace.group] += [(claim.since, claim.position + 1) for claim in trace.claims]
            cuts[trace.queue, trace.group] += [(gap.since, gap.until + 1) for gap in trace.gaps if gap.hidden]
    found = [
        (since, until, key)
        for key, group in intervals.items()
        for since, until in _without(_joined(group), sorted(cuts[key]))
    ]
    found.sort(key=lambda stretch: stretch[0])
    return found


def _joined(intervals: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join overlapping intervals: between them there was always a waiting job."""
    intervals.sort()
    since, until = intervals[0]
    for start, end in intervals[1:]:
        if start < until:
            until = max(until, end)
        else:
            yield since, until
            since, until = start, end
    yield since, until


def _without(intervals: Iterator[tuple[int, int]], cuts: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    index = reached = 0
    for start, until in intervals:
        since = max(start, reached)
        while index < len(cuts) and cuts[index][0] < until:
            if since < cuts[index][0]:
                yield since, cuts[index][0]
            reached = max(reached, cuts[index][1])
            since = max(since, reached)
            index += 1
        if since < until:
            yield since, until
