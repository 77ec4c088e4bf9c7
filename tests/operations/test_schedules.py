"""Schedules: add, edit, pause, remove, declare."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from jobyard.domain.instant import Instant, instant
from jobyard.domain.job import QueueSettings, State
from jobyard.domain.schedule import Missed, Overlap, Schedule, Verdict
from jobyard.errors import BadOption, NotFound, NotPossible, QueueFull
from jobyard.operations import schedules as module
from jobyard.operations.schedule_options import make_schedule
from jobyard.operations.schedules import COLLECTION, LOG, Schedules
from jobyard.ports.admin_store import Action
from jobyard.ports.schedule_store import ArmedSchedule, Decision, Tick
from jobyard.ports.store import Store
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import START, ManualClock

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Store:
    return MemoryStore(clock)


@pytest.fixture
def schedules(store: Store) -> Schedules:
    return Schedules(store)


def report(**words: Any) -> Schedule:
    return make_schedule({"name": "report", "expression": "0 9 * * *", "kind": "send", **words})


async def announced(store: Store) -> list[str]:
    return [entry.data.decode() for entry in await store.read(LOG)]


async def decide(store: Store, schedule: Schedule, at: Instant) -> Decision:
    job = schedule.job(f"job-{at}-{schedule.revision}", at)
    tick = Tick(
        schedule=schedule.name, revision=schedule.revision, at=at, queue=job.queue, verdict=Verdict.FIRED, job=job
    )
    [decided] = await store.decide([tick])
    return decided.decision


async def test_an_added_schedule_is_stored_armed_and_announced(store: Store, schedules: Schedules) -> None:
    added = await schedules.add(report(payload={"to": "everybody"}, timezone="Asia/Seoul", group="mail"))
    assert await schedules.get("report") == added
    assert (added.since, added.created_at, added.revision) == (START, START, START)
    assert bytes(added.payload) == b'{"to":"everybody"}'
    assert await store.armed() == [ArmedSchedule("report", added.revision, START)]
    assert await announced(store) == ["report"]
    with pytest.raises(NotPossible):
        await schedules.add(report())


async def test_a_schedule_stored_without_backoff_and_tags_still_loads(store: Store, schedules: Schedules) -> None:
    await schedules.add(make_schedule({"name": "old", "expression": "@daily", "kind": "send"}))
    record = await store.fetch(COLLECTION, "old")
    assert record is not None
    fields = msgspec.json.decode(record.data)
    older = {name: value for name, value in fields.items() if name not in ("backoff", "tags")}
    await store.put(COLLECTION, "old", msgspec.json.encode(older))
    assert (await schedules.get("old")).job("id").tags == ("schedule:old",)


async def test_an_edit_makes_ticks_of_the_old_definition_stale(
    store: Store, schedules: Schedules, clock: ManualClock
) -> None:
    old = await schedules.add(report(overlap="allow"))
    nine, ten = START + 9 * HOUR, START + 10 * HOUR
    clock.set(nine)
    assert await decide(store, old, nine) is Decision.MADE
    new = await schedules.edit("report", {"payload": {"to": "all"}, "queue": "mail"})
    assert new.since == old.since, "its times are as they were"
    assert await decide(store, old, nine + DAY) is Decision.STALE
    assert await decide(store, new, nine) is Decision.KNOWN
    clock.set(ten + 1)
    moved = await schedules.edit("report", {"expression": "0 10 * * *"})
    assert moved.since == ten + 1, "ten o'clock is over: it had other times then"
    assert await schedules.next("report", 2) == [ten + DAY, ten + 2 * DAY]
    assert await schedules.edit("report", {"expression": "0  10 * * *"}) == moved, "nothing was changed"
    assert await announced(store) == ["report", "report", "report"]


async def test_instants_while_paused_are_not_due(store: Store, schedules: Schedules, clock: ManualClock) -> None:
    added = await schedules.add(report())
    paused = await schedules.pause("report")
    assert not paused.enabled
    assert await schedules.next("report") == []
    assert await decide(store, added, START + 9 * HOUR) is Decision.STALE
    clock.set(START + 3 * DAY)
    resumed = await schedules.resume("report")
    assert resumed.enabled
    assert await schedules.next("report", 1) == [START + 3 * DAY + 9 * HOUR]
    assert await decide(store, resumed, START + 9 * HOUR) is Decision.KNOWN
    assert await schedules.resume("report") == resumed


async def test_a_removed_schedule_accepts_no_ticks(store: Store, schedules: Schedules) -> None:
    added = await schedules.add(report())
    assert await schedules.remove("report") == added
    assert await decide(store, added, START + 9 * HOUR) is Decision.STALE
    assert await store.armed() == []
    assert await announced(store) == ["report", "report"]
    for verb in (schedules.get, schedules.pause, schedules.remove, schedules.run, schedules.history, schedules.next):
        with pytest.raises(NotFound):
            await verb("report")


async def test_a_delayed_removal_does_not_disarm_a_new_schedule(
    store: Store, schedules: Schedules, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removal was delayed before its last step, and the name was added again."""
    old = await schedules.add(report())
    disarm = store.disarm
    late: list[Any] = []

    async def held_up(*args: Any) -> bool:
        late.append(args)
        return True

    monkeypatch.setattr(store, "disarm", held_up)
    await schedules.remove("report")
    monkeypatch.setattr(store, "disarm", disarm)
    clock.advance(1)
    new = await schedules.add(report())
    assert new.revision > old.revision
    assert await decide(store, new, START + 9 * HOUR) is Decision.MADE
    for args in late:
        await store.disarm(*args)
    assert await decide(store, new, START + 9 * HOUR) is Decision.KNOWN


async def test_an_unfinished_removal_is_cleaned_up(store: Store, schedules: Schedules, clock: ManualClock) -> None:
    """The process died between the removal and its last step."""
    old = await schedules.add(report())
    assert await decide(store, old, START + 9 * HOUR) is Decision.MADE
    await store.remove(COLLECTION, "report")
    clock.advance(1)
    added = await schedules.add(report())
    assert await schedules.history("report") == []
    assert await store.armed() == [ArmedSchedule("report", added.revision, added.since)]


async def test_an_unfinished_removal_is_cleaned_up_after_a_clock_step_back(
    store: Store, schedules: Schedules, clock: ManualClock
) -> None:
    old = await schedules.add(report())
    assert await decide(store, old, START + 9 * HOUR) is Decision.MADE
    await store.remove(COLLECTION, "report")
    clock.advance(-3600)
    added = await schedules.add(report())
    assert added.revision < old.revision
    assert await store.armed() == [ArmedSchedule("report", added.revision, added.since)]


async def test_resume_fixes_a_clock_that_was_ahead(store: Store, schedules: Schedules, clock: ManualClock) -> None:
    added = await schedules.add(report(overlap="allow"))
    far = instant("2038-01-01T09:00:00Z")
    clock.set(far)
    assert await decide(store, added, far) is Decision.MADE
    clock.set(START + HOUR)
    assert await schedules.ahead(added, START + HOUR) == far
    assert await decide(store, added, START + 9 * HOUR) is Decision.KNOWN, "silent until 2038"
    resumed = await schedules.resume("report")
    assert await schedules.ahead(resumed, START + HOUR) is None
    assert await decide(store, resumed, START + 9 * HOUR) is Decision.MADE
    assert await decide(store, resumed, START + 9 * HOUR) is Decision.KNOWN


async def test_run_inserts_a_job_now(store: Store, schedules: Schedules, clock: ManualClock) -> None:
    added = await schedules.add(report(payload={"a": 1}, max_retry=2, timeout_seconds=7, priority=3))
    assert await decide(store, added, START + 9 * HOUR) is Decision.MADE
    job_id = await schedules.run("report")
    job = await store.get(job_id)
    assert job is not None
    assert (job.kind, bytes(job.payload), job.max_attempts, job.timeout_seconds) == ("send", b'{"a":1}', 3, 7)
    assert (job.priority, job.tags, job.unique_key, job.run_at) == (3, ("schedule:report",), None, START)
    await store.configure("default", QueueSettings(max_waiting=2))
    with pytest.raises(QueueFull):
        await schedules.run("report")


async def test_history_has_the_states_of_the_jobs(store: Store, schedules: Schedules, clock: ManualClock) -> None:
    added = await schedules.add(report(overlap="allow"))
    for day in range(3):
        clock.set(START + day * DAY + 9 * HOUR)
        assert await decide(store, added, START + day * DAY + 9 * HOUR) is Decision.MADE
    missed = Tick(
        schedule="report", revision=added.revision, at=START + 5 * DAY, queue="default", verdict=Verdict.MISSED,
        first=START + 4 * DAY, count=2,
    )  # fmt: skip
    await store.decide([missed])
    newest, _, middle, oldest = await schedules.history("report")
    assert (newest.verdict, newest.count, newest.first, newest.state) == (Verdict.MISSED, 2, START + 4 * DAY, None)
    assert (middle.state, oldest.state, oldest.is_pruned) == (State.PENDING, State.PENDING, False)
    assert oldest.job_id is not None
    await store.change(Action.DELETE, [oldest.job_id])
    gone = (await schedules.history("report"))[-1]
    assert (gone.state, gone.is_pruned, gone.job_id) == (None, True, oldest.job_id)
    assert [past.at for past in await schedules.history("report", 1, before=newest.at)] == [START + 2 * DAY + 9 * HOUR]


async def test_concurrent_changes(store: Store, schedules: Schedules) -> None:
    await schedules.add(report())
    await asyncio.gather(*(schedules.edit("report", {"priority": number}) for number in range(1, 9)))
    final = await schedules.get("report")
    assert await store.armed() == [ArmedSchedule("report", final.revision, START)]
    record = await store.fetch(COLLECTION, "report")
    assert record is not None
    assert record.version == 9, "each change was made upon the one before it"


async def test_the_log_is_trimmed(store: Store, schedules: Schedules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOG_KEPT", 10)
    monkeypatch.setattr(module, "TRIM_EVERY", 5)
    await schedules.add(report())
    for number in range(39):
        await schedules.edit("report", {"priority": number + 1})
    assert 10 <= len(await announced(store)) <= 15


async def test_all_and_pages(schedules: Schedules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 3)
    names = [f"s{number}" for number in range(6)]
    for name in reversed(names):
        await schedules.add(report(name=name))
    assert [each.name for each in await schedules.all()] == names
    assert [each.name for each in await schedules.page(2, "s1")] == ["s2", "s3"]


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"expression": "*/5 * * * * *"}, "expression"),
        ({"expression": "0 0 30 2 *"}, "expression"),
        ({"expression": "0 0 */31 2 1#5"}, "expression"),
        ({"expression": 5}, "expression"),
        ({"expression": None}, "expression"),
        ({"timezone": "Asia/Soul"}, "timezone"),
        ({"timezone": 9}, "timezone"),
        ({"name": ""}, "name"),
        ({"name": "a\n"}, "name"),
        ({"payload": [1]}, "payload"),
        ({"overlap": "que"}, "overlap"),
        ({"missed": "none"}, "missed"),
        ({"missed_limit": 0}, "missed_limit"),
        ({"max_retry": -1}, "max_retry"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"jitter_seconds": 1e6}, "jitter_seconds"),
        ({"enabled": "yes"}, "enabled"),
        ({"start_at": "soon"}, "start_at"),
        ({"start_at": "2026-03-02", "end_at": "2026-03-01"}, "end_at"),
        ({"start_at": "2026-03-01T10:00:00Z", "end_at": "2026-03-01T11:00:00Z"}, "expression"),
        ({"end_at": "2025-12-31"}, "end_at"),
        ({"overlap": "queue", "missed": "skip"}, "missed"),
        ({"missed": "all"}, "missed"),
        ({"missed": "all", "overlap": "queue"}, "missed"),
        ({"start_at": "9999-12-31T20:00:00Z", "timezone": "Asia/Seoul"}, "expression"),
        ({"name": ".."}, "name"),
        ({"prioritty": 1}, "prioritty"),
    ],
)
async def test_an_invalid_schedule_is_rejected_with_the_name_of_the_option(
    store: Store, schedules: Schedules, given: dict[str, Any], option: str
) -> None:
    with pytest.raises(BadOption) as caught:
        await schedules.add(report(**given))
    assert caught.value.option == option
    assert await announced(store) == []
    if option != "name" and given.get("expression", "") is not None:
        await schedules.add(report())
        with pytest.raises(BadOption) as caught:
            await schedules.edit("report", given)
        assert caught.value.option == option


async def test_the_shortest_interval_is_a_setting(store: Store) -> None:
    added = await Schedules(store, shortest_interval_seconds=1).add(report(expression="*/5 * * * * *"))
    assert (added.overlap, added.missed, added.max_retry, added.timeout_seconds) == (
        Overlap.SKIP,
        Missed.ONCE,
        3,
        300,
    )


async def test_an_unchanged_declaration_writes_nothing(store: Store, schedules: Schedules) -> None:
    one, two = report(), report(name="two")
    assert (await schedules.declare("file", [one, two])).added == ("report", "two")
    assert (await schedules.declare("file", [one, two])).unchanged == ("report", "two")
    assert await announced(store) == ["report", "two"]
    changed = await schedules.declare("file", [report(priority=3), two])
    assert (changed.changed, changed.unchanged) == (("report",), ("two",))
    assert (await schedules.get("report")).priority == 3


async def test_a_pause_survives_a_declaration(schedules: Schedules) -> None:
    await schedules.declare("file", [report()])
    await schedules.pause("report")
    assert (await schedules.declare("file", [report()])).unchanged == ("report",)
    assert (await schedules.declare("file", [report(priority=1)])).changed == ("report",)
    assert not (await schedules.get("report")).enabled
    # What the declaration itself says counts when it changes.
    await schedules.resume("report")
    await schedules.declare("file", [report(enabled=False)])
    assert not (await schedules.get("report")).enabled
    await schedules.resume("report")
    assert (await schedules.declare("file", [report(enabled=False)])).unchanged == ("report",)
    assert (await schedules.get("report")).enabled


async def test_schedules_of_other_origins_are_not_changed(schedules: Schedules) -> None:
    await schedules.add(report())
    await schedules.declare("code:shop:yard", [report(name="two")])
    declared = await schedules.declare("file", [report(priority=1), report(name="two"), report(name="three")])
    assert declared.added == ("three",)
    assert "managed by the API and the command line" in declared.refused["report"]
    assert "the code of shop:yard" in declared.refused["two"]
    assert (await schedules.get("report")).priority == 0
    too_often = await schedules.declare("file", [report(name="three", expression="* * * * * *")])
    assert "shortest interval" in too_often.refused["three"]


async def test_a_declaration_during_a_removal(schedules: Schedules, monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedule is removed between the read and the write of the declaration."""
    await schedules.declare("file", [report(), report(name="two")])
    before = await schedules.all()
    await schedules.declare("file", [])
    for name in ("report", "two"):
        await schedules.remove(name)

    async def all_of_them() -> list[Schedule]:
        return before

    monkeypatch.setattr(schedules, "all", all_of_them)
    assert (await schedules.declare("file", [report(priority=1)])).added == ("report",)
    assert [each.name for each in await schedules.page()] == ["report"]


async def test_a_delayed_add_keeps_decided_instants(
    store: Store, schedules: Schedules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler armed the definition and decided an instant before the add continued."""
    disarm = store.disarm

    async def held_up(name: str, revision: int | None = None) -> bool:
        schedule = await schedules.get(name)
        assert await store.arm(name, schedule.revision, schedule.since)
        assert await decide(store, schedule, START + 9 * HOUR) is Decision.MADE
        return await disarm(name, revision)

    monkeypatch.setattr(store, "disarm", held_up)
    added = await schedules.add(report())
    assert await decide(store, added, START + 9 * HOUR) is Decision.KNOWN


async def test_a_declared_schedule_cannot_be_edited_or_removed(schedules: Schedules) -> None:
    await schedules.declare("code:shop:yard", [report()])
    with pytest.raises(NotPossible):
        await schedules.edit("report", {"priority": 1})
    with pytest.raises(NotPossible):
        await schedules.remove("report")
    assert (await schedules.declare("code:shop:yard", [])).gone == ("report",)
    kept = await schedules.get("report")
    assert kept.enabled
    assert not kept.is_declared
    assert (await schedules.declare("code:shop:yard", [])).gone == ("report",)
    assert (await schedules.declare("code:shop:yard", [report()])).changed == ("report",)
    assert (await schedules.get("report")).is_declared
    await schedules.declare("code:shop:yard", [])
    await schedules.remove("report")
    assert await schedules.all() == []
