"""The due instants of a schedule and the verdict on each; pure, so that all schedulers agree."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import takewhile

import msgspec

from jobyard.domain.cron import cron
from jobyard.domain.instant import Instant
from jobyard.domain.schedule import GRACE_SECONDS, Missed, Schedule, Verdict

GRACE = round(GRACE_SECONDS * 1000)
# After a long outage at most this many instants are counted one by one; beyond it, the count of an irregular schedule
# is a lower bound.
MAX_COUNTED = 500


class TickPlan(msgspec.Struct, frozen=True):
    """The verdict on the instant `at`; when MISSED, on `count` instants from `first` on."""

    at: Instant
    verdict: Verdict
    first: Instant
    count: int = 1


def instants(schedule: Schedule, after: Instant) -> Iterator[Instant]:
    """The instants later than `after`, within the schedule's start and end, and since its timing was last changed."""
    start = after if schedule.start_at is None else schedule.start_at - 1
    for at in cron(schedule.expression, schedule.timezone).after(max(after, start, schedule.since)):
        if schedule.end_at is not None and at > schedule.end_at:
            return
        yield at


def next_instant(schedule: Schedule, after: Instant) -> Instant | None:
    return next(instants(schedule, after), None)


def due(schedule: Schedule, decided_until: Instant, now: Instant, held: Instant | None = None) -> list[TickPlan]:
    """Plans for all instants after `decided_until` up to now, in order; none is left out.

    Up to `held` the store reported that an earlier job has not ended: the newest of these instants waits for it,
    however long it takes, and the others are skipped.
    """
    waiting = [] if held is None else list(_between(schedule, decided_until, min(held, now)))
    known = waiting[-1] if waiting else decided_until
    in_time = list(_between(schedule, max(known, now - GRACE - 1), now))
    plans = _catch_up(schedule, known, now - GRACE - 1, is_followed=bool(in_time))
    plans += [TickPlan(at, Verdict.FIRED, at) for at in in_time]
    if waiting and not plans:
        newest = waiting.pop()
        plans = [TickPlan(newest, Verdict.LATE if now - newest > GRACE else Verdict.FIRED, newest)]
    return [TickPlan(at, Verdict.SKIPPED, at) for at in waiting] + plans


def _between(schedule: Schedule, after: Instant, until: Instant) -> Iterator[Instant]:
    return takewhile(lambda at: at <= until, instants(schedule, after) if after < until else ())


def _catch_up(schedule: Schedule, after: Instant, until: Instant, *, is_followed: bool) -> list[TickPlan]:
    """Plans for overdue instants: some are fired late, the rest is one MISSED plan."""
    wanted = _wanted(schedule, is_followed)
    first, count, newest = _overdue(schedule, after, until, wanted + 1)
    late = newest[-wanted:] if wanted else []
    plans: list[TickPlan] = []
    if count > len(late):
        last = newest[-1 - len(late)]
        plans.append(TickPlan(last, Verdict.MISSED, first, count - len(late)))
    return plans + [TickPlan(at, Verdict.LATE, at) for at in late]


def _wanted(schedule: Schedule, is_followed: bool) -> int:
    match schedule.missed:
        case Missed.SKIP:
            return 0
        case Missed.ONCE:
            return 0 if is_followed else 1
        case Missed.ALL:
            return schedule.missed_limit


def _overdue(schedule: Schedule, after: Instant, until: Instant, wanted: int) -> tuple[Instant, int, Sequence[Instant]]:
    """The first instant between, how many there are, and the newest of them."""
    first, count = 0, 0
    newest: deque[Instant] = deque(maxlen=wanted)
    for at in _between(schedule, after, until):
        first = first or at
        count += 1
        newest.append(at)
        if count == MAX_COUNTED:
            late = _newest(schedule, at, until, wanted, (at - first) // count)
            every = cron(schedule.expression, schedule.timezone).every_seconds()
            if every is not None and late:
                return first, (late[-1] - first) // (every * 1000) + 1, [*newest, *late][-wanted:]
            return first, count + len(late), [*newest, *late][-wanted:]
    return first, count, list(newest)


def _newest(schedule: Schedule, after: Instant, until: Instant, wanted: int, distance: int) -> list[Instant]:
    """The last instants before `until`, searched from ever further back; they are about `distance` apart."""
    span = wanted * max(distance, 1000)
    while True:
        begin = max(after, until - span)
        found = deque(_between(schedule, begin, until), maxlen=wanted)
        if len(found) == wanted or begin == after:
            return list(found)
        span *= 2
