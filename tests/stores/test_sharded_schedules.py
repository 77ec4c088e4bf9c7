"""Schedules of a sharded store: armed in all stores, decided in the store of their queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.conformance.support import armed, decide_one, fired, insert, new, tick
from tests.stores.sharded_support import ShardedSetup
from tests.support import Watched, eventually

from jobyard.domain.instant import Instant
from jobyard.domain.schedule import Verdict
from jobyard.errors import BadInput, StoreUnavailable
from jobyard.ports.schedule_store import ArmedSchedule, Decided, Decision, Tick
from jobyard.ports.store import Store
from jobyard.stores.sharded import ShardedStore, timeouts

KNOWN, STALE, UNAVAILABLE = Decided(Decision.KNOWN), Decided(Decision.STALE), Decided(Decision.UNAVAILABLE)


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[ShardedSetup]:
    async with ShardedSetup(tmp_path) as setup:
        yield setup


async def test_ticks_are_decided_in_the_store_of_their_queue(setup: ShardedSetup) -> None:
    for name in ("mails", "works"):
        await setup.store.arm(name, 1, since=0)
    mail, work = new(queue="mail"), new()
    ticks = [
        tick(1000, work, schedule="works"),
        tick(1000, mail, schedule="mails"),
        tick(2000, schedule="mails", verdict=Verdict.MISSED, queue="mail"),
        tick(1000, schedule="works"),
    ]
    missed = Decided(Decision.MADE, Verdict.MISSED)
    assert await setup.store.decide(ticks) == [fired(work.id), fired(mail.id), missed, KNOWN]
    assert (setup.main.calls["decide"], setup.mail.calls["decide"]) == (1, 1)
    assert [each.at for each in await setup.mail.as_store().ticks("mails")] == [2000, 1000]
    assert await setup.main.as_store().ticks("mails") == []
    assert await setup.store.ticks("mails") == await setup.mail.as_store().ticks("mails")
    assert await setup.store.armed() == [ArmedSchedule("mails", 1, 2000), ArmedSchedule("works", 1, 1000)]


async def test_only_the_stores_of_the_ticks_are_called(setup: ShardedSetup) -> None:
    await setup.store.arm("mails", 1, since=0)
    await decide_one(setup.store, 1000, new(queue="mail"), schedule="mails")
    assert await setup.store.decide([]) == []
    assert (setup.main.calls["decide"], setup.mail.calls["decide"]) == (0, 1)


@pytest.mark.parametrize(("here", "there"), [("mail", "default"), ("default", "mail")])
async def test_a_moved_schedule_continues_after_its_last_tick(setup: ShardedSetup, here: str, there: str) -> None:
    await setup.store.arm("nightly", 1, since=0)
    await decide_one(setup.store, 1000, new(queue=here))
    await setup.store.arm("nightly", 2)
    assert await decide_one(setup.store, 1000, new(queue=there), revision=2) == KNOWN
    assert (await decide_one(setup.store, 2000, new(queue=there), revision=2)).decision is Decision.MADE
    assert [each.at for each in await setup.store.ticks("nightly")] == [2000, 1000]
    assert [each.at for each in await setup.store.ticks("nightly", limit=1)] == [2000]
    assert [each.at for each in await setup.store.ticks("nightly", before=2000)] == [1000]
    assert await armed(setup.store) == ArmedSchedule("nightly", 2, 2000)


async def test_a_moved_schedule_with_an_early_since_decides_nothing_twice(setup: ShardedSetup) -> None:
    await setup.store.arm("nightly", 1, since=0)
    await decide_one(setup.store, 1000, new(queue="mail"))
    await setup.store.arm("nightly", 2, since=500)
    assert await decide_one(setup.store, 1000, revision=2) == KNOWN


async def test_a_later_revision_in_any_store_wins(setup: ShardedSetup) -> None:
    await setup.store.arm("nightly", 1, since=0)
    await setup.mail.as_store().arm("nightly", 5)
    assert await setup.store.arm("nightly", 2) is False
    assert await setup.store.arm("nightly", 6) is True
    assert await armed(setup.store) == ArmedSchedule("nightly", 6, 0)


async def test_armed_returns_the_lowest_revision(setup: ShardedSetup) -> None:
    """The scheduler then arms again, which repairs a crash while arming, or a store that was added."""
    await setup.store.arm("nightly", 3, since=0)
    await setup.mail.as_store().arm("nightly", 4)
    assert (await armed(setup.store)).revision == 3
    await setup.main.as_store().disarm("nightly")
    assert await armed(setup.store) == ArmedSchedule("nightly", 0, 0)
    assert await setup.store.arm("nightly", 4) is True
    assert (await armed(setup.store)).revision == 4


async def test_an_added_store_continues_after_the_last_tick(tmp_path: Path) -> None:
    setup = ShardedSetup(tmp_path)
    await setup.main.as_store().open()
    await setup.main.as_store().arm("nightly", 1, since=0)
    await decide_one(setup.main.as_store(), 1000)
    await setup.store.open()
    try:
        assert await decide_one(setup.store, 2000, new(queue="mail")) == STALE
        assert await setup.store.arm("nightly", 1) is True
        assert await decide_one(setup.store, 1000, new(queue="mail")) == KNOWN
        assert (await decide_one(setup.store, 2000, new(queue="mail"))).decision is Decision.MADE
    finally:
        await setup.store.close()


async def test_disarm_applies_to_all_stores(setup: ShardedSetup) -> None:
    await setup.store.arm("nightly", 1, since=0)
    await decide_one(setup.store, 1000, new(queue="mail"))
    await setup.main.as_store().disarm("nightly")
    assert await setup.store.disarm("nightly") is True
    assert await setup.store.disarm("nightly") is False
    assert await setup.store.armed() == []
    assert await setup.store.ticks("nightly") == []


async def test_disarm_keeps_a_later_revision_in_all_stores(setup: ShardedSetup) -> None:
    await setup.store.arm("nightly", 2, since=0)
    await decide_one(setup.store, 1000, new(queue="mail"), revision=2)
    assert await setup.store.disarm("nightly", 1) is False
    assert await armed(setup.store) == ArmedSchedule("nightly", 2, 1000)
    assert len(await setup.store.ticks("nightly")) == 1


async def test_armed_schedules_are_merged_in_pages(setup: ShardedSetup) -> None:
    for name in ("a", "c", "e"):
        await setup.store.arm(name, 1, since=0)
    await setup.main.as_store().arm("b", 1, since=0)
    await setup.mail.as_store().arm("d", 1, since=0)
    first = await setup.store.armed(limit=3)
    assert [(each.schedule, each.revision) for each in first] == [("a", 1), ("b", 0), ("c", 1)]
    rest = await setup.store.armed(limit=3, after="c")
    assert [(each.schedule, each.revision) for each in rest] == [("d", 0), ("e", 1)]


async def test_an_unavailable_store_does_not_stop_the_others_from_deciding(setup: ShardedSetup) -> None:
    for name in ("mails", "works"):
        await setup.store.arm(name, 1, since=0)
    setup.mail.failing = StoreUnavailable("away")
    mail, work = new(queue="mail"), new()
    ticks = [tick(1000, mail, schedule="mails"), tick(1000, work, schedule="works")]
    assert await setup.store.decide(ticks) == [UNAVAILABLE, fired(work.id)]
    assert await setup.store.decide(ticks[:1]) == [UNAVAILABLE]
    assert [each.job_id for each in await setup.store.ticks("works")] == [work.id]
    assert await setup.store.armed() == [ArmedSchedule("mails", 1, 0), ArmedSchedule("works", 1, 1000)]
    setup.mail.failing = None
    assert await setup.store.decide(ticks) == [fired(mail.id), KNOWN]


async def test_the_default_store_may_be_unavailable(setup: ShardedSetup) -> None:
    await setup.store.arm("mails", 1, since=0)
    mail = new(queue="mail")
    setup.main.failing = StoreUnavailable("away")
    ticks = [tick(1000, mail, schedule="mails"), tick(1000, schedule="works")]
    assert await setup.store.decide(ticks) == [fired(mail.id), UNAVAILABLE]
    # The definitions of schedules are in the default store, so these verbs need it.
    for verb in (setup.store.armed(), setup.store.ticks("mails")):
        with pytest.raises(StoreUnavailable):
            await verb


async def test_arm_and_disarm_fail_while_a_store_is_unavailable(setup: ShardedSetup) -> None:
    """That store may have decided ticks that the others would decide again."""
    await setup.store.arm("nightly", 1, since=0)
    setup.mail.failing = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await setup.store.arm("nightly", 2)
    with pytest.raises(StoreUnavailable):
        await setup.store.disarm("nightly")


async def test_the_error_of_a_store_is_raised(setup: ShardedSetup) -> None:
    await setup.store.arm("nightly", 1, since=0)
    [taken] = await insert(setup.store, new(queue="mail"))
    with pytest.raises(BadInput):
        await setup.store.decide([tick(1000, new(queue="mail", id=taken))])


class Stalled(Watched):
    """A store whose `decide` does not return until `goes_on` is set."""

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
async def stalled(setup: ShardedSetup, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[ShardedStore, Stalled]]:
    monkeypatch.setattr(timeouts, "TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(timeouts, "SUSPECT_TIMEOUT_SECONDS", 0.01)
    mail = Stalled(setup.mail.as_store())
    store = ShardedStore(setup.main.as_store(), {"mail": mail.as_store()})
    for name in ("mails", "works"):
        await store.arm(name, 1, since=0)
    mail.goes_on.clear()
    yield store, mail
    await store.close()
    await setup.store.open()  # the fixture closes it


async def test_a_stalled_store_does_not_delay_the_others(stalled: tuple[ShardedStore, Stalled]) -> None:
    store, mail = stalled
    lost, work = new(queue="mail"), new()
    responses = await store.decide([tick(1000, lost, schedule="mails"), tick(1000, work, schedule="works")])
    assert responses == [UNAVAILABLE, fired(work.id)]
    # No further call is made while one is late, and no caller waits for it.
    for at in range(2000, 2050):
        assert await decide_one(store, at, new(queue="mail"), schedule="mails") == UNAVAILABLE
        assert (await decide_one(store, at, schedule="works")).decision is Decision.MADE
    assert mail.asked == 1
    mail.goes_on.set()
    # The late call takes effect after all: the tick is decided once, and known from then on.
    await eventually(lambda: store.get(lost.id))
    known = tick(1000, new(queue="mail"), schedule="mails")
    await eventually(lambda: decides(store, known, KNOWN))
    assert (await decide_one(store, 3000, new(queue="mail"), schedule="mails")).decision is Decision.MADE


async def decides(store: Store, one: Tick, expected: Decided) -> bool:
    return await store.decide([one]) == [expected]


async def test_close_does_not_wait_for_a_stalled_store(stalled: tuple[ShardedStore, Stalled]) -> None:
    store, mail = stalled
    assert await decide_one(store, 1000, new(queue="mail"), schedule="mails") == UNAVAILABLE
    assert mail.asked == 1
    await asyncio.wait_for(store.close(), 60)


async def test_cancelling_the_caller_cancels_the_call(stalled: tuple[ShardedStore, Stalled]) -> None:
    store, mail = stalled
    calling = asyncio.create_task(decide_one(store, 1000, new(queue="mail"), schedule="mails"))
    await eventually(lambda: mail.asked)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    mail.goes_on.set()
    assert (await decide_one(store, 1000, new(queue="mail"), schedule="mails")).decision is Decision.MADE


class Late(Watched):
    """Decides a tick of the old revision just before the new one is armed."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.job = new(queue="mail")
        self.decided: list[Decided] = []

    async def arm(self, schedule: str, revision: int, since: Instant | None = None) -> bool:
        if not self.decided:
            self.decided = await self._store.decide([tick(1000, self.job, schedule=schedule, revision=revision - 1)])
        return await self._store.arm(schedule, revision, since)


async def test_a_tick_decided_while_arming_is_known_in_all_stores(setup: ShardedSetup) -> None:
    await setup.store.arm("nightly", 1, since=0)
    late = Late(setup.mail.as_store())
    store = ShardedStore(setup.main.as_store(), {"mail": late.as_store()})
    await store.arm("nightly", 2)
    assert late.decided == [fired(late.job.id)]
    assert await decide_one(store, 1000, revision=2) == KNOWN
