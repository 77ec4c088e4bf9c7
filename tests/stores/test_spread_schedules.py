"""Schedules over queues on stores of their own: armed in all, decided in that of the queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.support import armed, decide_one, fired, new, tick
from tests.stores.spread_scene import Scene
from tests.support import Watched

from jobyard.domain.instant import Instant
from jobyard.errors import StoreUnavailable
from jobyard.ports.store import Armed, Decided, Decision, Store, Verdict
from jobyard.stores.spread import SpreadStore

KNOWN, STALE = Decided(Decision.KNOWN), Decided(Decision.STALE)


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


async def test_what_other_stores_decided_stands_though_one_is_away(scene: Scene) -> None:
    for name in ("mails", "works"):
        await scene.store.arm(name, 1, since=0)
    scene.mail.failing = StoreUnavailable("away")
    ticks = [tick(1000, new(queue="mail"), schedule="mails"), tick(1000, schedule="works")]
    with pytest.raises(StoreUnavailable):
        await scene.store.decide(ticks)
    scene.mail.failing = None
    answers = await scene.store.decide(ticks)
    assert [each.decision for each in answers] == [Decision.MADE, Decision.KNOWN]


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
