"""`@yard.cron` and jobyard.yaml: what is declared, refused, written, kept and called by the clock."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from tests.support import eventually

from jobyard import BlockingContext, Context, Fixed, Jobyard
from jobyard.app.cron import of_file
from jobyard.app.declarations import declarations_of
from jobyard.app.scheduling import Scheduling, declare_all
from jobyard.domain.job import State
from jobyard.domain.schedule import TAG, Missed, Overlap
from jobyard.errors import BadInput, BadOption, NotPossible
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.schedule_options import make_schedule
from jobyard.operations.schedules import Schedules
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

    assert list(declarations_of(yard).schedules) == ["sync", "weekly", "report"]
    first, weekly, daily = declarations_of(yard).schedules.values()
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


async def test_a_scheduled_job_has_the_options_of_its_handler(yard: Jobyard) -> None:
    @yard.cron("@daily")
    @yard.job(queue="reports", max_attempts=7, timeout=20, backoff=[5, 50], tags=("slow", "nightly"))
    async def report(ctx: Context) -> None: ...

    [schedule] = declarations_of(yard).schedules.values()
    scheduled = schedule.job("id", NOW)
    enqueued = report.call().new_job
    for field in ("kind", "queue", "group", "priority", "payload", "max_attempts", "timeout_seconds", "backoff"):
        assert getattr(scheduled, field) == getattr(enqueued, field), field
    assert scheduled.tags == (f"{TAG}report", *enqueued.tags)
    job = await yard.get(await Schedules(yard.store).run((await Schedules(yard.store).add(schedule)).name))
    assert (job.backoff, job.tags, job.max_attempts) == (enqueued.backoff, scheduled.tags, 7)


async def test_an_edit_to_another_kind_takes_the_options_of_its_handler(yard: Jobyard) -> None:
    @yard.job(backoff=1, tags=("a",))
    async def first(ctx: Context) -> None: ...

    @yard.job(backoff=2, tags=("b",))
    async def second(ctx: Context) -> None: ...

    schedules = Schedules(yard.store)
    added = await schedules.add(
        declarations_of(yard).job_factory.new_schedule({"name": "s", "expression": "@daily", "kind": "first"})
    )
    assert (added.backoff, added.tags) == (Fixed(1), ("a",))
    assert (await schedules.edit("s", {"payload": {}}, JobFactory())).tags == ("a",), "without the app they stay"
    edited = await schedules.edit("s", {"kind": "second"}, declarations_of(yard).job_factory)
    assert (edited.backoff, edited.tags) == (Fixed(2), ("b",))


def test_a_schedule_in_the_file_has_the_options_of_its_handler(yard: Jobyard) -> None:
    @yard.job(queue="reports", max_attempts=7, timeout=20, tags=("slow",))
    async def report(ctx: Context) -> None: ...

    given = {"weekly": {"expression": "@weekly", "kind": "report", "timeout_seconds": 5}}
    [made] = of_file(given, declarations_of(yard).job_factory)
    assert (made.queue, made.max_retry, made.timeout_seconds, made.tags) == ("reports", 6, 5, ("slow",))


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"expression": "soon"}, "expression"),
        ({"tz": "Asia/Soul"}, "tz"),
        ({"payload": {"dais": 1}}, "payload"),
        ({"overlap": "maybe"}, "overlap"),
        ({"max_retry": -1}, "max_retry"),
        ({"start": datetime(2030, 1, 1)}, "start"),
    ],
)
def test_an_invalid_schedule_is_rejected_where_it_is_declared(given: dict[str, object], option: str) -> None:
    yard = Jobyard("memory://")

    @yard.job()
    async def report(ctx: Context, days: int) -> None: ...

    with pytest.raises(BadInput) as caught:
        yard.cron(**{"expression": "@daily", "payload": {"days": 1}, **given})(report)  # type: ignore[arg-type]
    assert caught.value.option == option
    assert declarations_of(yard).schedules == {}


@pytest.mark.parametrize(("word", "option"), [("timezone", "tz"), ("timeout_seconds", "timeout"), ("jiter", "jitter")])
def test_an_unknown_option_gets_a_suggestion(word: str, option: str) -> None:
    yard = Jobyard("memory://")
    with pytest.raises(BadInput, match=f'Did you mean "{option}"'):
        yard.cron("@daily", **{word: "UTC"})(lambda: None)  # type: ignore[arg-type]


def test_a_name_stands_for_one_schedule() -> None:
    yard = Jobyard("memory://")

    @yard.cron("@daily")
    async def report(ctx: Context) -> None: ...

    with pytest.raises(BadOption) as caught:
        yard.cron("@hourly")(report)
    assert caught.value.option == "name"


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
    declared = {"mine": {"expression": "@hourly", "kind": "report"}}
    await schedules.add(make_schedule({"name": "other", "expression": "@daily", "kind": "report"}))
    await declare_all(yard, "shop", declared | {"other": {"expression": "@hourly", "kind": "report"}}, 10)
    assert [(each.name, each.origin) for each in await schedules.all()] == [
        ("mine", "file"), ("other", "managed"), ("report", "code:shop"),
    ]  # fmt: skip
    assert (await schedules.get("other")).expression == "@daily"
    assert "schedule other of jobyard.yaml was not written" in caplog.text
    await schedules.pause("mine")
    caplog.clear()
    await declare_all(yard, "shop", {"mine": {**declared["mine"], "timezone": "Asia/Seoul"}}, 10)
    mine = await schedules.get("mine")
    assert (mine.timezone, mine.enabled) == ("Asia/Seoul", False), "an operator's pause survives"
    assert caplog.messages == ["schedules of jobyard.yaml changed: mine"]
    await declare_all(yard, "shop", None, 10)
    assert (await schedules.get("mine")).is_declared, "a process without a file says nothing of it"
    await declare_all(yard, "shop", {}, 10)
    assert not (await schedules.get("mine")).is_declared
    assert "no longer declared in jobyard.yaml, but still firing: mine" in caplog.text
    with pytest.raises(NotPossible):
        await schedules.remove("report")
    await schedules.remove("mine")


def test_a_schedule_of_the_file_needs_no_handler() -> None:
    given = {"weekly": {"expression": "@weekly", "kind": "report", "start_at": "2030-01-01T00:00:00.000Z"}}
    [made] = of_file(given, JobFactory())
    assert (made.name, made.queue, made.start_at) == ("weekly", "default", 1_893_456_000_000)


async def test_a_scheduler_that_breaks_ends_with_what_broke_it(
    yard: Jobyard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scheduling = Scheduling(yard, yard.observer)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(scheduling.scheduler.timetable, "next_check", broken)
    with pytest.raises(ZeroDivisionError):
        await scheduling.run()
    assert not scheduling.is_alive()
    calm = Scheduling(yard, yard.observer)
    calm.stop()
    await calm.run()
    assert calm.is_alive(), "a process that is stopping does not hang"
