"""Many ticks: how many are kept, large calls, concurrent callers."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from tests.conformance.support import armed, claim_ids, decide_one, fired, new, queue_info, tick

from jobyard.domain.job import Unique
from jobyard.domain.schedule import Verdict
from jobyard.ports.schedule_store import KEPT_TICKS, ArmedSchedule, Decided, Decision
from jobyard.ports.store import Store

KNOWN, STALE = Decided(Decision.KNOWN), Decided(Decision.STALE)


@pytest.fixture
async def nightly(store: Store) -> Store:
    """Return the store with the schedule "nightly" armed since 0."""
    assert await store.arm("nightly", 1, since=0)
    return store


async def test_the_newest_ticks_are_kept(nightly: Store) -> None:
    await nightly.arm("hourly", 1, since=0)
    await decide_one(nightly, 7, schedule="hourly")
    await nightly.decide([tick(at, verdict=Verdict.MISSED) for at in range(1, KEPT_TICKS)])
    assert len(await nightly.ticks("nightly", limit=1000)) == KEPT_TICKS - 1
    await nightly.decide([tick(at, verdict=Verdict.MISSED) for at in range(KEPT_TICKS, KEPT_TICKS + 50)])
    listed = [each.at for each in await nightly.ticks("nightly", limit=1000)]
    assert listed == list(range(KEPT_TICKS + 49, 49, -1))
    await decide_one(nightly, 5000, verdict=Verdict.MISSED)
    listed = [each.at for each in await nightly.ticks("nightly", limit=1000)]
    assert (len(listed), listed[0], listed[-1]) == (KEPT_TICKS, 5000, 51)
    # A tick that is no longer kept stays decided.
    assert await decide_one(nightly, 3) == KNOWN
    assert len(await nightly.ticks("hourly")) == 1


async def test_one_call_with_more_ticks_than_are_kept(nightly: Store) -> None:
    responses = await nightly.decide([tick(at, verdict=Verdict.MISSED) for at in range(1, 3 * KEPT_TICKS)])
    assert {each.decision for each in responses} == {Decision.MADE}
    listed = [each.at for each in await nightly.ticks("nightly", limit=1000)]
    assert listed == list(range(3 * KEPT_TICKS - 1, 2 * KEPT_TICKS - 1, -1))


async def test_a_thousand_ticks_in_one_call(store: Store) -> None:
    names = [f"schedule-{number:04}" for number in range(1000)]
    await asyncio.gather(*(store.arm(name, 1, since=0) for name in names))
    jobs = [new(group=f"group-{number % 50}", unique=Unique(name)) for number, name in enumerate(names)]
    ticks = [tick(1000, job, schedule=name, skip_if_held=True) for name, job in zip(names, jobs, strict=True)]
    began = time.process_time()
    responses = await store.decide(ticks)
    # It takes tens of milliseconds; processor time, because the machine may be busy.
    assert time.process_time() - began < 2.0
    assert responses == [fired(job.id) for job in jobs]
    assert await store.decide(ticks) == [KNOWN] * 1000
    assert (await queue_info(store)).waiting == 1000
    assert await store.armed(limit=2000) == [ArmedSchedule(name, 1, 1000) for name in names]


async def test_concurrent_callers_decide_each_instant_once(nightly: Store) -> None:
    instants = range(1, 21)
    made: list[tuple[int, str | None]] = []
    start = threading.Barrier(4)

    async def scheduler() -> None:
        handle = nightly.for_event_loop()
        start.wait()
        calls = [[tick(at)] for at in instants]
        for ticks, responses in zip(calls, await asyncio.gather(*map(handle.decide, calls)), strict=True):
            made.extend((ticks[0].at, each.job_id) for each in responses if each.decision is Decision.MADE)

    def run() -> None:
        asyncio.run(scheduler())

    await asyncio.gather(*(asyncio.to_thread(run) for _ in range(4)))
    # Concurrent calls may run in any order: an instant may be passed over, but none is decided twice.
    listed = sorted((each.at, each.job_id) for each in await nightly.ticks("nightly"))
    assert sorted(made) == listed
    assert len({at for at, _ in made}) == len(made)
    assert await armed(nightly) == ArmedSchedule("nightly", 1, 20)
    assert sorted(await claim_ids(nightly, 99)) == sorted(job_id for _, job_id in made if job_id)


async def test_a_tick_concurrent_with_a_new_revision(nightly: Store) -> None:
    for revision in range(1, 21):
        at = 1000 * revision
        job = new()
        decided, took_over = await asyncio.gather(
            decide_one(nightly, at, job, revision=revision), nightly.arm("nightly", revision + 1, since=at)
        )
        assert took_over is True
        is_inserted = await nightly.get(job.id) is not None
        assert decided == (fired(job.id) if is_inserted else STALE)
        # Whichever was first, the instant is not decided again.
        assert await decide_one(nightly, at, revision=revision + 1) == KNOWN


async def test_a_tick_concurrent_with_disarming(store: Store) -> None:
    for _ in range(20):
        await store.arm("nightly", 1, since=0)
        job = new()
        decided, was_armed = await asyncio.gather(decide_one(store, 1000, job), store.disarm("nightly"))
        assert was_armed is True
        is_inserted = await store.get(job.id) is not None
        assert decided == (fired(job.id) if is_inserted else STALE)
        assert await store.armed() == []
        assert await store.ticks("nightly") == []
