"""An exchange that waits: a standing order on the server, filled by whatever makes a job claimable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from jobyard.domain.outcome import Release
from jobyard.domain.state import Settlement, judge
from jobyard.errors import StoreError, StoreUnavailable
from jobyard.ports.job_store import Exchange
from jobyard.stores._shared.polling_claim import POLL_SECONDS
from jobyard.stores.redis.ear import LOOK
from jobyard.stores.redis.exchange import (
    ASK_AGAIN_SECONDS,
    FIRST_PAUSE_SECONDS,
    Homes,
    exchange,
    given,
    new_token,
    read,
)
from jobyard.stores.redis.link import AnswerLost
from jobyard.stores.redis.packing import milliseconds, queue_name, split
from jobyard.stores.redis.scripts import command
from jobyard.stores.redis.server import Server

ORDER, WITHDRAW = command("order"), command("withdraw")
# The server forgets an order that nobody has withdrawn by then: its owner is gone or asleep.
ORDER_MILLISECONDS = 3000
SHORTEST_NAP_SECONDS = 0.001
NOTHING = [b""]


class Order:
    """One patient exchange."""

    def __init__(
        self, server: Server, homes: Homes, worker: str, queues: Sequence[str], wanted: int, lease_seconds: float
    ) -> None:
        self._server = server
        self._homes = homes
        self._worker = worker
        self._queues = queues
        self._wanted = wanted
        self._lease_seconds = lease_seconds
        self._token = new_token()
        self._slot = homes.take_slot(worker)
        self._ear = server.station.ear
        self._told = self._ear.waiter(self._token)

    def _question(self) -> dict[str, Any]:
        return {
            "handle": self._ear.handle,
            "worker": self._worker,
            "token": self._token,
            "slot": self._slot,
            "wanted": self._wanted,
            "lease": milliseconds(self._lease_seconds),
            "queues": [queue_name(queue) for queue in dict.fromkeys(self._queues)],
            "patience": ORDER_MILLISECONDS,
        }

    async def wait(self, until: asyncio.Future[None]) -> Exchange:
        try:
            return await self._wait(until)
        except asyncio.CancelledError:
            self._leave()
            raise
        finally:
            self._homes.free_slot(self._worker, self._slot)
            self._told.cancel()

    async def _wait(self, until: asyncio.Future[None]) -> Exchange:
        try:
            first = await self._server.run(ORDER, self._question())
        except AnswerLost:
            return await self._withdrawn() or await self._once_more()
        answer = self._read(first)
        if answer.leases or answer.cancelled:
            # One that gives nothing stands; one that tells of cancels should not keep them to itself.
            return answer if answer.leases else await self._withdrawn() or answer
        nap = POLL_SECONDS
        if answer.next_due_at is not None:
            nap = min(nap, (answer.next_due_at - answer.now) / 1000)
        told: Any = LOOK if until.done() else await self._listen(until, max(nap, SHORTEST_NAP_SECONDS))
        if told not in (LOOK, NOTHING):
            return self._filled(told)
        filled = await self._withdrawn()
        if filled is not None:
            return filled
        should_look = told == LOOK or nap < POLL_SECONDS
        return await self._once_more() if should_look and not until.done() else answer

    async def _listen(self, until: asyncio.Future[None], seconds: float) -> Any:
        """What we are told, or NOTHING in time; one future for all, since every turn of the loop counts here."""

        def enough(_: object = None) -> None:
            if not self._told.done():
                self._told.set_result(NOTHING)

        timer = asyncio.get_running_loop().call_later(seconds, enough)
        until.add_done_callback(enough)
        try:
            return await self._told
        finally:
            timer.cancel()
            until.remove_done_callback(enough)

    async def _once_more(self) -> Exchange:
        return await exchange(
            self._server, self._homes, self._worker, (), self._queues, self._wanted, self._lease_seconds
        )

    async def _withdrawn(self) -> Exchange | None:
        """What it was given meanwhile. Asked for some seconds: leases that nobody knows of look like a death."""
        deadline, pause = time.monotonic() + ASK_AGAIN_SECONDS, FIRST_PAUSE_SECONDS
        while True:
            try:
                reply = await self._server.run(WITHDRAW, self._question())
            except StoreUnavailable:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(pause)
                pause *= 2
            else:
                return self._read(reply) if reply else None

    def _read(self, reply: list[Any]) -> Exchange:
        return read(self._homes, self._token, (), reply)

    def _filled(self, parts: list[bytes]) -> Exchange:
        revision, now, names, sequences, records, more = parts
        flat = split(more)
        extras = [[int(place), past, private] for place, past, private in zip(*[iter(flat)] * 3, strict=True)]
        leases = given(self._homes, self._token, split(names), split(sequences), split(records), extras)
        return Exchange(leases=leases, revision=int(revision), now=int(now))

    def _leave(self) -> None:
        """The caller goes away: the order is taken back before anything else goes out on this connection."""
        with suppress(StoreUnavailable):
            station = self._server.station
            link = station.link_at_hand()
            if link is not None:
                reply = link.send(*self._server.words(WITHDRAW, self._question()))
                station.run(self._hand_back(reply))

    async def _hand_back(self, reply: asyncio.Future[Any]) -> None:
        """What came too late goes back as it came."""
        with suppress(StoreError):
            answer = await reply
            if isinstance(answer, list) and answer:
                leases = self._read(answer).leases
                back = [Settlement(lease.key, judge(lease, Release())) for lease in leases]
                await exchange(self._server, self._homes, self._worker, back, (), 0, self._lease_seconds)
