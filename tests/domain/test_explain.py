"""Explanations are exact: without the named causes the job is claimed in its turn, with any one of them it is not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from jobyard.domain.explain import CODES, Cause, JobPosition, explain
from jobyard.domain.job import NewJob, QueueSettings
from jobyard.domain.lease import Lease
from jobyard.domain.outcome import Done, Park
from jobyard.domain.state import Settlement, judge
from jobyard.ports.admin_store import Action
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock

QUEUE = "default"
SIGNAL = "go"
GROUPS = (None, "a", "b", "c")
some_limit = st.sampled_from([None, None, 0, 1, 2])
rarely = st.sampled_from([False, False, False, True])


@dataclass(frozen=True)
class Waiting:
    group: str | None
    priority: int
    how: str  # "due", "delayed" or "parked"


@dataclass(frozen=True)
class LineUp:
    settings: QueueSettings
    is_queue_paused: bool
    limits: dict[str, int | None]
    paused: dict[str, bool]
    running: list[str | None]
    waiting: list[Waiting]
    has_worker: bool


named = [name for name in GROUPS if name is not None]
line_ups = st.builds(
    LineUp,
    settings=st.builds(QueueSettings, max_running=st.sampled_from([None, None, 0, 2, 4]), max_per_group=some_limit),
    is_queue_paused=rarely,
    limits=st.fixed_dictionaries(dict.fromkeys(named, some_limit)),
    paused=st.fixed_dictionaries(dict.fromkeys(named, rarely)),
    running=st.lists(st.sampled_from(GROUPS), max_size=5),
    waiting=st.lists(
        st.builds(
            Waiting, st.sampled_from(GROUPS), st.integers(-1, 1), st.sampled_from(["due", "due", "delayed", "parked"])
        ),
        min_size=1,
        max_size=9,
    ),
    has_worker=st.booleans(),
)


async def build(line_up: LineUp) -> MemoryStore:
    """The same store each time: jobs "w0", "w1", … wait."""
    store = MemoryStore(ManualClock())
    await store.configure(QUEUE, line_up.settings)
    for number, group in enumerate(line_up.running):
        await store.adopt(NewJob(id=f"r{number}", kind="work", group=group), "w", "outside")
    for number, waiting in enumerate(line_up.waiting):
        job = NewJob(id=f"w{number}", kind="work", group=waiting.group, priority=waiting.priority)
        match waiting.how:
            case "due":
                await store.insert([job])
            case "delayed":
                await store.insert([NewJob(id=job.id, kind="work", group=job.group, delay_seconds=60)])
            case _:
                await settle(store, await store.adopt(job, "w", "outside"), Park(SIGNAL))
    for name in named:
        await store.set_limit(QUEUE, name, line_up.limits[name])
        await store.set_paused(QUEUE, name, line_up.paused[name])
    await store.set_paused(QUEUE, None, line_up.is_queue_paused)
    if line_up.has_worker:
        await give_a_worker(store)
    return store


async def settle(store: MemoryStore, lease: Lease, outcome: Done | Park) -> None:
    result = await store.exchange("w", [Settlement(lease.key, judge(lease, outcome))], [QUEUE], 0, 60)
    assert result.refused == ()


async def give_a_worker(store: MemoryStore) -> None:
    await store.heartbeat(WorkerInfo(id="w", host="h", pid=1, queues=(), concurrency=1), 60)


async def remove(store: MemoryStore, facts: JobPosition, cause: Cause) -> None:
    """Exactly this cause, and no more room than it takes."""
    job, group = facts.job, facts.group
    match cause.code:
        case "queue_paused":
            await store.set_paused(QUEUE, None, False)
        case "group_paused":
            assert group.name is not None
            await store.set_paused(QUEUE, group.name, False)
        case "group_blocked" | "group_limit_reached":
            assert group.name is not None
            await store.set_limit(QUEUE, group.name, group.running + 1)
        case "queue_limit_reached":
            queue = facts.queue
            settings = QueueSettings(max_running=queue.running + 1, max_per_group=queue.max_per_group)
            await store.configure(QUEUE, settings)
        case "not_due":
            assert (await store.change(Action.RUN_NOW, [job.id])).changed == (job.id,)
        case "parked":
            assert await store.signal(job.id, SIGNAL)
        case "no_worker":
            await give_a_worker(store)
        case _:
            raise AssertionError(cause.code)


async def claimed_before(store: MemoryStore, job_id: str) -> list[Lease] | None:
    """Who is claimed before the job, each ending at once, so that no slot is used up; None if it never comes."""
    before: list[Lease] = []
    while await store.workers():
        leases = (await store.exchange("w", [], [QUEUE], 1, 60)).leases
        if not leases:
            return None
        if leases[0].job_id == job_id:
            return before
        before.append(leases[0])
        await settle(store, leases[0], Done())
    return None


async def check_that_it_comes_in_its_turn(line_up: LineUp, job_id: str) -> None:
    store = await build(line_up)
    facts = await store.position(job_id)
    for cause in explain(facts).causes:
        await remove(store, facts, cause)
    facts = await store.position(job_id)
    assert explain(facts).causes == ()
    before = await claimed_before(store, job_id)
    assert before is not None
    groups = [lease.group for lease in before]
    assert groups.count(facts.job.group) == facts.ahead_in_group
    # Each other group passes at most once for every job that its own group is given.
    for other in set(groups) - {facts.job.group}:
        assert groups.count(other) <= facts.ahead_in_group + 1
    if facts.ahead_in_group == 0:
        assert len(before) == facts.groups_ahead


async def check_that_it_never_comes_with_one_left(line_up: LineUp, job_id: str) -> None:
    causes = explain(await (await build(line_up)).position(job_id)).causes
    for left in causes:
        store = await build(line_up)
        facts = await store.position(job_id)
        for cause in causes:
            if cause.code != left.code:
                await remove(store, facts, cause)
        assert [cause.code for cause in explain(await store.position(job_id)).causes] == [left.code]
        assert await claimed_before(store, job_id) is None, left


@given(line_ups, st.data())
def test_without_its_causes_a_job_is_claimed_in_its_turn(line_up: LineUp, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(line_up.waiting) - 1))
    asyncio.run(check_that_it_comes_in_its_turn(line_up, f"w{number}"))


@given(line_ups, st.data())
def test_with_any_one_of_its_causes_a_job_is_never_claimed(line_up: LineUp, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(line_up.waiting) - 1))
    asyncio.run(check_that_it_never_comes_with_one_left(line_up, f"w{number}"))


@given(line_ups)
def test_every_cause_has_a_known_code_and_says_so(line_up: LineUp) -> None:
    async def check() -> None:
        store = await build(line_up)
        for number in range(len(line_up.waiting)):
            explanation = explain(await store.position(f"w{number}"))
            assert {cause.code for cause in explanation.causes} <= set(CODES)
            assert explanation.sentence
            assert all(cause.sentence[1:] in explanation.sentence for cause in explanation.causes)

    asyncio.run(check())
