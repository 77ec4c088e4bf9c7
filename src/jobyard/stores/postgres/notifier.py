"""The verbs that may wait: for something to claim, for work, and for a job's end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from jobyard.domain.job import Job
from jobyard.domain.state import Settlement
from jobyard.ports.job_store import Exchange
from jobyard.stores._shared.polling_claim import POLL_SECONDS
from jobyard.stores.postgres.desk import Parts
from jobyard.stores.postgres.hot_path import HotPathVerbs
from jobyard.stores.postgres.ordering import Order
from jobyard.stores.postgres.seeing import see
from jobyard.stores.postgres.standing import not_found

# Below this a timer that fires a hair early would spin.
SHORTEST_NAP_SECONDS = 0.001
# Where nobody tells us, we look: soon at first, then about once a second.
FIRST_LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.02, 1.0
# Even who listens looks now and then: a notification may have been lost with its connection.
LISTENER_LOOKS_SECONDS = 1.0


class Looks:
    """How long to sleep between two looks."""

    def __init__(self, parts: Parts, longest: float) -> None:
        self._ear = parts.ear
        self._nap = FIRST_LOOK_SECONDS
        self._longest = longest

    def next(self) -> float:
        if self._ear.is_listening:
            return self._longest
        nap, self._nap = self._nap, min(LONGEST_LOOK_SECONDS, self._nap * 1.5)
        return nap


class WaitingVerbs(HotPathVerbs):
    async def get(self, job_id: str) -> Job | None:
        now = self._now()
        jobs = await self._run(lambda connection, statements: see(connection, statements, now, [job_id]))
        return jobs.get(job_id)

    async def exchange(
        self,
        worker: str,
        settlements: Sequence[Settlement],
        queues: Sequence[str],
        wanted: int,
        lease_seconds: float,
        until: asyncio.Future[None] | None = None,
    ) -> Exchange:
        if until is None or settlements:
            return await self._exchange_now(worker, settlements, queues, wanted, lease_seconds)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + POLL_SECONDS
        looks = Looks(await self._listening(), LISTENER_LOOKS_SECONDS)
        while True:
            rung = self._family.work.add()
            try:
                answer = await self._exchange_now(worker, (), queues, wanted, lease_seconds)
                remaining = deadline - loop.time()
                if answer.leases or answer.cancelled or until.done() or remaining <= 0:
                    return answer
                nap = min(remaining, looks.next(), self._until_due(answer))
                given = await self._stand_by(Order(worker, queues, wanted, lease_seconds), rung, until, nap)
                if given is not None or until.done():
                    return given or answer
            finally:
                self._family.work.discard(rung)

    async def _stand_by(
        self, order: Order, rung: asyncio.Future[None], until: asyncio.Future[None], seconds: float
    ) -> Exchange | None:
        """What an insert of this process brings, before anything else happens."""
        self._orders.add(order)
        for event in (rung, until):
            event.add_done_callback(order.call_off)
        timer = asyncio.get_running_loop().call_later(seconds, order.call_off)
        try:
            return await order.answer
        finally:
            timer.cancel()
            for event in (rung, until):
                event.remove_done_callback(order.call_off)
            self._orders.remove(order)

    async def wait_for_work(self, queues: Sequence[str], timeout_seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        asked_before, counted = self._family.cancels, None
        deadline = loop.time() + timeout_seconds
        parts = self._open_parts() if timeout_seconds <= 0 else await self._listening()
        looks = Looks(parts, LISTENER_LOOKS_SECONDS)
        while True:
            rung = self._family.work.add()
            try:
                [(found, cancels, due)] = await self._rows("has_work", self._now(), list(queues))
                # Only a cancel that is new since the sleep began: one that takes its time must not keep all awake.
                is_new = self._family.cancels != asked_before or (counted is not None and cancels > counted)
                if found or is_new:
                    return True
                counted = cancels
                remaining = deadline - loop.time()
                if remaining <= 0:
                    return False
                nap = min(remaining, looks.next())
                if due is not None and self._by_hand is None:
                    nap = min(nap, due / 1000)
                await asyncio.wait([rung], timeout=max(nap, SHORTEST_NAP_SECONDS))
            finally:
                self._family.work.discard(rung)

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job | None:
        parts = self._open_parts() if timeout_seconds <= 0 else await self._listening()
        if timeout_seconds <= 0:
            return await self._end_of(job_id)
        # While it is listed, an exchange of this process shows the job's end before retention may take it away.
        sleeper = self._family.ends.enter(job_id)
        try:
            parts.asker.wake(job_id)
            async with asyncio.timeout(timeout_seconds):
                return await sleeper
        except TimeoutError:
            return None
        finally:
            self._family.ends.leave(job_id, sleeper)
            if self._parts is None:
                await parts.asker.close()

    async def _end_of(self, job_id: str) -> Job | None:
        job = await self.get(job_id)
        if job is None:
            raise not_found(job_id)
        return job if job.state.is_final else None

    async def _listening(self) -> Parts:
        """PgBouncer forbids to listen: a session is ours for one transaction only."""
        parts = self._open_parts()
        if not self._pooled and self._parts is not None:
            await parts.ear.open()
        return parts

    def _until_due(self, answer: Exchange) -> float:
        if answer.next_due_at is None or self._by_hand is not None:
            return POLL_SECONDS
        return max(SHORTEST_NAP_SECONDS, (answer.next_due_at - answer.now) / 1000)
