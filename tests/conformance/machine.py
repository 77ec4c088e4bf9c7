"""State machine: runs a store and the reference in step and compares every result."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.conformance.stores import audit
from tests.conformance.strategies import (
    QUEUES,
    SCHEDULES,
    SIGNALS,
    WORKERS,
    drafts,
    group_names,
    limits,
    named_groups,
    outcomes,
    plans,
    queue_names,
    schedule_names,
)

from jobyard.domain.job import Job, NewJob, QueueSettings
from jobyard.domain.lease import Lease, LeaseKey
from jobyard.domain.outcome import Handoff, Outcome
from jobyard.domain.retry import Fixed
from jobyard.domain.state import Settlement, judge
from jobyard.errors import BadInput, JobyardError
from jobyard.ports.admin_store import Action, GroupInfo
from jobyard.ports.schedule_store import Tick, TickInfo
from jobyard.ports.store import Store
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock

T = TypeVar("T")

STEPS_PER_FULL_COMPARISON = 8
# Nothing is pruned but by the rule for it: stores may prune while they settle, the reference does not.
KEEP_ALL = {"keep_completed": 1_000_000, "keep_failed": 1_000_000}

counts, ages = st.integers(0, 3), st.sampled_from([0.0, 3.0, 3600.0])


class Pair(msgspec.Struct, frozen=True):
    """One lease as each side granted it: equal except for the random token."""

    mine: Lease
    reference: Lease


Verb: TypeAlias = Callable[[Store, Callable[[Pair], LeaseKey]], Awaitable[T]]


class StoreMachine(RuleBasedStateMachine):
    """Subclasses create the store under test."""

    make: ClassVar[Callable[[Path, ManualClock], Store]]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="jobyard-machine-"))
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.store = type(self).make(self.folder, self.clock)
        self.reference: Store = MemoryStore(self.clock)
        self.tokens: dict[str, str] = {}  # the store's token for each of the reference's
        self.ids: list[str] = []
        self.pairs: list[Pair] = []  # every lease ever granted, so that stale ones are used too
        self.held: dict[str, Pair] = {}  # leases that should still hold
        self.steps = 0
        self.wait(self.store.open())

    def teardown(self) -> None:
        self.wait(self.store.close())
        self.loop.close()
        shutil.rmtree(self.folder)

    def wait(self, verb: Awaitable[T]) -> T:
        return self.loop.run_until_complete(_finish(verb))

    def both(self, verb: Verb[T]) -> tuple[T, T]:
        """Return the results of both sides, which must also raise the same errors."""
        mine = self.attempt(verb(self.store, lambda pair: pair.mine.key))
        reference = self.attempt(verb(self.reference, lambda pair: pair.reference.key))
        if isinstance(mine, JobyardError) or isinstance(reference, JobyardError):
            # When an insert has two reasons to be rejected, either may be reported.
            alike = isinstance(mine, BadInput) and isinstance(reference, BadInput)
            assert alike or type(mine) is type(reference), (mine, reference)
            raise Refused
        return mine, reference

    def attempt(self, verb: Awaitable[T]) -> T | JobyardError:
        try:
            return self.wait(verb)
        except JobyardError as error:
            return error

    def same(self, verb: Verb[T]) -> T | None:
        """Return the result, equal on both sides once tokens are translated; None if both raised the same error."""
        try:
            mine, reference = self.both(verb)
        except Refused:
            return None
        assert mine == self.translated(reference), (mine, reference)
        return mine

    def translated(self, response: Any) -> Any:
        """Translate a result of the reference into the tokens of the store under test."""
        if isinstance(response, LeaseKey):
            return LeaseKey(response.job_id, response.sequence, self.tokens.get(response.token, response.token))
        if isinstance(response, msgspec.Struct) and "token" in response.__struct_fields__:
            return msgspec.structs.replace(response, token=self.tokens[response.token])  # type: ignore[attr-defined]
        if isinstance(response, tuple | list):
            return type(response)(self.translated(item) for item in response)
        return response

    def give(self, mine: Sequence[Lease], reference: Sequence[Lease]) -> None:
        assert [lease.job_id for lease in mine] == [lease.job_id for lease in reference]
        for pair in map(Pair, mine, reference):
            self.tokens[pair.reference.token] = pair.mine.token
            self.pairs.append(pair)
            self.held[pair.mine.job_id] = pair
        assert list(mine) == [self.translated(lease) for lease in reference]

    def exchange(
        self, worker: str, settled: Sequence[tuple[Pair, Outcome]], queues: Sequence[str], wanted: int
    ) -> None:
        def verb(store: Store, key: Callable[[Pair], LeaseKey]) -> Awaitable[Any]:
            settlements = [Settlement(key(pair), judge(pair.mine, outcome, worker=worker)) for pair, outcome in settled]
            return store.exchange(worker, settlements, queues, wanted, 10.0)

        mine, reference = self.both(verb)
        for pair, outcome in settled:
            if self.held.get(pair.mine.job_id) is pair and not isinstance(outcome, Handoff):
                del self.held[pair.mine.job_id]
        self.give(mine.leases, reference.leases)
        assert mine.refused == self.translated(reference.refused)
        assert mine.cancelled == self.translated(reference.cancelled)
        assert (mine.next_due_at, mine.now) == (reference.next_due_at, reference.now)

    def some_pairs(self, data: st.DataObject, most: int = 5) -> list[Pair]:
        """Draw mostly leases that hold, sometimes any earlier one, also twice."""
        held = list(self.held.values())
        takes_held: bool = data.draw(st.sampled_from([True, True, True, False]))
        if held and takes_held:
            return data.draw(st.lists(st.sampled_from(held), min_size=1, max_size=most, unique_by=id))
        return data.draw(st.lists(st.sampled_from(self.pairs), max_size=most)) if self.pairs else []

    def some_ids(self, data: st.DataObject, most: int) -> list[str]:
        """Draw mostly late jobs, because the first have ended."""
        pool = self.ids[-8:] if data.draw(st.integers(0, 2)) else self.ids
        return data.draw(st.lists(st.sampled_from(pool), min_size=1, max_size=most, unique=True))

    @initialize(drafts=st.lists(drafts, min_size=4, max_size=10))
    def begin(self, drafts: list[dict[str, Any]]) -> None:
        for queue in QUEUES:
            self.configure(queue, None, None, None)
        self.insert(drafts)

    @rule(drafts=st.lists(drafts, min_size=1, max_size=6))
    def insert(self, drafts: list[dict[str, Any]]) -> None:
        jobs = [_job(draft, len(self.ids) + number) for number, draft in enumerate(drafts)]
        self.ids += [job.id for job in jobs]
        self.same(lambda store, key: store.insert(jobs))

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), draft=drafts)
    def insert_a_known_id(self, data: st.DataObject, draft: dict[str, Any]) -> None:
        job = msgspec.structs.replace(_job(draft, 0), id=data.draw(st.sampled_from(self.ids)))
        self.same(lambda store, key: store.insert([job]))

    @rule(drafts=st.lists(drafts, min_size=3, max_size=8), wanted=st.integers(1, 8))
    def insert_and_claim(self, drafts: list[dict[str, Any]], wanted: int) -> None:
        self.insert(drafts)
        self.exchange("w1", [], QUEUES, wanted)

    @rule(delays=st.lists(st.tuples(group_names, st.sampled_from([1.0, 2.0, 3.0])), min_size=2, max_size=5))
    def insert_delayed_and_let_them_come(self, delays: list[tuple[str | None, float]]) -> None:
        late = {"queue": "one", "priority": 0, "max_attempts": 2, "unique": None}
        self.insert([{**late, "group": group, "delay_seconds": delay} for group, delay in delays])
        self.clock.advance(3.0)

    @rule(queues=st.lists(queue_names, max_size=3), wanted=st.integers(0, 7), worker=st.sampled_from(WORKERS))
    def claim(self, queues: list[str], wanted: int, worker: str) -> None:
        self.exchange(worker, [], queues, wanted)

    @rule(
        data=st.data(),
        queues=st.lists(queue_names, min_size=1, max_size=3),
        wanted=st.integers(0, 4),
        worker=st.sampled_from(WORKERS),
    )
    def settle(self, data: st.DataObject, queues: list[str], wanted: int, worker: str) -> None:
        settled = [(pair, data.draw(outcomes)) for pair in self.some_pairs(data)]
        self.exchange(worker, settled, queues, wanted)

    @rule(data=st.data(), worker=st.sampled_from(WORKERS), lease_seconds=st.sampled_from([1.0, 10.0, 30.0]))
    def extend(self, data: st.DataObject, worker: str, lease_seconds: float) -> None:
        pairs = self.some_pairs(data)

        def verb(store: Store, key: Callable[[Pair], LeaseKey]) -> Awaitable[Any]:
            return store.extend(worker, [key(pair) for pair in pairs], lease_seconds)

        mine, reference = self.both(verb)
        assert mine.lost == self.translated(reference.lost)
        assert mine.cancelled == self.translated(reference.cancelled)

    @rule(limit=st.sampled_from([1, 3, 1000]), by=st.sampled_from([0.0, 9.999, 10.0]))
    def reclaim(self, limit: int, by: float) -> None:
        self.clock.advance(by)
        for ended in self.same(lambda store, key: store.reclaim(limit)) or ():
            del self.held[ended.job_id]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), outcome=outcomes)
    def ask_to_stop_then_settle(self, data: st.DataObject, outcome: Outcome) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.held)))
        self.same(lambda store, key: store.change(Action.CANCEL, [job_id]))
        if data.draw(st.booleans()):
            self.exchange("w1", [(self.held[job_id], outcome)], (), 0)

    @rule(draft=drafts, worker=st.sampled_from(WORKERS))
    def adopt(self, draft: dict[str, Any], worker: str) -> None:
        job = msgspec.structs.replace(_job(draft, len(self.ids)), delay_seconds=0.0)
        self.ids.append(job.id)
        mine, reference = self.both(lambda store, key: store.adopt(job, worker, "pod"))
        self.give([mine], [reference])

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), name=st.sampled_from(SIGNALS), value=st.sampled_from([b"1", b"2"]))
    def signal(self, data: st.DataObject, name: str, value: bytes) -> None:
        [job_id] = self.some_ids(data, 1)
        self.same(lambda store, key: store.signal(job_id, name, value))

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), action=st.sampled_from(Action), priority=st.integers(-3, 3))
    def change(self, data: st.DataObject, action: Action, priority: int) -> None:
        chosen = self.some_ids(data, 4)
        self.same(lambda store, key: store.change(action, chosen, reason="why", priority=priority))
        # A lost position in line is visible only in the order of the next claims.
        self.exchange("w1", [], (), data.draw(st.integers(0, 2)))

    @rule(queue=queue_names, group=group_names, paused=st.sampled_from([True, False, False]))
    def pause(self, queue: str, group: str | None, paused: bool) -> None:
        self.same(lambda store, key: store.set_paused(queue, group, paused))

    @rule(queue=queue_names, group=named_groups, limit=limits)
    def limit(self, queue: str, group: str, limit: int | None) -> None:
        self.same(lambda store, key: store.set_limit(queue, group, limit))

    @rule(queue=queue_names, running=limits, per_group=limits, waiting=st.sampled_from([None, None, 8]))
    def configure(self, queue: str, running: int | None, per_group: int | None, waiting: int | None) -> None:
        settings = QueueSettings(
            max_running=running, max_per_group=per_group, max_waiting=waiting, max_waiting_per_group=waiting, **KEEP_ALL
        )
        self.same(lambda store, key: store.configure(queue, settings))

    @rule(queue=queue_names, kept=st.tuples(counts, counts, ages, ages, counts))
    def prune(self, queue: str, kept: tuple[int, int, float, float, int]) -> None:
        """Prune once with other settings, as none of the stores has done before."""
        completed, failed, completed_seconds, failed_seconds, most = kept
        settings = QueueSettings(
            keep_completed=completed,
            keep_failed=failed,
            keep_completed_seconds=completed_seconds,
            keep_failed_seconds=failed_seconds,
            keep_at_most=most,
        )
        self.same(lambda store, key: store.configure(queue, settings))
        while self.same(lambda store, key: store.prune()):
            pass
        self.configure(queue, None, None, None)
        self.compare_everything()

    @rule(schedule=schedule_names, revision=st.integers(1, 3), since=st.one_of(st.none(), st.integers(0, 12)))
    def arm(self, schedule: str, revision: int, since: int | None) -> None:
        self.same(lambda store, key: store.arm(schedule, revision, since))

    @rule(schedule=schedule_names, revision=st.one_of(st.none(), st.integers(1, 3)))
    def disarm(self, schedule: str, revision: int | None) -> None:
        self.same(lambda store, key: store.disarm(schedule, revision))

    @rule(begins=st.booleans(), plans=st.lists(st.tuples(plans, drafts), min_size=1, max_size=6))
    def decide(self, begins: bool, plans: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        # Mostly valid ticks: those of another revision are all STALE and test little.
        for schedule in SCHEDULES if begins else ():
            self.same(_arms_anew(schedule))
        ticks = [self.tick(plan, draft) for plan, draft in plans]
        self.same(lambda store, key: store.decide(ticks))
        for schedule in SCHEDULES:
            self.same(_ticks_of(schedule))
        self.same(lambda store, key: store.armed())

    @rule(
        queue=queue_names,
        room=st.integers(0, 2),
        of_group=st.booleans(),
        plans=st.lists(st.tuples(plans, drafts), min_size=2, max_size=6),
    )
    def decide_in_little_room(
        self, queue: str, room: int, of_group: bool, plans: list[tuple[dict[str, Any], dict[str, Any]]]
    ) -> None:
        infos = [*self.wait(self.reference.groups(queue))] if of_group else [*self.wait(self.reference.queues())]
        most = room + max((info.waiting + info.delayed for info in infos if info.name in ("a", queue)), default=0)
        settings = QueueSettings(**{"max_waiting_per_group" if of_group else "max_waiting": most}, **KEEP_ALL)
        self.same(lambda store, key: store.configure(queue, settings))
        self.decide(True, [(plan, draft | {"queue": queue}) for plan, draft in plans])
        self.configure(queue, None, None, None)

    def tick(self, plan: dict[str, Any], draft: dict[str, Any]) -> Tick:
        job = None
        if plan["verdict"].has_job:
            job = _job(draft, len(self.ids))
            self.ids.append(job.id)
        return Tick(**plan, queue=draft["queue"], job=job)

    @rule(by=st.sampled_from([0.001, 0.5, 2.0, 10.0, 60.0]))
    def advance(self, by: float) -> None:
        self.clock.advance(by)

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def stand(self, data: st.DataObject) -> None:
        # A read may or may not move due jobs into line, so an exchange does it first.
        self.exchange("reader", [], (), 0)
        [job_id] = self.some_ids(data, 1)

        async def facts(store: Store) -> Any:
            position = await store.position(job_id)
            group, queue = position.group, position.queue
            return (
                position.job,
                (position.ahead_in_group, position.groups_ahead, position.running_ids, position.workers),
                (group.name, group.limit, group.paused, group.running, group.due),
                (queue.name, queue.max_running, queue.max_per_group, queue.paused, queue.running),
            )

        self.same(lambda store, key: facts(store))

    @invariant()
    def counts_agree(self) -> None:
        self.exchange("reader", [], (), 0)
        self.same(lambda store, key: store.queues())
        self.steps += 1
        if self.steps % STEPS_PER_FULL_COMPARISON == 0:
            self.compare_everything()

    def compare_everything(self) -> None:
        for queue in QUEUES:
            self.same(_groups_of(queue))
        for schedule in SCHEDULES:
            self.same(_ticks_of(schedule))
        self.same(lambda store, key: store.armed())
        for job_id in self.ids:
            self.same(_job_of(job_id))
        assert self.wait(audit(self.store)) == []
        assert self.wait(self.reference.audit()) == []


class Refused(Exception):
    """Both sides raised the same error."""


async def _finish(verb: Awaitable[T]) -> T:
    return await verb


def _groups_of(queue: str) -> Verb[list[GroupInfo]]:
    return lambda store, key: store.groups(queue)


def _arms_anew(schedule: str) -> Verb[bool]:
    async def arm_anew(store: Store) -> bool:
        was_armed = await store.disarm(schedule)
        await store.arm(schedule, 1, 0)
        return was_armed

    return lambda store, key: arm_anew(store)


def _ticks_of(schedule: str) -> Verb[list[TickInfo]]:
    return lambda store, key: store.ticks(schedule)


def _job_of(job_id: str) -> Verb[Job | None]:
    return lambda store, key: store.get(job_id)


def _job(draft: dict[str, Any], number: int) -> NewJob:
    return NewJob(id=f"job-{number}", kind="work", backoff=Fixed(5.0), payload=b'{"n": 1}', **draft)
