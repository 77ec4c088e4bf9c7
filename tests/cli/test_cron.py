"""`jobyard cron` and `jobyard scheduler` on a store."""

from __future__ import annotations

import json
import signal
from typing import Any

import httpx2 as httpx
import pytest
from tests.cli.support import PATIENCE_SECONDS, USAGE, Shop, error_code, shop
from tests.cli.test_systemd import Manager, manager
from tests.servers.ports import free_port
from tests.support import eventually

from jobyard import Jobyard
from jobyard.domain.job import State
from jobyard.domain.schedule import TAG, Verdict
from jobyard.operations.audit_log import Audit
from jobyard.operations.schedule_options import make_schedule
from jobyard.operations.schedules import Schedules
from jobyard.ports.admin_store import Filter
from jobyard.ports.schedule_store import Tick

__all__ = ["manager", "shop"]

DECLARED = """

@yard.cron("0 2 * * *", tz="Asia/Seoul")
@yard.job(queue="mail")
async def nightly(ctx: Context) -> None: ...

@yard.cron("*/10 * * * * *")
async def often(ctx: Context) -> None: ...
"""


def said(shop: Shop, *words: str, code: int = 0, **more: Any) -> str:
    result = shop.run(*words, **more)
    assert result.exit_code == code, result.output
    return result.output


def test_next_explains_an_expression(shop: Shop) -> None:
    answer = shop.json("cron", "next", "0 9 * * 1-5", "--tz", "Asia/Seoul", "--count", "3")
    assert answer["in_words"] == "At 09:00 on Monday through Friday"
    assert [each[10:] for each in answer["items"]] == ["T00:00:00.000Z"] * 3
    lines = said(shop, "cron", "next", "0 9 * * 1-5", "--tz", "Asia/Seoul").splitlines()
    assert lines[0] == "At 09:00 on Monday through Friday (Asia/Seoul)"
    assert all("09:00:00 +09:00  in " in line for line in lines[1:])
    assert len(lines) == 6
    assert not (shop.folder / "shop.db").exists(), "it needs no store"


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (("next", "0 9 * * 1-5", "--tz", "Asia/Soul"), "bad_option", 'Did you mean "Asia/Seoul"?'),
        (("next", "61 * * * *"), "bad_option", "61"),
        (("next", "@dayli"), "bad_option", 'Did you mean "@daily"?'),
        (("add", "x", "* * * * * *", "send", "to=ann"), "bad_option", "10 s"),
        (("add", "x", "@daily", "sned", "to=ann"), "unknown_kind", 'Did you mean "send"?'),
        (("add", "x", "@daily", "send"), "bad_input", "to"),
        (("add", "x", "@daily", "send", "to=ann", "--start", "soon"), USAGE, "--start"),
        (("add", "x", "@daily", "send", "to=ann", "--end", "2020-01-01"), "bad_option", ""),
        (("edit", "mail"), USAGE, ""),
        (("edit", "mail", "to=ann", "--payload", "{}"), USAGE, "not both"),
        (("add", "x", "@daily", "send", "to=ann", "--payload", "{}"), USAGE, "not both"),
        (("edit", "mail", "--group", "a", "--no-group"), USAGE, "--no-group"),
        (("edit", "mail", "--payload", '{"copies": "x"}'), "bad_input", "send"),
        (("show", "mial"), "not_found", 'Did you mean "mail"?'),
        (("pause", "zzz"), "not_found", "`jobyard cron`"),
        (("next", "mail", "--tz", "UTC"), USAGE, "--tz"),
        (("remove", "mail"), USAGE, "--yes"),
    ],
)
def test_invalid_input_is_rejected(shop: Shop, words: tuple[str, ...], code: str, hint: str) -> None:
    said(shop, "cron", "add", "mail", "@daily", "send", "to=ann")
    result = shop.run("cron", *words)
    assert (result.exit_code, "" if code is USAGE else error_code(result)) == ((2, "") if code is USAGE else (1, code))
    assert hint in " ".join(result.output.split())
    assert [each["name"] for each in shop.json("cron")["schedules"]] == ["mail"]


def test_lifecycle_of_a_schedule(shop: Shop) -> None:
    made = said(shop, "cron", "add", "mail", "0 2 * * *", "send", "to=ann", "--tz", "Asia/Seoul", "--max-retry", "1")
    assert made.startswith("mail: At 02:00 every day (Asia/Seoul)\nnext ")
    [found] = shop.json("cron", "list")["schedules"]
    assert (found["queue"], found["payload"], found["max_retry"]) == ("mail", {"to": "ann"}, 1), "the handler's queue"
    said(shop, "cron", "edit", "mail", "--expression", "@hourly", "--no-timeout", "--payload", '{"to": "bob"}')
    said(shop, "cron", "add", "other", "@daily", "send", "--payload", '{"to": "ann"}')
    said(shop, "cron", "edit", "other", "to=eve")
    assert shop.json("cron", "show", "other")["schedule"]["payload"] == {"to": "eve"}
    said(shop, "cron", "remove", "other", "--yes")
    found = shop.json("cron", "show", "mail")["schedule"]
    assert (found["expression"], found["timeout_seconds"], found["payload"]) == ("@hourly", None, {"to": "bob"})
    assert len(said(shop, "cron", "next", "mail", "--count", "2").splitlines()) == 3
    assert said(shop, "cron", "pause", "mail") == "Schedule mail is paused.\n"
    assert "\tpaused" in said(shop, "cron")
    assert shop.json("cron", "next", "mail")["items"] == []
    assert "; next " in said(shop, "cron", "resume", "mail")
    job = said(shop, "cron", "run", "mail").strip()
    assert shop.json("jobs", "show", job)["payload"] == {"to": "bob"}
    page = said(shop, "cron", "show", "mail")
    assert all(word in page for word in ("timeout none", '{"to":"bob"}', "overlap   skip   missed once"))
    said(shop, "cron", "remove", "mail", "--yes")
    assert shop.json("cron")["schedules"] == []
    actions = shop.do(_actions)
    of_other = ("add", "edit", "remove")
    expected = ("add", "edit", *of_other, "pause", "resume", "run", "remove")
    assert actions == [f"schedule.{word}" for word in expected]


async def _actions(yard: Jobyard) -> list[str]:
    return [entry.action for entry in await Audit(yard.store).read()]


OWN = """

@yard.job(queue="reports", max_attempts=7, timeout=20, backoff=5, tags=("slow",))
async def report(ctx: Context) -> None: ...
"""


def test_an_added_schedule_has_the_options_of_its_handler(shop: Shop) -> None:
    declare(shop, OWN)
    made = shop.json("cron", "add", "weekly", "@weekly", "report")["schedule"]
    assert (made["queue"], made["max_retry"], made["timeout_seconds"]) == ("reports", 6, 20)
    made = shop.json("cron", "add", "daily", "@daily", "report", "--timeout", "5", "--max-retry", "1")["schedule"]
    assert (made["max_retry"], made["timeout_seconds"]) == (1, 5)
    job = shop.json("jobs", "show", said(shop, "cron", "run", "weekly").strip())
    assert (job["max_attempts"], job["backoff"], job["tags"]) == (
        7, {"type": "fixed", "seconds": 5}, ["schedule:weekly", "slow"],
    )  # fmt: skip


def test_history_shows_the_state_of_each_job(shop: Shop) -> None:
    said(shop, "cron", "add", "mail", "@hourly", "send", "to=ann", "--overlap", "allow")
    assert shop.json("cron", "history", "mail")["history"] == []
    shop.do(_two_ticks)
    shop.work_off()
    shop.do(_skip)
    rows = shop.json("cron", "history", "mail")["history"]
    assert [(row["verdict"], row["count"], row["state"]) for row in rows] == [
        ("missed", 3, None), ("late", 1, "COMPLETED"), ("fired", 1, "COMPLETED"),
    ]  # fmt: skip
    lines = said(shop, "cron", "history", "mail", "--limit", "2").splitlines()
    assert ["missed 3 times" in lines[1], "late" in lines[2], len(lines)] == [True, True, 3]


async def _tick(yard: Jobyard, later: int, verdict: Verdict, count: int = 1) -> None:
    schedule = await Schedules(yard.store).get("mail")
    at = schedule.since + later
    job = schedule.job(f"job-{at}", at) if verdict.has_job else None
    tick = Tick(
        schedule="mail", queue=schedule.queue, revision=schedule.revision, at=at, verdict=verdict, job=job, count=count
    )
    await yard.store.decide([tick])


async def _two_ticks(yard: Jobyard) -> None:
    await _tick(yard, 1, Verdict.FIRED)
    await _tick(yard, 2, Verdict.LATE)


async def _skip(yard: Jobyard) -> None:
    await _tick(yard, 3, Verdict.MISSED, 3)


def test_a_clock_that_was_ahead_is_reported_and_fixed_by_resume(shop: Shop) -> None:
    said(shop, "cron", "add", "mail", "@hourly", "send", "to=ann")
    year = 366 * 86_400_000

    async def ahead(yard: Jobyard) -> None:
        await _tick(yard, year, Verdict.FIRED)

    shop.do(ahead)
    assert "\tsilent" in said(shop, "cron")
    assert "jobyard cron resume mail" in said(shop, "cron", "show", "mail")
    doctor = said(shop, "doctor")
    assert "warn schedule: mail does not fire until " in doctor
    assert "jobyard cron resume mail" in doctor
    said(shop, "cron", "resume", "mail")
    [found] = shop.json("cron")["schedules"]
    assert found["silent_until"] is None
    assert "ok   schedule: 1 in all, 0 paused, none overdue" in said(shop, "doctor")


def declare(shop: Shop, text: str = DECLARED) -> None:
    with (shop.folder / f"{shop.module}.py").open("a") as file:
        file.write(text)


def test_check_validates_declared_schedules(shop: Shop) -> None:
    declare(shop)
    (shop.folder / "jobyard.yaml").write_text(
        'schedules: {weekly: {expression: "@weekly", kind: sned}, taken: {expression: "@daily", kind: often}, '
        'nightly: {expression: "@daily", kind: nightly}}'
    )

    async def take(yard: Jobyard) -> None:
        await Schedules(yard.store).add(make_schedule({"name": "taken", "expression": "@daily", "kind": "often"}))

    shop.do(take)
    found = said(shop, "check", code=1)
    assert "ok   schedule: nightly, declared in code: 0 2 * * * (Asia/Seoul), next " in found
    assert "fail schedule: weekly, declared in jobyard.yaml: " in found
    assert 'Did you mean "send"?' in found
    assert "fail schedule: taken, declared in jobyard.yaml: " in found
    assert "fail schedule: nightly, declared in jobyard.yaml: " in found
    (shop.folder / "jobyard.yaml").write_text("scheduler: {shortest_interval_seconds: 60}")
    assert "fail schedule: often, declared in code" in said(shop, "check", code=1)


def test_doctor_reports_overdue_and_undeclared_schedules(shop: Shop) -> None:
    async def forgotten(yard: Jobyard) -> None:
        schedules = Schedules(yard.store)
        old = make_schedule({"name": "old", "expression": "*/10 * * * * *", "kind": "send"})
        await schedules.declare("file", [old])
        await schedules.declare("file", [])
        late = await schedules.get("old")
        await yard.store.disarm("old")
        await yard.store.arm("old", late.revision, late.since - 300_000)

    shop.do(forgotten)
    found = said(shop, "doctor")
    assert "warn schedule: old is no longer declared in jobyard.yaml" in found
    assert "no longer declared" in said(shop, "cron")
    said(shop, "cron", "remove", "old", "--yes")
    assert "schedule" not in said(shop, "doctor")


def test_a_scheduler_fires_declared_schedules_and_stops_at_once(
    shop: Shop, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(shop, DECLARED.replace("*/10", "*"))
    for name, value in manager.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("JOBYARD_SCHEDULER__SHORTEST_INTERVAL_SECONDS", "1")
    monkeypatch.setenv("JOBYARD_LOG__FORMAT", "json")
    port = free_port()
    with shop.start("scheduler", "--health-port", str(port)) as process:
        ready = manager.hear_of("READY=1")
        assert any(word.startswith("STATUS=") and "sqlite:///shop.db" in word for word in ready)
        manager.hear_of("WATCHDOG=1")
        monkeypatch.delenv("NOTIFY_SOCKET")
        monkeypatch.delenv("JOBYARD_LOG__FORMAT")
        assert shop.do(_fires)
        assert httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=60).json()["status"] == "ok"
        assert (
            'jobyard_schedule_ticks_total{verdict="fired"}'
            in httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
        assert process.stderr is not None
        lines = [json.loads(line) for line in process.stderr]
    assert lines[0]["message"].endswith("added: nightly, often")
    assert "\tin code" in said(shop, "cron")
    assert error_code(shop.run("cron", "edit", "often", "--jitter", "1")) == "not_possible"


async def _fires(yard: Jobyard) -> bool:
    where = Filter(tag=f"{TAG}often", states=(State.PENDING,))

    async def has_fired() -> bool:
        return bool((await yard.store.find(where)).jobs)

    return bool(await eventually(has_fired, PATIENCE_SECONDS))


STALLING = """
import asyncio
from jobyard import Jobyard
from jobyard.stores.sqlite import SqliteStore

class Stalling(SqliteStore):
    async def close(self) -> None:
        print("closing", flush=True)
        await asyncio.sleep(3600)

yard = Jobyard(store=Stalling("shop.db"))
"""


def test_a_scheduler_does_not_wait_for_a_store_that_hangs(
    shop: Shop, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop.folder / f"{shop.module}.py").write_text(STALLING)
    monkeypatch.setenv("NOTIFY_SOCKET", manager.environment["NOTIFY_SOCKET"])
    with shop.start("scheduler") as process:
        manager.hear_of("READY=1")
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "closing\n"
        assert process.wait(60) == 0


def test_a_worker_does_not_declare_schedules(shop: Shop) -> None:
    declare(shop)
    shop.work_off()
    assert shop.json("cron")["schedules"] == [], "one of an older version would set schedules back"


def test_a_scheduler_needs_a_shared_store(shop: Shop) -> None:
    assert error_code(shop.run("--store", "memory://", "scheduler")) == "configuration"
