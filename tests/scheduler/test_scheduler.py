"""A scheduler turned by hand: what it has the store decide, and what it takes over of changes."""

from __future__ import annotations

import pytest
from tests.scheduler.conftest import every
from tests.scheduler.support import DAY, FIRED, LATE, MINUTE, MISSED, SECOND, SKIPPED, finish_all, jobs, past
from tests.support import Events, Watched

from jobyard.domain.due import next_instant
from jobyard.domain.events import TickDecided, TickDelayed
from jobyard.domain.instant import Instant
from jobyard.domain.job import QueueSettings
from jobyard.domain.schedule import Schedule, Verdict
from jobyard.errors import StoreUnavailable
from jobyard.operations.schedules import COLLECTION, Schedules
from jobyard.scheduler import timetable
from jobyard.scheduler.scheduler import Scheduler
from jobyard.testing.clock import START, ManualClock


async def test_each_instant_becomes_one_job(
    scheduler: Scheduler, schedules: Schedules, clock: ManualClock, watched: Watched, events: Events
) -> None:
    await schedules.add(every("* * * * *", payload={"a": 1}, group="g", jitter_seconds=5))
    await scheduler.run_once()
    for _ in range(3):
        clock.advance(60)
        assert await scheduler.run_once() == 1
        assert await scheduler.run_once() == 0
    found = await jobs(watched)
    assert [job.kind for job in found] == ["k", "k", "k"]
    assert {job.group for job in found} == {"g"}
    stored = await schedules.get("s")
    ticks = [START + number * MINUTE for number in (3, 2, 1)]
    assert [job.run_at for job in found] == [tick + stored.jitter(tick) for tick in ticks]
    assert await past(schedules) == [(60, FIRED, 1), (120, FIRED, 1), (180, FIRED, 1)]
    assert [event.at for event in events.of(TickDecided)] == sorted(ticks)


async def test_of_many_schedulers_one_decides_each_instant(
    watched: Watched, schedules: Schedules, clock: ManualClock
) -> None:
    observers = [Events() for _ in range(5)]
    many = [Scheduler(watched.as_store(), events, name=str(number)) for number, events in enumerate(observers)]
    await schedules.add(every("*/20 * * * * *"))
    for step in range(40):
        clock.advance(7)
        for number in range(5):
            await many[(step + number) % 5].run_once()
    assert await past(schedules) == [(20 * number, FIRED, 1) for number in range(1, 15)]
    assert sorted(event.at for events in observers for event in events.of(TickDecided)) == [
        START + 20 * SECOND * number for number in range(1, 15)
    ]
    assert len(await jobs(watched)) == 14


async def test_changes_are_taken_over(
    scheduler: Scheduler, schedules: Schedules, clock: ManualClock, watched: Watched
) -> None:
    await schedules.add(every("* * * * *"))
    await schedules.add(every("* * * * *", name="other", kind="other"))
    await scheduler.run_once()
    clock.advance(60)
    await schedules.edit("s", {"kind": "edited"})
    await schedules.remove("other")
    assert await scheduler.run_once() == 1
    assert [job.kind for job in await jobs(watched)] == ["edited"]
    await schedules.pause("s")
    clock.advance(600)
    assert await scheduler.run_once() == 0
    await schedules.resume("s")
    assert await scheduler.run_once() == 0
    clock.advance(60)
    assert await scheduler.run_once() == 1
    await schedules.edit("s", {"expression": "*/30 * * * * *"})
    clock.advance(30)
    assert await scheduler.run_once() == 1
    assert await past(schedules) == [(60, FIRED, 1), (720, FIRED, 1), (750, FIRED, 1)]
    assert len(await jobs(watched)) == 3


async def test_a_change_without_a_log_entry_is_found_as_stale(
    scheduler: Scheduler, schedules: Schedules, clock: ManualClock, watched: Watched
) -> None:
    """The process that changed it died before it wrote to the log, or even before it armed the new one."""
    store = watched.as_store()
    await schedules.add(every("* * * * *"))
    await scheduler.run_once()
    watched.failing, watched.failing_verbs = StoreUnavailable("away"), ("append",)
    with pytest.raises(StoreUnavailable):
        await schedules.edit("s", {"kind": "edited"})
    clock.advance(60)
    assert await scheduler.run_once() == 1
    watched.failing_verbs = ("arm",)
    with pytest.raises(StoreUnavailable):
        await schedules.edit("s", {"kind": "again"})
    watched.failing = None
    clock.advance(60)
    await scheduler.run_once()  # of the earlier revision, which is armed still
    await scheduler.definitions.sweep()
    clock.advance(60)
    assert await scheduler.run_once() == 1
    assert [job.kind for job in await jobs(watched)] == ["again", "edited", "edited"]
    record = await store.fetch(COLLECTION, "s")
    assert record is not None
    await store.remove(COLLECTION, "s")
    await scheduler.definitions.sweep()
    clock.advance(60)
    assert await scheduler.run_once() == 0
    await store.put(COLLECTION, "s", record.data)
    await scheduler.definitions.sweep()
    assert await scheduler.run_once() == 1


async def test_a_starting_scheduler_arms_unarmed_schedules(
    scheduler: Scheduler, schedules: Schedules, clock: ManualClock, watched: Watched
) -> None:
    watched.failing, watched.failing_verbs = StoreUnavailable("away"), ("arm",)
    with pytest.raises(StoreUnavailable):
        await schedules.add(every("* * * * *", missed="all"))
    watched.failing = None
    clock.advance(125)
    await scheduler.run_once()
    assert await past(schedules) == [(60, LATE, 1), (120, FIRED, 1)]


async def test_a_name_that_was_armed_under_a_clock_ahead_fires(
    scheduler: Scheduler, schedules: Schedules, clock: ManualClock, watched: Watched
) -> None:
    await schedules.add(every("* * * * *"))
    await watched.as_store().arm("s", START + DAY, START + DAY)
    await scheduler.run_once()
    clock.advance(60)
    assert await scheduler.run_once() == 1


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("skip", [(60, FIRED, 1), (600, MISSED, 9)]),
        ("once", [(60, FIRED, 1), (540, MISSED, 8), (600, LATE, 1)]),
        ("all", [(60, FIRED, 1), (480, MISSED, 7), (540, LATE, 1), (600, LATE, 1)]),
    ],
)
async def test_after_an_absence_the_policy_decides(
    policy: str,
    expected: list[tuple[int, Verdict, int]],
    schedules: Schedules,
    clock: ManualClock,
    watched: Watched,
    events: Events,
) -> None:
    await schedules.add(every("* * * * *", missed=policy, missed_limit=2))
    before, after = (Scheduler(watched.as_store(), events) for _ in range(2))
    await before.run_once()
    clock.advance(60)
    await before.run_once()
    clock.advance(9 * 60 + 40)
    await after.run_once()
    await before.run_once()  # it knew nothing of what the other did
    assert await past(schedules) == expected
    assert len(await jobs(watched)) == sum(verdict.has_job for _, verdict, _ in expected)


async def test_nothing_fires_twice_when_the_clock_is_turned(
    schedules: Schedules, clock: ManualClock, watched: Watched, events: Events
) -> None:
    many = [Scheduler(watched.as_store(), events) for _ in range(2)]
    await schedules.add(every("*/10 * * * *", missed="all", missed_limit=1000))
    for step in (0, 1800, -900, 7200, -7200, 30, 3600, -60, 60, 4000, -86_400, 86_400):
        clock.advance(step)
        for scheduler in many:
            await scheduler.run_once()
    rows = await past(schedules)
    latest = (1800 - 900 + 7200 - 7200 + 30 + 3600 + 4000) // 600
    assert max(row[0] for row in rows) >= 600 * latest
    assert [row[0] for row in rows] == [600 * number for number in range(1, len(rows) + 1)], "each once, none lost"
    assert len(await jobs(watched)) == len(rows)


async def test_an_overlap_is_skipped(
    scheduler: Scheduler, schedules: Schedules, clock: ManualClock, watched: Watched
) -> None:
    await schedules.add(every("* * * * *", overlap="skip"))
    await scheduler.run_once()
    for _ in range(2):
        clock.advance(60)
        await scheduler.run_once()
    first, skipped = reversed(await schedules.history("s"))
    assert (first.verdict, skipped.verdict, skipped.job_id) == (FIRED, SKIPPED, first.job_id)
    await finish_all(watched)
    clock.advance(60)
    await scheduler.run_once()
    assert [row[1] for row in await past(schedules)] == [FIRED, SKIPPED, FIRED]


@pytest.mark.parametrize(("overlap", "verdicts"), [("skip", [FIRED, SKIPPED, FIRED]), ("queue", [FIRED, LATE, FIRED])])
async def test_an_overlap_is_seen_after_the_queue_was_edited(
    scheduler: Scheduler,
    schedules: Schedules,
    clock: ManualClock,
    watched: Watched,
    overlap: str,
    verdicts: list[Verdict],
) -> None:
    await schedules.add(every("* * * * *", overlap=overlap))
    await scheduler.run_once()
    clock.advance(60)
    await scheduler.run_once()
    await schedules.edit("s", {"queue": "another"})
    clock.advance(60)
    await scheduler.run_once()
    assert [job.queue for job in await jobs(watched)] == ["default"]
    await finish_all(watched)
    clock.advance(40)
    await scheduler.run_once()
    await finish_all(watched)
    clock.advance(20)
    await scheduler.run_once()
    assert [row[1] for row in await past(schedules)] == verdicts
    assert (await jobs(watched))[0].queue == "another"


async def test_at_most_one_waits_for_the_job_before_it(
    scheduler: Scheduler, schedules: Schedules, clock: ManualClock, watched: Watched, events: Events
) -> None:
    await schedules.add(every("* * * * *", overlap="queue"))
    await scheduler.run_once()
    for _ in range(4):  # at 60, 120, 180, 240 s
        clock.advance(60)
        await scheduler.run_once()
    assert await past(schedules) == [(60, FIRED, 1), (120, SKIPPED, 1), (180, SKIPPED, 1)]
    clock.advance(40)
    await scheduler.run_once()
    await finish_all(watched)
    other = Scheduler(watched.as_store(), events)  # what waits is durable
    clock.advance(2)
    await other.run_once()
    await scheduler.run_once()
    assert await past(schedules) == [(60, FIRED, 1), (120, SKIPPED, 1), (180, SKIPPED, 1), (240, LATE, 1)]
    await finish_all(watched)
    clock.advance(18)
    await scheduler.run_once()
    assert (await past(schedules))[-1] == (300, FIRED, 1)


async def test_a_full_queue_is_tried_again(
    scheduler: Scheduler, schedules: Schedules, clock: ManualClock, watched: Watched, events: Events
) -> None:
    await watched.as_store().configure("default", QueueSettings(max_waiting=1))
    await schedules.add(every("* * * * *"))
    await scheduler.run_once()
    clock.advance(60)
    await scheduler.run_once()
    clock.advance(60)
    await scheduler.run_once()
    clock.advance(2)
    await scheduler.run_once()
    assert len(events.of(TickDelayed)) == 1, "said once, not each second"
    assert await past(schedules) == [(60, FIRED, 1)]
    await finish_all(watched)
    clock.advance(2)
    await scheduler.run_once()
    assert await past(schedules) == [(60, FIRED, 1), (120, FIRED, 1)]


async def test_start_and_end(scheduler: Scheduler, schedules: Schedules, clock: ManualClock) -> None:
    await schedules.add(every("* * * * *", start_at=START + 3 * MINUTE, end_at=START + 4 * MINUTE))
    for _ in range(8):
        await scheduler.run_once()
        clock.advance(60)
    assert await past(schedules) == [(180, FIRED, 1), (240, FIRED, 1)]


async def test_the_log_is_read_from_where_it_was_left(
    scheduler: Scheduler, schedules: Schedules, watched: Watched, clock: ManualClock
) -> None:
    await schedules.add(every("* * * * *"))
    await scheduler.run_once()
    await schedules.edit("s", {"priority": 1})
    await scheduler.run_once()
    watched.calls.clear()
    for _ in range(10):
        clock.advance(1)
        await scheduler.run_once()
    assert watched.calls["read"] == 10
    assert watched.calls["fetch"] == watched.calls["fetch_all"] == watched.calls["decide"] == 0


@pytest.mark.parametrize("idle", [0, 500])
async def test_schedules_that_are_not_due_cost_nothing(
    idle: int, schedules: Schedules, clock: ManualClock, watched: Watched, events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for number in range(idle):
        await schedules.add(every("0 0 1 1 *", name=f"idle{number}"))
    for name in ("a", "b", "c"):
        await schedules.add(every("* * * * *", name=name))
    scheduler = Scheduler(watched.as_store(), events)
    await scheduler.run_once()
    counted = 0

    def counting(schedule: Schedule, after: Instant) -> Instant | None:
        nonlocal counted
        counted += 1
        return next_instant(schedule, after)

    monkeypatch.setattr(timetable, "next_instant", counting)
    watched.calls.clear()
    for _ in range(5):
        clock.advance(60)
        assert await scheduler.run_once() == 3
    assert counted == 15, "instants were counted of some that are not due"
    assert watched.calls == {"read": 5, "now": 15, "decide": 5}
