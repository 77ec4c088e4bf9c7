"""Everything of a store that belongs to one event loop: its connections, its ear, its inserts that meet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from jobyard.errors import StoreUnavailable
from jobyard.stores.redis.address import Address
from jobyard.stores.redis.ear import Ear
from jobyard.stores.redis.link import ANSWER_SECONDS, Link, connect

# Commands on their way on one connection, from which on another one is opened, and at the most.
BUSY, FULL = 16, 256
LOOK_AGAIN_SECONDS = 0.005


class Station:
    def __init__(
        self, address: Address, prefix: str, connections: int, pass_on: Callable[[str], Coroutine[Any, Any, None]]
    ) -> None:
        self._address = address
        self._prefix = prefix
        self._connections = connections
        self._pass_on = pass_on
        self._errands: set[asyncio.Task[None]] = set()
        self._links: list[Link] = []
        self._opening: asyncio.Task[None] | None = None
        self._ear: Ear | None = None
        self._closed = False
        self.loop = asyncio.get_running_loop()
        self.meeting: list[Any] = []  # inserts handed in during this turn of the loop
        self.travelling = 0  # inserts on their way
        # A loop that ends without closing the store cancels its tasks: then the connections go with it.
        self._guard = self.loop.create_task(self._stand_guard())

    @property
    def ear(self) -> Ear:
        if self._ear is None:
            self._ear = Ear(self._address, self._prefix, lambda queue: self.run(self._pass_on(queue)))
        return self._ear

    def start_over(self) -> None:
        """Leave every connection; the next command makes a new one, by the server's name."""
        for link in self._links:
            link.close()
        if self._ear is not None:
            self._ear.start_over()

    def look_again(self) -> None:
        """Whoever sleeps here."""
        if self._ear is not None:
            self._ear.look_again()

    def run(self, errand: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    def link_at_hand(self) -> Link | None:
        """A connection that can take a command now."""
        for link in self._links:
            if link.is_open and link.in_flight < BUSY:
                return link
        return None

    async def link(self) -> Link:
        """The least busy connection, or a new one while there may be more."""
        deadline = self.loop.time() + ANSWER_SECONDS
        while True:
            self._links = [link for link in self._links if link.is_open]
            if self._closed:
                raise StoreUnavailable(f"The store {self._address.shown} was closed.")
            least = min(self._links, key=lambda link: link.in_flight, default=None)
            if least is not None and least.in_flight < BUSY:
                return least
            if len(self._links) < self._connections:
                await self._open_another()
            elif least is not None and least.in_flight < FULL:
                return least
            elif self.loop.time() > deadline:
                raise StoreUnavailable(
                    f"All {self._connections} connections to {self._address.shown} have been busy for "
                    f"{ANSWER_SECONDS:g} s. Allow more of them, or ask less at once."
                )
            else:
                await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def _open_another(self) -> None:
        """Those who come meanwhile wait for the same one; a caller that gives up leaves it to them."""
        if self._opening is None or self._opening.done():
            self._opening = self.loop.create_task(self._open())
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        link = await connect(self._address)
        if self._closed:
            link.close()
            return
        self._links.append(link)

    async def close(self) -> None:
        """Answers that are owed are waited for; then everything is let go."""
        self._closed = True
        for link in self._links:
            with suppress(StoreUnavailable):
                await link.drained()
        await self._let_go()
        self._guard.cancel()
        with suppress(asyncio.CancelledError):
            await self._guard

    async def _let_go(self) -> None:
        self._closed = True
        for errand in self._errands:
            errand.cancel()
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._ear is not None:
            await self._ear.close(StoreUnavailable("The store was closed."))
        for link in self._links:
            link.close()
        for link in self._links:
            await link.closed

    async def _stand_guard(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            if not self._closed:
                await self._let_go()
