"""Answers that arrive late: a job starts only with a lease that was just renewed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from tests.support import Events, Watched, eventually

from jobyard import Jobyard
from jobyard.config.store_factory import make_store
from jobyard.domain.events import JobLeaseLost
from jobyard.domain.lease import ExpiredLease, Lease
from jobyard.domain.outcome import Done
from jobyard.domain.state import Settlement, judge
from jobyard.errors import StoreUnavailable
from jobyard.ports.job_store import Exchange, Extended
from jobyard.worker.quarantine import SUSPECT_DEATHS

LEASE = 1.0


class LateStore(Watched):
    """Holds back the answer to the first claim, or to its renewal, until another worker has the job."""

    late_verb = "exchange"
    taken: Lease | None = None
    ended: Sequence[ExpiredLease] = ()
    renews = False  # the background thread, once the late answer was given
    granted_at = 0

    async def exchange(self, *args: Any) -> Exchange:
        response: Exchange = await self._store.exchange(*args)
        if self.late_verb == "postpone" and args[1] and not self.ended:
            await eventually(self.reclaims)
            self.renews = True
            return response
        if response.leases and not self.granted_at:
            self.granted_at = response.now
            if self.late_verb == "postpone":
                return response
            await eventually(self.is_half_over)
            if self.late_verb == "exchange":
                await self.take()
        return response

    async def extend(self, *args: Any, unacknowledged: bool | None = None) -> Extended:
        if unacknowledged is not None and not self.renews:
            raise StoreUnavailable("the thread that renews stands still, too")
        if self.late_verb == "nothing" and not self.renews:
            raise StoreUnavailable("no renewal")
        extended = await self._store.extend(*args, unacknowledged=bool(unacknowledged))
        if self.taken is None and unacknowledged is None and self.late_verb == "extend":
            await self.take()
        return extended

    async def reclaim(self, *args: Any, **options: Any) -> list[ExpiredLease]:
        return await self._store.reclaim(*args, **options) if self.renews else []

    async def is_half_over(self) -> bool:
        return await self._store.now() - self.granted_at > LEASE * 600

    async def reclaims(self) -> bool:
        self.ended = await self._store.reclaim()
        return bool(self.ended)

    async def take(self) -> None:
        async def is_taken() -> bool:
            await self._store.reclaim()
            self.taken = next(iter((await self._store.exchange("other", [], ["default"], 1, 60.0)).leases), None)
            return self.taken is not None

        await eventually(is_taken)
        self.renews = True


@pytest.fixture
def late() -> LateStore:
    return LateStore(make_store("memory://"))


@pytest.fixture
async def yard(late: LateStore, events: Events) -> AsyncIterator[Jobyard]:
    async with Jobyard(store=late.as_store(), observer=events) as yard:
        yield yard


@pytest.mark.parametrize("late_verb", ["exchange", "extend"])
async def test_a_job_that_another_worker_has_by_then_is_left(
    yard: Jobyard, late: LateStore, events: Events, late_verb: str
) -> None:
    late.late_verb = late_verb
    ran: list[str] = []

    @yard.job()
    async def work(name: str) -> None:
        ran.append(name)

    handle = await work.enqueue("late")
    async with yard.worker(lease=LEASE):
        [lost] = await eventually(lambda: events.of(JobLeaseLost))
        await (await work.enqueue("next")).result(60)
    assert (ran, lost.lease.job_id) == (["next"], handle.id)
    assert late.taken is not None
    settled = [Settlement(late.taken.key, judge(late.taken, Done(), worker="other"))]
    assert (await yard.store.exchange("other", settled, [], 0, LEASE)).refused == ()


async def test_a_suspect_whose_lease_ended_while_others_were_postponed_is_left(
    yard: Jobyard, late: LateStore, events: Events
) -> None:
    late.late_verb = "postpone"
    ran: list[str] = []

    @yard.job()
    async def work(name: str) -> None:
        ran.append(name)

    handles = [await work.enqueue(name) for name in ("first", "second")]
    for _ in range(SUSPECT_DEATHS):
        await late._store.exchange("dead", [], ["default"], 2, 0.001)
        await eventually(late.reclaims)
    late.ended = list[ExpiredLease]()
    late.granted_at = 0
    async with yard.worker(lease=LEASE):
        await handles[1].result(60)
    [ended] = late.ended
    assert (ran, ended.job_id) == (["second"], handles[0].id)
    assert [lost.lease.job_id for lost in events.of(JobLeaseLost)] == [handles[0].id]


async def test_leases_that_cannot_be_renewed_are_lost(yard: Jobyard, late: LateStore, events: Events) -> None:
    late.late_verb = "nothing"
    ran: list[bool] = []

    @yard.job()
    async def work() -> None:
        ran.append(len(events.of(JobLeaseLost)) > 0)

    handle = await work.enqueue()
    async with yard.worker(lease=LEASE):
        await eventually(lambda: events.of(JobLeaseLost))
        late.renews = True
        await handle.result(60)
    assert (ran, (await handle.info()).deaths) == ([True], 1)
