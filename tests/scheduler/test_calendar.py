"""The clock is turned through changes of the wall clock, a leap day and a year's end, on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import msgspec
import pytest
from tests.conformance.stores import STORES
from tests.scheduler.conftest import every
from tests.support import Events

from jobyard.domain.instant import instant, rfc3339
from jobyard.domain.schedule import Verdict
from jobyard.operations.schedules import Schedules
from jobyard.ports.store import Store
from jobyard.scheduler.scheduler import Scheduler
from jobyard.testing.clock import ManualClock


class Episode(msgspec.Struct, frozen=True):
    """Turned from the first to the last time in steps, these schedules fire at those times, all UTC."""

    zone: str
    first: str
    last: str
    step_minutes: int
    fires: dict[str, list[str]]


def half_hours(day: str, first: int, last: int) -> list[str]:
    """From one hour to the other, both included."""
    return [f"{day}T{number // 2:02}:{number % 2 * 30:02}:00" for number in range(first * 2, last * 2 + 1)]


EPISODES = (
    Episode(
        "America/New_York", "2026-03-08T05:10", "2026-03-08T09:10", 10,
        {
            "30 2 * * *": ["2026-03-08T07:00:00"],  # 02:30 is left out: at 03:00 there
            "0 30 2 * * *": ["2026-03-08T07:00:00"],
            "*/30 * * * *": half_hours("2026-03-08", 5, 9)[1:],
            "*/30 2 * * *": [],
            "*/30 3 * * *": ["2026-03-08T07:00:00", "2026-03-08T07:30:00"],
        },
    ),
    Episode(
        "Europe/Berlin", "2026-03-28T23:10", "2026-03-29T03:10", 10,
        {
            "30 2 * * *": ["2026-03-29T01:00:00"],
            "0,30 2 * * *": ["2026-03-29T01:00:00"],
            "*/30 * * * *": ["2026-03-28T23:30:00", *half_hours("2026-03-29", 0, 3)],
            "@daily": [],
        },
    ),
    Episode(
        "Australia/Sydney", "2026-04-04T13:10", "2026-04-04T18:10", 10,
        {
            "30 2 * * *": ["2026-04-04T15:30:00"],  # 02:30 comes twice: the first counts
            "0 30 2 * * *": ["2026-04-04T15:30:00"],
            "*/30 2 * * *": half_hours("2026-04-04", 15, 17)[:-1],
            "*/30 * * * *": half_hours("2026-04-04", 13, 18)[1:],
        },
    ),
    Episode(
        "Australia/Sydney", "2026-10-03T14:10", "2026-10-03T18:10", 10,
        {"30 2 * * *": ["2026-10-03T16:00:00"], "*/30 * * * *": half_hours("2026-10-03", 14, 18)[1:]},
    ),
    Episode(
        "Europe/Berlin", "2026-10-24T22:40", "2026-10-25T03:10", 10,
        {
            "30 2 * * *": ["2026-10-25T00:30:00"],
            "*/30 2 * * *": half_hours("2026-10-25", 0, 2)[:-1],
            "0 3 * * *": ["2026-10-25T02:00:00"],
        },
    ),
    Episode(
        "America/New_York", "2026-11-01T03:10", "2026-11-01T08:10", 10,
        {
            "30 1 * * *": ["2026-11-01T05:30:00"],
            "*/30 1 * * *": half_hours("2026-11-01", 5, 7)[:-1],
            "0 * * * *": [f"2026-11-01T{hour:02}:00:00" for hour in range(4, 9)],
        },
    ),
    Episode(
        "Asia/Seoul", "2026-12-31T14:40", "2026-12-31T15:20", 10,
        {"@yearly": ["2026-12-31T15:00:00"], "59 59 23 31 12 *": ["2026-12-31T14:59:59"]},
    ),
    Episode(
        "UTC", "2028-02-28T23:00", "2028-03-01T01:00", 60,
        {
            "0 0 29 2 *": ["2028-02-29T00:00:00"],
            "0 0 * * *": ["2028-02-29T00:00:00", "2028-03-01T00:00:00"],
            "0 0 L 2 *": ["2028-02-29T00:00:00"],
        },
    ),
)  # fmt: skip


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres", "sharded"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    store = STORES[request.param](tmp_path, clock)
    await store.open()
    yield store
    problems = await store.audit()
    await store.close()
    assert problems == []


def steps(episode: Episode) -> Iterable[int]:
    return range(instant(episode.first), instant(episode.last) + 1, episode.step_minutes * 60_000)


async def test_the_calendar_of_three_zones(store: Store, clock: ManualClock) -> None:
    """Two schedulers look at each step, in turns; of a clock that is turned on exactly, every instant is in time."""
    schedules = Schedules(store)
    for number, episode in enumerate(EPISODES):
        clock.set(instant(episode.first))
        names = {f"{number} {expression}": expression for expression in episode.fires}
        for name, expression in names.items():
            await schedules.add(every(expression, name=name, timezone=episode.zone))
        pair = [Scheduler(store, Events()) for _ in range(2)]
        for turn, now in enumerate(steps(episode)):
            clock.set(now)
            await pair[turn % 2].run_once()
            await pair[1 - turn % 2].run_once()
        for name, expression in names.items():
            rows = await schedules.history(name, 100)
            assert {row.verdict for row in rows} <= {Verdict.FIRED}
            fired = [rfc3339(row.at)[:19] for row in reversed(rows)]
            assert fired == episode.fires[expression], (episode.zone, expression)
            await schedules.remove(name)
