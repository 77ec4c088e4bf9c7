"""Where a job was certainly waiting and due, with which place in its group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.domain.job import State
from jobyard.ports.admin_store import Action
from jobyard.testing.history.life import UNTOLD, Gap, Life, Settled, Span
from jobyard.testing.history.lives import Lives
from jobyard.testing.history.timeline import Timeline

Place = tuple[int, int]  # smaller is better


@dataclass(slots=True)
class Wait:
    """Positions `since` to `until`, the latter not included."""

    life: Life
    place: Place
    since: int
    until: int


@dataclass(slots=True)
class Start:
    """Something that made the job wait in this gap; `begin` orders it against people's changes."""

    gap: Gap
    position: int
    due: Instant
    begin: int


def certain_waits(lives: Lives) -> list[Wait]:
    return [wait for life in lives for wait in _waits(life, lives.timeline)]


def _waits(life: Life, timeline: Timeline) -> Iterator[Wait]:
    sequence, priority = _place(life)
    if sequence is None or priority is None:
        return
    for start in _starts(life, timeline):
        if start.gap.hidden:
            continue
        since = max(start.position, timeline.due_from(start.due))
        until = start.gap.until
        for change in life.changed(Action.CANCEL, Action.DELETE):
            if change.span.end >= start.begin:
                until = min(until, change.span.earliest)
        yield from _by_priority(life, sequence, priority, since, until)


def _by_priority(life: Life, sequence: int, priority: int, since: int, until: int) -> Iterator[Wait]:
    changes = list(life.changed(Action.PRIORITISE))
    first = min((change.span.earliest for change in changes), default=until)
    if since < min(until, first):
        yield Wait(life, (-priority, sequence), since, min(until, first))
    if len(changes) == 1 and max(since, changes[0].span.latest) < until:
        yield Wait(life, (-changes[0].priority, sequence), max(since, changes[0].span.latest), until)


def _place(life: Life) -> tuple[int | None, int | None]:
    if life.inserted and life.handed and life.inserted[1].sequence != UNTOLD:
        return life.inserted[1].sequence, life.handed.priority
    moved = any(True for _ in life.changed(Action.PRIORITISE))
    seen = life.claims[0].lease if life.claims else life.final
    return (None, None) if seen is None or moved else (seen.sequence, seen.priority)


def _starts(life: Life, timeline: Timeline) -> Iterator[Start]:
    if life.inserted and life.handed:
        span, handed = life.inserted[0], life.handed
        due = timeline.now_at_most(span.end, handed.delay_seconds) if handed.run_at is None else handed.run_at
        yield Start(life.gaps[0], span.latest, due, span.begin)
    for index, claim in enumerate(life.claims):
        gap = life.gaps[index + 1]
        if claim.settled is not None:
            if claim.settled.sent.to is State.PENDING and not _may_be_stopped(life, claim.settled.position):
                yield Start(gap, claim.settled.position, due_after(claim.settled), 0)
        elif claim.reclaim is not None and not life.is_quarantined_by(claim.reclaim):
            span = claim.reclaim.span
            if not _may_be_stopped(life, span.latest):
                yield Start(gap, span.latest, timeline.now_at_most(span.end), 0)
    for change in life.changed(Action.RETRY, Action.RUN_NOW):
        span = change.span
        if span.is_certain and _lies_within(life, span):
            yield Start(life.gap_at(span.latest), span.latest, timeline.now_at_most(span.end), span.begin)


def due_after(settled: Settled) -> Instant:
    """When a job that went back to waiting is due, if it is not woken."""
    sent = settled.sent
    if sent.signal is None:
        return after(settled.now, sent.delay_seconds)
    return FOREVER if sent.park_seconds is None else after(settled.now, sent.park_seconds)


def _may_be_stopped(life: Life, position: int) -> bool:
    """A job that was asked to stop ends instead of waiting again."""
    return any(change.span.earliest <= position for change in life.changed(Action.CANCEL))


def _lies_within(life: Life, span: Span) -> bool:
    return life.gap_at(span.earliest) is life.gap_at(span.latest)
