"""The recorder: what it writes, what a kill leaves of it, and the real store under it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from tests.story.sizes import size

from jobyard.domain import admission
from jobyard.domain.instant import Instant
from jobyard.domain.job import Job, NewJob, QueueSettings, Unique
from jobyard.domain.lease import Lease
from jobyard.domain.outcome import Cancel, Done, Failed, Handoff, Outcome, Park, Release, Snooze
from jobyard.domain.retry import Fixed
from jobyard.domain.schedule import Verdict
from jobyard.domain.state import Settlement, judge
from jobyard.errors import JobyardError
from jobyard.ports.admin_store import Action, Filter
from jobyard.ports.schedule_store import Tick
from jobyard.ports.store import Store
from jobyard.stores.memory.store import MemoryStore
from jobyard.testing.history import History, RecordingStore, check, summary
from jobyard.testing.history.events import Request, Response

T = TypeVar("T")


class TurnedClock:
    def __init__(self) -> None:
        self.instant: Instant = 1_000_000

    def now(self) -> Instant:
        return self.instant


class Killed(Exception):
    """Stands for kill -9: neither the caller nor the file gets the result."""


class ShakyStore(RecordingStore):
    """Verbs overlap, and some callers die before, during or after their exchange."""

    def __init__(self, store: Store, path: Path, dice: random.Random, deadly: float) -> None:
        super().__init__(store, path)
        self._dice, self._deadly = dice, deadly

    async def _record(self, request: Request, verb: Awaitable[T], response: Callable[[T], Response]) -> T:
        async def shaken() -> T:
            await self._linger()
            value = await verb
            await self._linger()
            return value

        if self._dice.random() >= self._deadly:
            return await super()._record(request, shaken(), response)
        self._journal.write_call(request)
        await self._linger()
        if self._dice.random() < 0.5:
            await verb
        else:
            asyncio.ensure_future(verb).cancel()
        raise Killed

    async def _linger(self) -> None:
        for _ in range(self._dice.randrange(3)):
            await asyncio.sleep(0)


async def all_jobs(store: Store) -> list[Job]:
    found: list[Job] = []
    cursor: str | None = None
    while True:
        page = await store.find(Filter(), 1000, cursor)
        found += page.jobs
        cursor = page.cursor
        if cursor is None:
            return found


class World:
    """Some workers, an operator and a producer, all at random, over one memory store."""

    def __init__(self, path: Path, seed: int, deadly: float) -> None:
        self.dice = random.Random(seed)
        self.clock = TurnedClock()
        self.store = MemoryStore(self.clock)
        self.path, self.deadly = path, deadly
        self.ids: list[str] = []
        self.paths: list[Path] = []

    def handle(self) -> ShakyStore:
        self.paths.append(self.path / f"{len(self.paths)}.jsonl")
        return ShakyStore(self.store, self.paths[-1], self.dice, self.deadly)

    async def run(self, rounds: int) -> None:
        await asyncio.gather(*(self.work(f"w{number}", rounds) for number in range(4)), self.operate(rounds))

    async def work(self, name: str, rounds: int) -> None:
        store, held = self.handle(), list[Lease]()
        for _ in range(rounds):
            try:
                await self.one_round(store, name, held)
            except Killed:
                store, held = self.handle(), []

    async def one_round(self, store: Store, name: str, held: list[Lease]) -> None:
        dice = self.dice
        self.clock.instant += dice.choice([0, 1, 50, 1500])
        if dice.random() < 0.2:
            await store.reclaim()
        if held and dice.random() < 0.3:
            await store.extend(name, [lease.key for lease in held], 5.0)
        ended = [lease for lease in held if dice.random() < 0.5]
        if dice.random() < 0.1:
            ended += ended[:1]
        settlements = [Settlement(lease.key, judge(lease, self.outcome())) for lease in ended]
        response = await store.exchange(name, settlements, ["q", "r"], dice.randrange(4), 5.0)
        off = {one.key for one in settlements if one.transition.external_id and dice.random() < 0.5}
        held[:] = [lease for lease in held if lease not in ended or lease.key in off] + list(response.leases)

    def outcome(self) -> Outcome:
        failed = Failed(message="no", retry_after_seconds=self.dice.choice([0.0, 2.0]))
        others: list[Outcome] = [failed, Snooze(1.0), Cancel("no"), Handoff("pod"), Park("go", 2.0), Release()]
        return Done() if self.dice.random() < 0.5 else self.dice.choice(others)

    async def operate(self, rounds: int) -> None:
        store = self.handle()
        for number in range(rounds):
            try:
                await self.operate_once(store, number)
            except Killed:
                store = self.handle()
            except JobyardError:
                pass

    async def operate_once(self, store: Store, number: int) -> None:
        dice, group = self.dice, self.dice.choice("abc")
        if dice.random() < 0.7:
            new = [self.new_job(f"{number}-{index}") for index in range(dice.randrange(1, 5))]
            self.ids += [job.id for job in new]
            await store.insert(new)
        job_id = dice.choice(self.ids or ["none"])
        match dice.randrange(10):
            case 0 | 1:
                await store.change(dice.choice(list(Action)), [job_id], priority=dice.randrange(5))
            case 2:
                await store.set_limit("q", group, dice.choice([None, 0, 1, 3]))
            case 3:
                await store.set_paused("q", dice.choice([group, None]), dice.random() < 0.3)
            case 4:
                settings = QueueSettings(max_running=dice.choice([None, 4]), max_per_group=dice.choice([None, 2]))
                await store.configure("q", settings)
            case 5:
                await store.signal(job_id, "go")
            case 6:
                await store.adopt(self.new_job(f"{number}-adopted"), "operator", "pod")
            case 7:
                await store.prune(3)
            case 8:
                job = msgspec.structs.replace(self.new_job(f"{number}-due"), unique=dice.choice([None, Unique("key")]))
                self.ids.append(job.id)
                await self.decide(store, job)

    async def decide(self, store: Store, job: NewJob) -> None:
        dice, at = self.dice, self.clock.instant
        if dice.random() < 0.1:
            await store.disarm("nightly")
        await store.arm("nightly", 1, at - 10_000)
        tick = Tick(schedule="nightly", revision=1, at=at, queue=job.queue, verdict=Verdict.FIRED, job=job)
        missed = msgspec.structs.replace(tick, at=at - 1, verdict=Verdict.MISSED, job=None)
        skipping = msgspec.structs.replace(tick, skip_if_held=dice.random() < 0.5)
        await store.decide([missed, skipping, skipping])

    def new_job(self, job_id: str) -> NewJob:
        dice = self.dice
        return NewJob(
            id=job_id,
            kind="k",
            queue=dice.choice("qqr"),
            group=dice.choice(["a", "b", "c", None]),
            priority=dice.choice([0, 0, 5]),
            delay_seconds=dice.choice([0.0, 0.0, 3.0]),
            backoff=Fixed(1.0),
        )


@pytest.mark.parametrize("deadly", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("seed", range(size(3, 8)))
async def test_a_right_store_never_alarms(tmp_path: Path, seed: int, deadly: float) -> None:
    world = World(tmp_path, seed, deadly)
    await world.run(150)
    history = History.read(world.paths)
    assert [str(one) for one in check(history, await all_jobs(world.store))] == []
    numbers = summary(history)
    assert numbers.claims > 50
    assert numbers.processes == len(world.paths)
    assert (numbers.unanswered > 0) == (deadly > 0)


@pytest.mark.parametrize("deadly", [0.0, 0.02])
async def test_a_store_that_breaks_a_limit_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deadly: float
) -> None:
    right = admission.limit_of
    monkeypatch.setattr(admission, "limit_of", lambda queue, group: right(queue, group) + 1)
    world = World(tmp_path, 2, deadly)
    await world.run(150)
    assert {one.code for one in check(History.read(world.paths))} == {"group_limit_exceeded"}


async def test_answers_are_on_file_before_the_caller_sees_them(tmp_path: Path) -> None:
    store = RecordingStore(MemoryStore(TurnedClock()), tmp_path / "h")
    assert store.for_event_loop() is store
    await store.insert([NewJob(id="a", kind="k")])
    response = await store.exchange("w", [], ["default"], 1, 5.0)
    assert response.leases[0].token.encode() in (tmp_path / "h").read_bytes()


async def test_a_torn_last_line_is_an_answer_never_seen(tmp_path: Path) -> None:
    path = tmp_path / "h"
    store = RecordingStore(MemoryStore(TurnedClock()), path)
    await store.insert([NewJob(id="a", kind="k")])
    await store.exchange("w", [], ["default"], 1, 5.0)
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole[:cut])
        assert check(History.read([path])) == []
    path.write_bytes(whole[:-20])
    RecordingStore(MemoryStore(TurnedClock()), path)  # the next process of the same file
    history = History.read([path])
    assert summary(history).torn == summary(history).unanswered == 1
    assert history.processes == 2


async def test_a_line_broken_in_the_middle_is_no_history(tmp_path: Path) -> None:
    path = tmp_path / "h"
    store = RecordingStore(MemoryStore(TurnedClock()), path)
    await store.insert([NewJob(id="a", kind="k")])
    path.write_bytes(path.read_bytes().replace(b'"asked"', b'"as'))
    with pytest.raises(ValueError, match="invalid history line"):
        History.read([path])


CHILD = """
import asyncio, sys
from jobyard.domain.job import NewJob
from jobyard.ports.clock import SystemClock
from jobyard.stores.memory.store import MemoryStore
from jobyard.testing.history import RecordingStore
async def main():
    store = RecordingStore(MemoryStore(SystemClock()), sys.argv[1])
    for number in range(10**9):
        await store.insert([NewJob(id=str(number), kind="k")])
        await store.exchange("w", [], ["default"], 1, 5.0)
        if number == 100:
            print("go", flush=True)
asyncio.run(main())
"""


def test_what_was_written_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        os.kill(child.pid, signal.SIGKILL)
    history = History.read([path])
    assert check(history) == []
    assert summary(history).claims > 100
    assert summary(history).unanswered <= 1
