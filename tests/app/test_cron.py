"""`@yard.cron` and jobyard.yaml: what is declared, refused, written, kept and called by the clock."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from tests.support import eventually

from jobyard import BlockingContext, Context, Jobyard
from jobyard.app.cron import of_file
from jobyard.app.scheduling import Scheduling, declare_all
from jobyard.domain.job import State
from jobyard.domain.schedule import TAG, Missed, Overlap
from jobyard.errors import BadInput, BadOption, NotPossible
from jobyard.operations.schedules import Schedules, definition
from jobyard.ports.admin_store import Filter
from jobyard.testing.clock import ManualClock

NOW = 1_800_000_000_000


@pytest.fixture
async def yard() -> AsyncIterator[Jobyard]:
    async with Jobyard("memory://", name="shop") as yard:
        yield yard


async def test_a_handler_is_declared_with_its_schedule(yard: Jobyard) -> None:
    @yard.cron("*/5 * * * *", tz="Asia/Seoul")
    async def sync(ctx: Context) -> int:
        return 1

    @yard.cron("@daily", payload={"days": 1}, priority=3)
    @yard.cron(
        "@weekly", name="weekly", payload={"days": 7}, max_retry=0, timeout=5, overlap="allow", missed="all",
        missed_limit=2, jitter=60, start=datetime(2030, 1, 1, tzinfo=UTC), enabled=False,
    )  # fmt: skip
    @yard.job(queue="reports", group="acme", max_attempts=2, timeout=60)
    def report(ctx: BlockingContext, days: int) -> None: ...

    assert list(yard.crons) == ["sync", "weekly", "report"]
    first, weekly, daily = yard.crons.values()
    assert (first.kind, first.timezone, first.queue) == ("sync", "Asia/Seoul", "default")
    assert (first.max_retry, first.timeout_seconds, first.overlap, first.missed) == (3, 300, Overlap.SKIP, Missed.ONCE)
    assert (daily.kind, bytes(daily.payload), daily.priority) == ("report", b'{"days":1}', 3)
    assert (daily.queue, daily.group, daily.max_retry, daily.timeout_seconds) == ("reports", "acme", 1, 60)
    assert (weekly.kind, bytes(weekly.payload), weekly.max_retry, weekly.timeout_seconds) == (
        "report", b'{"days":7}', 0, 5,
    )  # fmt: skip
    assert (weekly.overlap, weekly.missed, weekly.missed_limit) == (Overlap.ALLOW, Missed.ALL, 2)
    assert (weekly.jitter_seconds, weekly.start_at, weekly.enabled) == (60, 1_893_456_000_000, False)
    assert (await sync.enqueue()).created, "it is a handler like any other"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"expression": "soon"}, "no cron expression"),
        ({"tz": "Asia/Soul"}, 'Did you mean "Asia/Seoul"?'),
        ({"payload": {"dais": 1}}, "does not fit report"),
        ({"overlap": "maybe"}, "overlap is allow or skip or queue"),
        ({"max_retry": -1}, "max_retry must be a whole number"),
        ({"start": datetime(2030, 1, 1)}, "with a time zone"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(words: dict[str, object], says: str) -> None:
    yard = Jobyard("memory://")

    @yard.job()
    async def report(ctx: Context, days: int) -> None: ...

    with pytest.raises(BadInput, match=says.replace("?", r"\?")):
        yard.cron(**{"expression": "@daily", "payload": {"days": 1}, **words})(report)  # type: ignore[arg-type]
    assert yard.crons == {}


def test_a_name_stands_for_one_schedule() -> None:
    yard = Jobyard("memory://")

    @yard.cron("@daily")
    async def report(ctx: Context) -> None: ...

    with pytest.raises(BadOption, match=r"Two schedules are named report\..*name="):
        yard.cron("@hourly")(report)


async def test_the_clock_calls_it() -> None:
    clock = ManualClock(NOW)
    yard = Jobyard("memory://", clock=clock)

    @yard.cron("*/5 * * * *")
    async def sync(ctx: Context) -> str:
        return "done"

    async with yard, yard.scheduler(), yard.worker():
        assert await yard.store.armed()
        clock.advance(301)
        found = Filter(tag=f"{TAG}sync", states=(State.COMPLETED,))
        await eventually(lambda: jobs(yard, found))
        [past] = await Schedules(yard.store).history("sync")
    assert (past.verdict, past.state) == ("fired", State.COMPLETED)


async def jobs(yard: Jobyard, where: Filter) -> bool:
    return bool((await yard.store.find(where)).jobs)


async def test_what_is_declared_is_written_changed_and_never_forgotten(
    yard: Jobyard, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("jobyard"), "propagate", True)
    caplog.set_level("INFO", "jobyard.scheduler")

    @yard.cron("@daily")
    async def report(ctx: Context) -> None: ...

    schedules = Schedules(yard.store)
    told = {"mine": {"expression": "@hourly", "kind": "report"}}
    await schedules.add(definition({"name": "other", "expression": "@daily", "kind": "report"}))
    await declare_all(yard, "shop", told | {"other": {"expression": "@hourly", "kind": "report"}}, 10)
    assert [(each.name, each.origin) for each in await schedules.all()] == [
        ("mine", "file"), ("other", "managed"), ("report", "code:shop"),
    ]  # fmt: skip
    assert (await schedules.get("other")).expression == "@daily"
    assert "schedule other, declared in jobyard.yaml, was not touched: there is a schedule of that name" in caplog.text
    await schedules.pause("mine")
    caplog.clear()
    await declare_all(yard, "shop", {"mine": {**told["mine"], "timezone": "Asia/Seoul"}}, 10)
    mine = await schedules.get("mine")
    assert (mine.timezone, mine.enabled) == ("Asia/Seoul", False), "an operator's pause survives"
    assert caplog.messages == ["schedules changed, as jobyard.yaml declares them: mine"]
    await declare_all(yard, "shop", None, 10)
    assert (await schedules.get("mine")).is_declared, "a process without a file says nothing of it"
    await declare_all(yard, "shop", {}, 10)
    assert not (await schedules.get("mine")).is_declared
    assert "no longer declared in jobyard.yaml, and still firing: mine" in caplog.text
    with pytest.raises(NotPossible):
        await schedules.remove("report")
    await schedules.remove("mine")


def test_a_file_speaks_for_itself() -> None:
    [made] = of_file({"weekly": {"expression": "@weekly", "kind": "report", "start_at": "2030-01-01T00:00:00.000Z"}})
    assert (made.name, made.queue, made.start_at) == ("weekly", "default", 1_893_456_000_000)


async def test_a_scheduler_that_breaks_ends_with_what_broke_it(
    yard: Jobyard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scheduling = Scheduling(yard, yard.observer)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(scheduling.scheduler._timetable, "next_look", broken)
    with pytest.raises(ZeroDivisionError):
        await scheduling.run()
    assert not scheduling.is_turning()
    calm = Scheduling(yard, yard.observer)
    calm.stop()
    await calm.run()
    assert calm.is_turning(), "one that was told to stop does not hang"
