"""Intervals in which a job was certainly waiting and due, and its place in the group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.domain.job import State
from jobyard.ports.admin_store import Action
from jobyard.testing.history.job_traces import NO_SEQUENCE, Gap, JobTrace, JobTraces, Settled, Span
from jobyard.testing.history.timeline import Timeline

Place = tuple[int, int]  # smaller is better


@dataclass(slots=True)
class WaitSpan:
    """Positions `since` to `until`, the latter not included."""

    trace: JobTrace
    place: Place
    since: int
    until: int


@dataclass(slots=True)
class Start:
    """A call that made the job wait in this gap; `begin` orders it against the changes of operators."""

    gap: Gap
    position: int
    due: Instant
    begin: int


def certain_waits(traces: JobTraces) -> list[WaitSpan]:
    return [wait for trace in traces for wait in _waits(trace, traces.timeline)]


def _waits(trace: JobTrace, timeline: Timeline) -> Iterator[WaitSpan]:
    sequence, priority = _place(trace)
    if sequence is None or priority is None:
        return
    for start in _starts(trace, timeline):
        if start.gap.hidden:
            continue
        since = max(start.position, timeline.due_from(start.due))
        until = start.gap.until
        for change in trace.changed(Action.CANCEL, Action.DELETE):
            if change.span.end >= start.begin:
                until = min(until, change.span.earliest)
        yield from _by_priority(trace, sequence, priority, since, until)


def _by_priority(trace: JobTrace, sequence: int, priority: int, since: int, until: int) -> Iterator[WaitSpan]:
    changes = list(trace.changed(Action.PRIORITISE))
    first = min((change.span.earliest for change in changes), default=until)
    if since < min(until, first):
        yield WaitSpan(trace, (-priority, sequence), since, min(until, first))
    if len(changes) == 1 and max(since, changes[0].span.latest) < until:
        yield WaitSpan(trace, (-changes[0].priority, sequence), max(since, changes[0].span.latest), until)


def _place(trace: JobTrace) -> tuple[int | None, int | None]:
    if trace.inserted and trace.submitted and trace.inserted[1].sequence != NO_SEQUENCE:
        return trace.inserted[1].sequence, trace.submitted.priority
    moved = any(True for _ in trace.changed(Action.PRIORITISE))
    seen = trace.claims[0].lease if trace.claims else trace.final
    return (None, None) if seen is None or moved else (seen.sequence, seen.priority)


def _starts(trace: JobTrace, timeline: Timeline) -> Iterator[Start]:
    if trace.inserted and trace.submitted:
        span, submitted = trace.inserted[0], trace.submitted
        due = timeline.now_at_most(span.end, submitted.delay_seconds) if submitted.run_at is None else submitted.run_at
        yield Start(trace.gaps[0], span.latest, due, span.begin)
    for index, claim in enumerate(trace.claims):
        gap = trace.gaps[index + 1]
        if claim.settled is not None:
            if claim.settled.sent.to is State.PENDING and not _may_be_stopped(trace, claim.settled.position):
                yield Start(gap, claim.settled.position, due_after(claim.settled), 0)
        elif claim.reclaim is not None and not trace.is_quarantined_by(claim.reclaim):
            span = claim.reclaim.span
            if not _may_be_stopped(trace, span.latest):
                yield Start(gap, span.latest, timeline.now_at_most(span.end), 0)
    for change in trace.changed(Action.RETRY, Action.RUN_NOW):
        span = change.span
        if span.is_certain and _lies_within(trace, span):
            yield Start(trace.gap_at(span.latest), span.latest, timeline.now_at_most(span.end), span.begin)


def due_after(settled: Settled) -> Instant:
    """When a job that went back to waiting is due, if it is not woken."""
    sent = settled.sent
    if sent.signal is None:
        return after(settled.now, sent.delay_seconds)
    return FOREVER if sent.park_seconds is None else after(settled.now, sent.park_seconds)


def _may_be_stopped(trace: JobTrace, position: int) -> bool:
    """A job whose cancel was requested ends instead of waiting again."""
    return any(change.span.earliest <= position for change in trace.changed(Action.CANCEL))


def _lies_within(trace: JobTrace, span: Span) -> bool:
    return trace.gap_at(span.earliest) is trace.gap_at(span.latest)
