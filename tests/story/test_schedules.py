"""Schedulers are killed at the very instant at which they fire, and definitions are changed under them."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from tests.story.harness import Harness
from tests.story.side_by_side import on_each_store
from tests.story.sizes import SOAK, size

from jobyard.domain.due import instants
from jobyard.domain.instant import Instant
from jobyard.domain.schedule import Schedule, Verdict
from jobyard.operations.queries import Queries
from jobyard.operations.schedule_options import make_schedule
from jobyard.operations.schedules import Schedules
from jobyard.ports.admin_store import Filter

pytestmark = [pytest.mark.story, pytest.mark.timeout(900 if SOAK else 300)]

SCHEDULERS = 5
KILLS = size(8, 200)
# From shortly before the instant, when all still sleep, until shortly after, when its jobs are in.
KILL_BETWEEN_SECONDS = (-0.004, 0.03)


def every(expression: str, **words: object) -> Schedule:
    return make_schedule({"name": expression, "expression": expression, "kind": "span", "overlap": "allow", **words})


def service(harness: Harness) -> Schedules:
    return Schedules(harness.yard.store, shortest_interval_seconds=1)


async def fired(harness: Harness, name: str) -> list[Instant]:
    """Of which instants there are jobs, with each job."""
    return sorted([job.run_at async for job in Queries(harness.yard.store).walk(Filter(tag=f"schedule:{name}"))])


async def until(harness: Harness, at: float) -> None:
    """Sleep until an instant of the store's clock."""
    await asyncio.sleep(max(0.0, (at - await harness.yard.store.now()) / 1000))


async def test_five_schedulers_and_one_is_killed_at_each_instant(stage: Path) -> None:
    await on_each_store(killed_at_each_instant, "five schedulers and one is killed at each instant", stage)


async def killed_at_each_instant(harness: Harness) -> None:
    parent = await harness.start_pool("scheduler", SCHEDULERS)
    begin = await harness.yard.store.now()
    end = begin // 1000 * 1000 + (KILLS + 3) * 1000
    added = [
        await service(harness).add(every(expression, missed="all", missed_limit=1000, end_at=end))
        for expression in ("* * * * * *", "*/2 * * * * *", "1-59/2 * * * * *", "*/5 * * * * *")
    ]
    for number in range(KILLS):
        at = begin // 1000 * 1000 + (number + 2) * 1000
        await harness.until(lambda: len(harness.pids("scheduler")) >= SCHEDULERS, "all schedulers are up again")
        await until(harness, at + random.uniform(*KILL_BETWEEN_SECONDS) * 1000)
        harness.kill_pid(random.choice(harness.pids("scheduler")))

    expected = {schedule.name: list(instants(schedule, schedule.since)) for schedule in added}

    async def all_fired() -> bool:
        return all([len(await fired(harness, name)) >= len(ticks) for name, ticks in expected.items()])

    await until(harness, end + 1000)
    await harness.until(all_fired, "the last instants have fired")
    for name, ticks in expected.items():
        assert await fired(harness, name) == ticks, "the fired set is not the expected set"
        rows = await service(harness).history(name, 100)
        assert [row.at for row in reversed(rows)] == ticks[-100:]
        assert {row.verdict for row in rows} == {Verdict.FIRED}
    await harness.stop([parent])
    result = await harness.verify()
    assert result.kills == KILLS


async def test_edited_paused_and_removed_while_it_fires(stage: Path) -> None:
    await on_each_store(edited_paused_and_removed, "a schedule edited, paused and removed while it fires", stage)


async def edited_paused_and_removed(harness: Harness) -> None:
    """What a verb has answered holds from then on, whatever the schedulers know yet."""
    schedules, store = service(harness), harness.yard.store
    parent = await harness.start_pool("scheduler", 3)
    added = await schedules.add(every("* * * * * *", name="s", priority=1, missed="all"))
    await harness.until(lambda: _has(harness, 1), "it fires within a second")
    assert min(await fired(harness, "s")) == next(instants(added, added.since))

    await schedules.edit("s", {"priority": 2})
    answered = await store.now()
    await harness.until(lambda: _has(harness, 2), "the edited one fires")
    paused, silent_since = await schedules.pause("s"), await store.now()
    await until(harness, silent_since + 2100)
    resumed = await schedules.resume("s")
    await schedules.edit("s", {"priority": 3})
    await harness.until(lambda: _has(harness, 3), "the resumed one fires")
    await schedules.remove("s")
    removed_at = await store.now()
    await until(harness, removed_at + 1500)

    jobs = await harness.all_jobs()
    ticks = sorted(job.run_at for job in jobs)
    assert len(set(ticks)) == len(ticks), "an instant fired twice"
    assert all(job.priority >= 2 for job in jobs if job.created_at > answered), "an old definition fired"
    assert not [at for at in ticks if paused.changed_at + 1000 <= at <= resumed.since], "it fired while it was paused"
    assert not [job for job in jobs if job.created_at > removed_at], "it fired after its removal"
    until_pause = [at for at in ticks if at <= paused.changed_at]
    assert until_pause == list(range(until_pause[0], until_pause[-1] + 1, 1000)), "an instant was lost"
    since_resumed = [at for at in ticks if at > resumed.since]
    assert since_resumed == list(range(since_resumed[0], since_resumed[-1] + 1, 1000)), "an instant was lost"
    assert await store.armed() == []
    await harness.stop([parent])
    await harness.verify()


async def _has(harness: Harness, priority: int) -> bool:
    return any(job.priority == priority for job in await harness.all_jobs())


async def test_two_hosts_whose_clocks_differ_by_seconds(stage: Path) -> None:
    """On servers: a file has no clock but that of the one machine it is on."""
    await on_each_store(clocks_differ, "two hosts whose clocks differ by seconds", stage, ("redis", "postgres"))


async def clocks_differ(harness: Harness) -> None:
    schedules = service(harness)
    parent = await harness.start_pool("scheduler", 2, clocks=(7.0, -5.0))
    end = await harness.yard.store.now() // 1000 * 1000 + 6000
    added = await schedules.add(every("* * * * * *", name="s", missed="skip", end_at=end))
    await until(harness, end + 1000)
    expected = list(instants(added, added.since))
    assert await fired(harness, "s") == expected
    rows = await schedules.history("s")
    assert all(-50 <= row.decided_at - row.at < 1000 for row in rows), "another clock than the store's was used"
    assert {row.verdict for row in rows} == {Verdict.FIRED}
    await harness.stop([parent])
    await harness.verify()
