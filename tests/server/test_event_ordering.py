"""An `enqueued` event never follows the later events of its job."""

from __future__ import annotations

import pytest

from jobyard.live_events.event import LiveEvent, LiveEventType
from jobyard.server.streaming.ordering import MAX_JOBS, EventSorter

E, S, P, C, F, R, X = (
    LiveEventType.ENQUEUED,
    LiveEventType.STARTED,
    LiveEventType.PROGRESS,
    LiveEventType.COMPLETED,
    LiveEventType.FAILED,
    LiveEventType.RETRYING,
    LiveEventType.CANCELLED,
)


def sort_events(order: EventSorter, *whats: LiveEventType, job_id: str = "a") -> list[LiveEventType]:
    return [hint.type for hint in order.sorted([LiveEvent(type=what, job_id=job_id) for what in whats])]


@pytest.mark.parametrize(
    ("looks", "shown"),
    [
        ([[E, S, C]], [E, S, C]),
        ([[S, E, C]], [E, S, C]),
        ([[S, P, C, E]], [E, S, P, C]),
        ([[S], [E], [C]], [S, C]),
        ([[S, C], [E]], [S, C]),
        ([[E], [S], [R], [S], [F], [E], [S]], [E, S, R, S, F, E, S]),
        ([[E, X], [E], [S]], [E, X, E, S]),
        ([[E, X, E, S]], [E, X, E, S]),
    ],
    ids=str,
)
def test_enqueued_comes_first_or_is_dropped(looks: list[list[LiveEventType]], shown: list[LiveEventType]) -> None:
    order = EventSorter()
    assert [what for look in looks for what in sort_events(order, *look)] == shown


def test_jobs_are_independent_and_eventually_forgotten() -> None:
    order = EventSorter()
    assert sort_events(order, S, job_id="a") == [S]
    assert sort_events(order, E, job_id="b") == [E]
    for number in range(MAX_JOBS):
        sort_events(order, S, job_id=str(number))
    assert sort_events(order, E, job_id="a") == [E], "it is no longer known to have started"
    assert [hint.type for hint in order.sorted([LiveEvent(type=LiveEventType.RESYNC)])] == [LiveEventType.RESYNC]
