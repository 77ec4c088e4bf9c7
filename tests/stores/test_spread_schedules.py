"""Schedules over queues on stores of their own: armed in all, decided in that of the queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.conformance.support import armed, decide_one, fired, insert, new, tick
from tests.stores.spread_scene import Scene
from tests.support import Watched, eventually

from jobyard.domain.instant import Instant
from jobyard.domain.schedule import Verdict
from jobyard.errors import BadInput, StoreUnavailable
from jobyard.ports.schedule_store import Armed, Decided, Decision, Tick
from jobyard.ports.store import Store
from jobyard.stores.sharded import SpreadStore, patience

KNOWN, STALE, AWAY = Decided(Decision.KNOWN), Decided(Decision.STALE), Decided(Decision.AWAY)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with Scene(tmp_path) as scene:
        yield scene


async def test_ticks_are_decided_in_the_store_of_their_queue(scene: Scene) -> None:
    for name in ("mails", "works"):
        await scene.store.arm(name, 1, since=0)
    mail, work = new(queue="mail"), new()
    ticks = [
        tick(1000, work, schedule="works"),
        tick(1000, mail, schedule="mails"),
        tick(2000, schedule="mails", verdict=Verdict.MISSED, queue="mail"),
        tick(1000, schedule="works"),
    ]
    missed = Decided(Decision.MADE, Verdict.MISSED)
    assert await scene.store.decide(ticks) == [fired(work.id), fired(mail.id), missed, KNOWN]
    assert (scene.main.calls["decide"], scene.mail.calls["decide"]) == (1, 1)
    assert [each.at for each in await scene.mail.as_store().ticks("mails")] == [2000, 1000]
    assert await scene.main.as_store().ticks("mails") == []
    assert await scene.store.ticks("mails") == await scene.mail.as_store().ticks("mails")
    assert await scene.store.armed() == [Armed("mails", 1, 2000), Armed("works", 1, 1000)]


async def test_only_the_stores_of_the_ticks_are_asked(scene: Scene) -> None:
    await scene.store.arm("mails", 1, since=0)
    await decide_one(scene.store, 1000, new(queue="mail"), schedule="mails")
    assert await scene.store.decide([]) == []
    assert (scene.main.calls["decide"], scene.mail.calls["decide"]) == (0, 1)


@pytest.mark.parametrize(("here", "there"), [("mail", "default"), ("default", "mail")])
async def test_a_schedule_that_moves_goes_on_where_it_was(scene: Scene, here: str, there: str) -> None:
    await scene.store.arm("nightly", 1, since=0)
    await decide_one(scene.store, 1000, new(queue=here))
    await scene.store.arm("nightly", 2)
    assert await decide_one(scene.store, 1000, new(queue=there), revision=2) == KNOWN
    assert (await decide_one(scene.store, 2000, new(queue=there), revision=2)).decision is Decision.MADE
    assert [each.at for each in await scene.store.ticks("nightly")] == [2000, 1000]
    assert [each.at for each in await scene.store.ticks("nightly", limit=1)] == [2000]
    assert [each.at for each in await scene.store.ticks("nightly", before=2000)] == [1000]
    assert await armed(scene.store) == Armed("nightly", 2, 2000)


async def test_a_schedule_that_moves_with_an_early_since_decides_nothing_again(scene: Scene) -> None:
    await scene.store.arm("nightly", 1, since=0)
    await decide_one(scene.store, 1000, new(queue="mail"))
    await scene.store.arm("nightly", 2, since=500)
    assert await decide_one(scene.store, 1000, revision=2) == KNOWN


async def test_a_later_revision_anywhere_is_left_alone(scene: Scene) -> None:
    await scene.store.arm("nightly", 1, since=0)
    await scene.mail.as_store().arm("nightly", 5)
    assert await scene.store.arm("nightly", 2) is False
    assert await scene.store.arm("nightly", 6) is True
    assert await armed(scene.store) == Armed("nightly", 6, 0)


async def test_who_is_not_armed_everywhere_can_be_told(scene: Scene) -> None:
    """A scheduler compares the revision and arms again: a crash in the middle, or a store that was added, heals."""
    await scene.store.arm("nightly", 3, since=0)
    await scene.mail.as_store().arm("nightly", 4)
    assert (await armed(scene.store)).revision == 3
    await scene.main.as_store().disarm("nightly")
    assert await armed(scene.store) == Armed("nightly", 0, 0)
    assert await scene.store.arm("nightly", 4) is True
    assert (await armed(scene.store)).revision == 4


async def test_a_store_that_is_added_goes_on_where_the_schedule_was(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    await scene.main.as_store().open()
    await scene.main.as_store().arm("nightly", 1, since=0)
    await decide_one(scene.main.as_store(), 1000)
    await scene.store.open()
    try:
        assert await decide_one(scene.store, 2000, new(queue="mail")) == STALE
        assert await scene.store.arm("nightly", 1) is True
        assert await decide_one(scene.store, 1000, new(queue="mail")) == KNOWN
        assert (await decide_one(scene.store, 2000, new(queue="mail"))).decision is Decision.MADE
    finally:
        await scene.store.close()


async def test_disarming_forgets_in_all_stores(scene: Scene) -> None:
    await scene.store.arm("nightly", 1, since=0)
    await decide_one(scene.store, 1000, new(queue="mail"))
    await scene.main.as_store().disarm("nightly")
    assert await scene.store.disarm("nightly") is True
    assert await scene.store.disarm("nightly") is False
    assert await scene.store.armed() == []
    assert await scene.store.ticks("nightly") == []


async def test_a_later_revision_is_disarmed_nowhere(scene: Scene) -> None:
    await scene.store.arm("nightly", 2, since=0)
    await decide_one(scene.store, 1000, new(queue="mail"), revision=2)
    assert await scene.store.disarm("nightly", 1) is False
    assert await armed(scene.store) == Armed("nightly", 2, 1000)
    assert len(await scene.store.ticks("nightly")) == 1


async def test_the_armed_are_merged_in_pages(scene: Scene) -> None:
    for name in ("a", "c", "e"):
        await scene.store.arm(name, 1, since=0)
    await scene.main.as_store().arm("b", 1, since=0)
    await scene.mail.as_store().arm("d", 1, since=0)
    first = await scene.store.armed(limit=3)
    assert [(each.schedule, each.revision) for each in first] == [("a", 1), ("b", 0), ("c", 1)]
    rest = await scene.store.armed(limit=3, after="c")
    assert [(each.schedule, each.revision) for each in rest] == [("d", 0), ("e", 1)]


async def test_a_store_that_is_away_keeps_no_other_from_deciding(scene: Scene) -> None:
    for name in ("mails", "works"):
        await scene.store.arm(name, 1, since=0)
    scene.mail.failing = StoreUnavailable("away")
    mail, work = new(queue="mail"), new()
    ticks = [tick(1000, mail, schedule="mails"), tick(1000, work, schedule="works")]
    assert await scene.store.decide(ticks) == [AWAY, fired(work.id)]
    assert await scene.store.decide(ticks[:1]) == [AWAY]
    assert [each.job_id for each in await scene.store.ticks("works")] == [work.id]
    assert await scene.store.armed() == [Armed("mails", 1, 0), Armed("works", 1, 1000)]
    scene.mail.failing = None
    assert await scene.store.decide(ticks) == [fired(mail.id), KNOWN]


async def test_the_default_store_may_be_away_as_well(scene: Scene) -> None:
    await scene.store.arm("mails", 1, since=0)
    mail = new(queue="mail")
    scene.main.failing = StoreUnavailable("away")
    ticks = [tick(1000, mail, schedule="mails"), tick(1000, schedule="works")]
    assert await scene.store.decide(ticks) == [fired(mail.id), AWAY]
    # Definitions are there: without it nobody could say what the answers are about.
    for verb in (scene.store.armed(), scene.store.ticks("mails")):
        with pytest.raises(StoreUnavailable):
            await verb


async def test_no_schedule_is_changed_while_a_store_is_away(scene: Scene) -> None:
    """It might have decided what the others would decide again."""
    await scene.store.arm("nightly", 1, since=0)
    scene.mail.failing = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await scene.store.arm("nightly", 2)
    with pytest.raises(StoreUnavailable):
        await scene.store.disarm("nightly")


async def test_what_a_store_refuses_is_told(scene: Scene) -> None:
    await scene.store.arm("nightly", 1, since=0)
    [taken] = await insert(scene.store, new(queue="mail"))
    with pytest.raises(BadInput):
        await scene.store.decide([tick(1000, new(queue="mail", id=taken))])


class Stalled(Watched):
    """A store behind a connection that takes everything and answers nothing until it is let go."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.asked = 0

    async def decide(self, ticks: Sequence[Tick]) -> list[Decided]:
        self.asked += 1
        await self.goes_on.wait()
        return await self._store.decide(ticks)


@pytest.fixture
async def stalled(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[SpreadStore, Stalled]]:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(patience, "SHORT_PATIENCE_SECONDS", 0.01)
    mail = Stalled(scene.mail.as_store())
    store = SpreadStore(scene.main.as_store(), {"mail": mail.as_store()})
    for name in ("mails", "works"):
        await store.arm(name, 1, since=0)
    mail.goes_on.clear()
    yield store, mail
    await store.close()
    await scene.store.open()  # as it was found


async def test_a_store_that_stalls_keeps_no_other_waiting(stalled: tuple[SpreadStore, Stalled]) -> None:
    store, mail = stalled
    lost, work = new(queue="mail"), new()
    answers = await store.decide([tick(1000, lost, schedule="mails"), tick(1000, work, schedule="works")])
    assert answers == [AWAY, fired(work.id)]
    # Nothing piles up behind the call that is on its way, and nobody waits for it.
    for at in range(2000, 2050):
        assert await decide_one(store, at, new(queue="mail"), schedule="mails") == AWAY
        assert (await decide_one(store, at, schedule="works")).decision is Decision.MADE
    assert mail.asked == 1
    mail.goes_on.set()
    # What took too long took effect after all: it is decided once, and known then.
    await eventually(lambda: store.get(lost.id))
    known = tick(1000, new(queue="mail"), schedule="mails")
    await eventually(lambda: decides(store, known, KNOWN))
    assert (await decide_one(store, 3000, new(queue="mail"), schedule="mails")).decision is Decision.MADE


async def decides(store: Store, one: Tick, expected: Decided) -> bool:
    return await store.decide([one]) == [expected]


async def test_closing_waits_for_no_store_that_stalls(stalled: tuple[SpreadStore, Stalled]) -> None:
    store, mail = stalled
    assert await decide_one(store, 1000, new(queue="mail"), schedule="mails") == AWAY
    assert mail.asked == 1
    await asyncio.wait_for(store.close(), 10)


async def test_who_calls_off_a_call_calls_off_all_of_it(stalled: tuple[SpreadStore, Stalled]) -> None:
    store, mail = stalled
    calling = asyncio.create_task(decide_one(store, 1000, new(queue="mail"), schedule="mails"))
    await eventually(lambda: mail.asked)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    mail.goes_on.set()
    assert (await decide_one(store, 1000, new(queue="mail"), schedule="mails")).decision is Decision.MADE


class Late(Watched):
    """A tick of the old revision slips in before this store is armed anew."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.job = new(queue="mail")
        self.decided: list[Decided] = []

    async def arm(self, schedule: str, revision: int, since: Instant | None = None) -> bool:
        if not self.decided:
            self.decided = await self._store.decide([tick(1000, self.job, schedule=schedule, revision=revision - 1)])
        return await self._store.arm(schedule, revision, since)


async def test_what_is_decided_while_it_is_armed_is_known_everywhere(scene: Scene) -> None:
    """The old revision decides once more in one store, just before that is armed anew."""
    await scene.store.arm("nightly", 1, since=0)
    late = Late(scene.mail.as_store())
    store = SpreadStore(scene.main.as_store(), {"mail": late.as_store()})
    await store.arm("nightly", 2)
    assert late.decided == [fired(late.job.id)]
    assert await decide_one(store, 1000, revision=2) == KNOWN
