"""Hypothesis strategies of the state machine."""

from __future__ import annotations

from hypothesis import strategies as st

from jobyard.domain.job import Unique, UniqueScope
from jobyard.domain.outcome import Cancel, Done, Failed, Handoff, Outcome, Park, Release, Snooze, TimedOut
from jobyard.domain.schedule import Verdict

# Few names, because faults appear only where jobs compete.
QUEUES = ("one", "two")
GROUPS = (None, "a", "b")
WORKERS = ("w1", "w2")
SIGNALS = ("go", "stay")
SCHEDULES = ("nightly", "hourly")

queue_names = st.sampled_from(QUEUES)
group_names = st.sampled_from(GROUPS)
named_groups = st.sampled_from([name for name in GROUPS if name is not None])
limits = st.sampled_from([None, None, None, 0, 1, 2, 5])
seconds = st.sampled_from([0.0, 0.0004, 0.001, 1.0, 2.5, 7.0, 20.0])
uniques = st.sampled_from(
    [
        None,
        None,
        None,
        Unique("active"),
        Unique("active"),
        Unique("shared"),
        Unique("shared", UniqueScope.PERIOD, 2.0),
        Unique("shared", UniqueScope.PERIOD, 30.0),
        Unique("forever", UniqueScope.FOREVER),
    ]
)
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.just(Done()),
    st.just(Done(b'{"a": 1}')),
    st.builds(Failed, message=st.just("no"), retry=st.booleans(), retry_after_seconds=st.one_of(st.none(), seconds)),
    st.just(TimedOut("late")),
    st.builds(Snooze, seconds),
    st.just(Cancel("enough")),
    st.just(Handoff("pod")),
    st.builds(Park, st.sampled_from(SIGNALS), st.one_of(st.none(), seconds)),
    st.just(Release()),
)
drafts = st.fixed_dictionaries(
    {
        "queue": queue_names,
        "group": group_names,
        "priority": st.integers(-2, 2),
        "max_attempts": st.integers(1, 3),
        "delay_seconds": st.one_of(st.just(0.0), st.just(0.0), st.just(0.0), seconds),
        "unique": uniques,
    }
)

schedule_names = st.sampled_from(SCHEDULES)
plans = st.fixed_dictionaries(
    {
        "schedule": schedule_names,
        "revision": st.sampled_from([1, 1, 1, 2, 3]),
        "at": st.integers(1, 12),
        "verdict": st.sampled_from([Verdict.FIRED, Verdict.FIRED, *Verdict]),
        "first": st.sampled_from([None, None, 1]),
        "count": st.integers(1, 3),
        "skip_if_held": st.booleans(),
    }
)
