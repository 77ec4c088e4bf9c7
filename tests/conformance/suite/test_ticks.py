"""Ticks: each due instant of a schedule is decided once, with or without a job."""

from __future__ import annotations

import pytest
from tests.conformance.support import (
    armed,
    claim_ids,
    claim_one,
    configure,
    decide_one,
    fired,
    get_job,
    group_info,
    insert_one,
    new,
    queue_info,
    settle,
    tick,
)

from jobyard.domain.job import Unique, UniqueScope
from jobyard.domain.outcome import Done
from jobyard.domain.schedule import Verdict
from jobyard.errors import BadInput
from jobyard.ports.admin_store import Action
from jobyard.ports.schedule_store import ArmedSchedule, Decided, Decision, Tick, TickInfo
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock

KEY = Unique("schedule:nightly")
KNOWN, STALE = Decided(Decision.KNOWN), Decided(Decision.STALE)
HELD, FULL = Decided(Decision.HELD), Decided(Decision.FULL)


@pytest.fixture
async def nightly(store: Store) -> Store:
    """Return the store with the schedule "nightly" armed since 0."""
    assert await store.arm("nightly", 1, since=0)
    return store


async def test_an_instant_is_decided_once(nightly: Store, clock: ManualClock) -> None:
    first, second = new(), new()
    assert await decide_one(nightly, 1000, first) == fired(first.id)
    assert await decide_one(nightly, 1000, second) == KNOWN
    assert await nightly.get(second.id) is None
    assert (await queue_info(nightly)).waiting == 1
    assert (await decide_one(nightly, 1001)).decision is Decision.MADE
    assert await armed(nightly) == ArmedSchedule("nightly", 1, 1001)


async def test_schedules_are_independent(nightly: Store) -> None:
    await nightly.arm("hourly", 7, since=0)
    await decide_one(nightly, 1000)
    assert (await decide_one(nightly, 1000, schedule="hourly", revision=7)).decision is Decision.MADE
    assert await armed(nightly, "nightly") == ArmedSchedule("nightly", 1, 1000)
    assert [len(await nightly.ticks(name)) for name in ("nightly", "hourly")] == [1, 1]


async def test_decided_ticks_are_listed_newest_first(nightly: Store, clock: ManualClock) -> None:
    job = new()
    await decide_one(nightly, 1000, job)
    clock.advance(1)
    await decide_one(nightly, 5000, verdict=Verdict.MISSED, first=2000, count=4)
    await decide_one(nightly, 6000, verdict=Verdict.SKIPPED)
    late = new()
    assert await decide_one(nightly, 7000, late, verdict=Verdict.LATE, first=6500, count=2) == Decided(
        Decision.MADE, Verdict.LATE, late.id
    )
    now, start = clock.now(), clock.now() - 1000

    def info(at: int, verdict: Verdict, job_id: str | None, first: int, count: int, decided_at: int) -> TickInfo:
        return TickInfo(
            schedule="nightly", at=at, verdict=verdict, job_id=job_id, first=first, count=count, decided_at=decided_at
        )

    assert await nightly.ticks("nightly") == [
        info(7000, Verdict.LATE, late.id, 6500, 2, now),
        info(6000, Verdict.SKIPPED, None, 6000, 1, now),
        info(5000, Verdict.MISSED, None, 2000, 4, now),
        info(1000, Verdict.FIRED, job.id, 1000, 1, start),
    ]
    assert [each.at for each in await nightly.ticks("nightly", limit=2)] == [7000, 6000]
    assert [each.at for each in await nightly.ticks("nightly", limit=2, before=6000)] == [5000, 1000]
    assert await nightly.ticks("nightly", before=1000) == []
    assert await nightly.ticks("never") == []


async def test_ticks_without_a_job_create_no_queue(nightly: Store) -> None:
    responses = await nightly.decide(
        [tick(1000, verdict=Verdict.MISSED, queue="unknown"), tick(2000, verdict=Verdict.SKIPPED, queue="unknown")]
    )
    assert responses == [Decided(Decision.MADE, Verdict.MISSED), Decided(Decision.MADE, Verdict.SKIPPED)]
    assert await nightly.queues() == []
    assert await armed(nightly) == ArmedSchedule("nightly", 1, 2000)


async def test_deciding_no_ticks(nightly: Store) -> None:
    assert await nightly.decide([]) == []


async def test_the_job_of_a_tick_is_an_ordinary_job(nightly: Store, clock: ManualClock) -> None:
    earlier = await insert_one(nightly, group="a", delay_seconds=1)
    clock.advance(1)
    job = new(group="b", queue="default", priority=3, tags=("schedule:nightly", "x"), payload=b'{"a":1}')
    assert await decide_one(nightly, clock.now(), job) == fired(job.id)
    found = await get_job(nightly, job.id)
    assert (found.group, found.priority, found.tags, bytes(found.payload)) == ("b", 3, job.tags, b'{"a":1}')
    assert (await group_info(nightly, "b")).waiting == 1
    assert await claim_ids(nightly, 2) == [earlier, job.id]


async def test_the_job_of_a_tick_may_be_delayed(nightly: Store, clock: ManualClock) -> None:
    job = new(run_at=clock.now() + 5000)
    await decide_one(nightly, clock.now(), job)
    assert (await queue_info(nightly)).delayed == 1
    assert await claim_ids(nightly) == []
    clock.advance(5)
    assert await claim_ids(nightly) == [job.id]


async def test_jobs_of_one_call_are_in_the_order_of_their_ticks(nightly: Store) -> None:
    await nightly.arm("hourly", 1, since=0)
    names = ["nightly", "hourly", "nightly", "hourly"]
    ticks = [tick(1000 + number, schedule=name) for number, name in enumerate(names)]
    responses = await nightly.decide(ticks)
    ids = [each.job.id for each in ticks if each.job]
    assert responses == [fired(job_id) for job_id in ids]
    sequences = [(await get_job(nightly, job_id)).sequence for job_id in ids]
    assert sequences == sorted(set(sequences))
    assert await claim_ids(nightly, 9) == ids


async def test_an_instant_stays_decided_when_its_job_is_deleted(nightly: Store) -> None:
    job = new()
    await decide_one(nightly, 1000, job)
    await nightly.change(Action.DELETE, [job.id])
    assert await decide_one(nightly, 1000) == KNOWN
    assert [each.job_id for each in await nightly.ticks("nightly")] == [job.id]


async def test_the_same_tick_twice_in_one_call(nightly: Store) -> None:
    first, second = new(), new()
    assert await nightly.decide([tick(1000, first), tick(1000, second)]) == [fired(first.id), KNOWN]
    assert await nightly.get(second.id) is None
    assert len(await nightly.ticks("nightly")) == 1
    # Even with the same job: its id is checked only when it would be inserted.
    third = new()
    assert await nightly.decide([tick(2000, third), tick(2000, third)]) == [fired(third.id), KNOWN]


async def test_an_earlier_instant_after_a_later_one_is_known(nightly: Store) -> None:
    later, earlier = new(), new()
    assert await nightly.decide([tick(2000, later), tick(1000, earlier)]) == [fired(later.id), KNOWN]
    assert await decide_one(nightly, 1500) == KNOWN
    assert await armed(nightly) == ArmedSchedule("nightly", 1, 2000)


async def test_instants_up_to_since_are_known(store: Store) -> None:
    await store.arm("nightly", 1, since=1000)
    assert await decide_one(store, 999) == KNOWN
    assert await decide_one(store, 1000) == KNOWN
    assert (await decide_one(store, 1001)).decision is Decision.MADE


async def test_ticks_of_an_unarmed_schedule_are_stale(store: Store) -> None:
    assert await decide_one(store, 1000) == STALE
    await store.arm("nightly", 1, since=0)
    await store.disarm("nightly")
    assert await decide_one(store, 1000, verdict=Verdict.MISSED) == STALE
    assert await store.queues() == []
    assert await store.ticks("nightly") == []


@pytest.mark.parametrize("revision", [4, 6])
async def test_another_revision_is_stale(store: Store, revision: int) -> None:
    await store.arm("nightly", 5, since=0)
    assert await decide_one(store, 1000, revision=revision) == STALE
    assert await store.queues() == []
    assert (await decide_one(store, 1000, revision=5)).decision is Decision.MADE


async def test_a_new_revision_stops_the_old_one_at_once(nightly: Store) -> None:
    await decide_one(nightly, 1000)
    await nightly.arm("nightly", 2)
    assert await decide_one(nightly, 2000, revision=1) == STALE
    assert await decide_one(nightly, 1000, revision=2) == KNOWN
    assert (await decide_one(nightly, 2000, revision=2)).decision is Decision.MADE


async def test_stale_and_known_ticks_do_not_affect_others(nightly: Store) -> None:
    await nightly.arm("hourly", 2, since=5000)
    jobs = [new() for _ in range(5)]
    responses = await nightly.decide(
        [
            tick(6000, jobs[0], schedule="unknown"),
            tick(6000, jobs[1], schedule="hourly", revision=1),
            tick(5000, jobs[2], schedule="hourly", revision=2),
            tick(6000, jobs[3], schedule="hourly", revision=2),
            tick(6000, jobs[4]),
        ]
    )
    assert responses == [STALE, STALE, KNOWN, fired(jobs[3].id), fired(jobs[4].id)]
    assert (await queue_info(nightly)).waiting == 2


async def test_a_held_key_leaves_the_tick_undecided(nightly: Store) -> None:
    holder = await insert_one(nightly, unique=KEY)
    job = new(unique=KEY)
    assert await decide_one(nightly, 1000, job) == HELD
    assert await nightly.get(job.id) is None
    assert await nightly.ticks("nightly") == []
    assert await armed(nightly) == ArmedSchedule("nightly", 1, 0)
    await nightly.change(Action.CANCEL, [holder])
    assert await decide_one(nightly, 1000, job) == fired(job.id)


async def test_a_held_key_may_skip_the_tick(nightly: Store) -> None:
    holder = await insert_one(nightly, unique=KEY)
    job = new(unique=KEY)
    skipped = Decided(Decision.MADE, Verdict.SKIPPED, holder)
    assert await decide_one(nightly, 1000, job, skip_if_held=True) == skipped
    assert await nightly.get(job.id) is None
    [tick_info] = await nightly.ticks("nightly")
    assert (tick_info.at, tick_info.verdict, tick_info.job_id) == (1000, Verdict.SKIPPED, holder)
    assert await armed(nightly) == ArmedSchedule("nightly", 1, 1000)
    assert await decide_one(nightly, 1000, job, skip_if_held=True) == KNOWN


async def test_a_free_key_is_acquired_and_released_at_the_end(nightly: Store) -> None:
    first, second, third = new(unique=KEY), new(unique=KEY), new(unique=KEY)
    assert await decide_one(nightly, 1000, first, skip_if_held=True) == fired(first.id)
    lease = await claim_one(nightly)
    assert await decide_one(nightly, 2000, second) == HELD
    await settle(nightly, lease, Done())
    assert await decide_one(nightly, 2000, second) == fired(second.id)
    assert await decide_one(nightly, 3000, third, skip_if_held=True) == Decided(
        Decision.MADE, Verdict.SKIPPED, second.id
    )


async def test_a_key_of_a_period_is_free_afterwards(nightly: Store, clock: ManualClock) -> None:
    holder = await insert_one(nightly, unique=Unique("key", UniqueScope.PERIOD, 60.0))
    job = new(unique=Unique("key"))
    clock.advance(59.999)
    assert await decide_one(nightly, 1000, job) == HELD
    clock.advance(0.001)
    assert await decide_one(nightly, 1000, job) == fired(job.id)
    assert await decide_one(nightly, 2000, new(unique=Unique("key")), skip_if_held=True) == Decided(
        Decision.MADE, Verdict.SKIPPED, job.id
    )
    assert holder != job.id


async def test_keys_within_one_call(nightly: Store) -> None:
    jobs = [new(unique=KEY) for _ in range(3)]
    ticks = [tick(1000 * number, job, skip_if_held=number == 2) for number, job in enumerate(jobs, 1)]
    assert await nightly.decide(ticks) == [
        fired(jobs[0].id),
        Decided(Decision.MADE, Verdict.SKIPPED, jobs[0].id),
        HELD,
    ]
    assert (await queue_info(nightly)).waiting == 1
    assert await armed(nightly) == ArmedSchedule("nightly", 1, 2000)


async def test_a_key_belongs_to_its_queue(nightly: Store) -> None:
    await insert_one(nightly, unique=KEY, queue="other")
    assert (await decide_one(nightly, 1000, new(unique=KEY))).decision is Decision.MADE


async def test_a_full_queue_leaves_the_tick_undecided(nightly: Store) -> None:
    await configure(nightly, max_waiting=1)
    await insert_one(nightly)
    job = new(unique=KEY)
    assert await decide_one(nightly, 1000, job) == FULL
    assert await nightly.get(job.id) is None
    assert await nightly.ticks("nightly") == []
    assert await armed(nightly) == ArmedSchedule("nightly", 1, 0)
    # No key was acquired either.
    await configure(nightly, max_waiting=2)
    assert await decide_one(nightly, 1000, job) == fired(job.id)


async def test_a_full_group_leaves_the_tick_undecided(nightly: Store) -> None:
    await nightly.arm("hourly", 1, since=0)
    await configure(nightly, max_waiting_per_group=1)
    await insert_one(nightly, group="acme")
    other = new(group="other")
    responses = await nightly.decide([tick(1000, new(group="acme")), tick(1000, other, schedule="hourly")])
    assert responses == [FULL, fired(other.id)]
    assert [info.name for info in await nightly.groups("default")] == ["acme", "other"]
    assert (await group_info(nightly, "acme")).waiting == 1


async def test_the_group_limit_does_not_apply_to_ungrouped_jobs(nightly: Store) -> None:
    await configure(nightly, max_waiting_per_group=1)
    responses = await nightly.decide([tick(at) for at in (1000, 2000, 3000)])
    assert {each.decision for each in responses} == {Decision.MADE}


async def test_the_jobs_of_one_call_count_together(nightly: Store) -> None:
    await configure(nightly, max_waiting=2)
    for name in ("a", "b", "c", "d"):
        await nightly.arm(name, 1, since=0)
    jobs = [new(group=group, delay_seconds=delay) for group, delay in (("x", 0), (None, 9), ("x", 0), (None, 0))]
    ticks = [tick(1000, job, schedule=name) for name, job in zip("abcd", jobs, strict=True)]
    assert await nightly.decide(ticks) == [fired(jobs[0].id), fired(jobs[1].id), FULL, FULL]
    info = await queue_info(nightly)
    assert (info.waiting, info.delayed) == (1, 1)


async def test_the_jobs_of_one_call_count_together_in_their_group(nightly: Store) -> None:
    await nightly.arm("hourly", 1, since=0)
    await nightly.arm("daily", 1, since=0)
    await configure(nightly, max_waiting_per_group=1)
    first, other = new(group="acme"), new(group="other")
    ticks = [tick(1000, first), tick(1000, new(group="acme"), schedule="hourly"), tick(1000, other, schedule="daily")]
    assert await nightly.decide(ticks) == [fired(first.id), FULL, fired(other.id)]


async def test_delayed_jobs_count(nightly: Store) -> None:
    await configure(nightly, max_waiting=1)
    await insert_one(nightly, delay_seconds=60)
    assert await decide_one(nightly, 1000) == FULL
    await configure(nightly, max_waiting_per_group=1)
    await insert_one(nightly, group="acme", delay_seconds=60)
    assert await decide_one(nightly, 1000, new(group="acme")) == FULL


async def test_a_held_key_comes_before_a_full_queue(nightly: Store) -> None:
    await configure(nightly, max_waiting=1)
    holder = await insert_one(nightly, unique=KEY)
    assert await decide_one(nightly, 1000, new(unique=KEY)) == HELD
    skipped = Decided(Decision.MADE, Verdict.SKIPPED, holder)
    assert await decide_one(nightly, 1000, new(unique=KEY), skip_if_held=True) == skipped


async def test_no_tick_overtakes_a_held_one_of_its_schedule(nightly: Store) -> None:
    await nightly.arm("hourly", 1, since=0)
    await nightly.arm("daily", 1, since=0)
    await configure(nightly, max_waiting_per_group=1)
    holder = await insert_one(nightly, unique=KEY, group="acme")
    passing, free = new(), new()
    responses = await nightly.decide(
        [
            tick(1000, new(unique=KEY)),
            tick(1000, new(group="acme"), schedule="hourly"),
            tick(2000, passing),
            tick(3000, verdict=Verdict.MISSED),
            tick(2000, schedule="hourly", verdict=Verdict.MISSED),
            tick(2000, free, schedule="daily"),
        ]
    )
    assert responses == [HELD, FULL, HELD, HELD, FULL, fired(free.id)]
    assert await nightly.get(passing.id) is None
    assert await armed(nightly, "nightly") == ArmedSchedule("nightly", 1, 0)
    assert await armed(nightly, "hourly") == ArmedSchedule("hourly", 1, 0)
    await nightly.change(Action.DELETE, [holder])
    assert (await decide_one(nightly, 1000, new(unique=KEY))).decision is Decision.MADE


async def test_a_held_tick_can_be_abandoned_before_the_next(nightly: Store) -> None:
    await insert_one(nightly, unique=KEY)
    assert await decide_one(nightly, 1000, new(unique=KEY)) == HELD
    responses = await nightly.decide([tick(1000, verdict=Verdict.SKIPPED), tick(2000, new(unique=KEY))])
    assert responses == [Decided(Decision.MADE, Verdict.SKIPPED), HELD]
    assert await armed(nightly) == ArmedSchedule("nightly", 1, 1000)


async def test_a_duplicate_id_decides_nothing_of_the_call(nightly: Store) -> None:
    known = await insert_one(nightly)
    first = new()
    with pytest.raises(BadInput):
        await nightly.decide([tick(1000, first), tick(2000, new(id=known))])
    twice = new()
    with pytest.raises(BadInput):
        await nightly.decide([tick(1000, twice), tick(2000, twice)])
    assert await nightly.get(first.id) is None
    assert await nightly.get(twice.id) is None
    assert await nightly.ticks("nightly") == []
    assert await armed(nightly) == ArmedSchedule("nightly", 1, 0)
    # A job that is not inserted may have a duplicate id.
    await decide_one(nightly, 1000)
    assert await decide_one(nightly, 1000, new(id=known)) == KNOWN


def test_an_inconsistent_tick_cannot_be_constructed() -> None:
    job = new()
    for wrong in (
        {"verdict": Verdict.FIRED},
        {"verdict": Verdict.LATE},
        {"verdict": Verdict.MISSED, "job": job},
        {"verdict": Verdict.SKIPPED, "job": job},
        {"verdict": Verdict.FIRED, "job": job, "queue": "other"},
        {"verdict": Verdict.MISSED, "count": 0},
        {"verdict": Verdict.MISSED, "first": 1001},
    ):
        with pytest.raises(BadInput):
            Tick(**{"schedule": "nightly", "revision": 1, "at": 1000, "queue": "default", **wrong})  # type: ignore[arg-type]
