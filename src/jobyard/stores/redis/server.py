"""Asking the server: the right connection for this event loop, the script, and plain words for refusals."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hiredis import ReplyError

from jobyard.errors import BadInput, StoreError, StoreReadOnly, StoreUnavailable
from jobyard.ports.clock import Clock
from jobyard.stores.redis.address import Address
from jobyard.stores.redis.link import ANSWER_SECONDS
from jobyard.stores.redis.packing import encode
from jobyard.stores.redis.scripts import command, library
from jobyard.stores.redis.station import Station
from jobyard.stores.redis.trouble import is_late, is_unknown_command, plain

PASS = command("pass")


class Server:
    """May be used from any event loop; each has its own connections."""

    def __init__(self, address: Address, prefix: str, connections: int, clock: Clock | None) -> None:
        self.address = address
        self.prefix = prefix
        self.clock = clock
        self.is_open = False
        self._connections = connections
        self._ahead = 0.0
        self._stations: dict[asyncio.AbstractEventLoop, Station] = {}
        self._lock = threading.Lock()

    @property
    def station(self) -> Station:
        loop = asyncio.get_running_loop()
        station = self._stations.get(loop)
        if station is None:
            if not self.is_open:
                raise StoreUnavailable(f"The store {self.address.shown} is not open: use it inside `async with`.")
            with self._lock:
                for gone in [one for one in self._stations if one.is_closed()]:
                    del self._stations[gone]
                station = self._stations[loop] = Station(self.address, self.prefix, self._connections, self._pass_on)
        return station

    async def close(self) -> None:
        self.is_open = False
        with self._lock:
            stations, self._stations = self._stations, {}
        here = stations.pop(asyncio.get_running_loop(), None)
        for loop, station in stations.items():
            if not loop.is_closed():
                asyncio.run_coroutine_threadsafe(station.close(), loop)
        if here is not None:
            await here.close()

    def everywhere(self, work: Callable[[Station], None]) -> None:
        """On each event loop that uses the store, from any thread."""
        for loop, station in list(self._stations.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(work, station)

    async def _pass_on(self, queue: str) -> None:
        """Told of work too late: somebody else should hear of it, or will look by himself within a second."""
        with suppress(StoreError):
            await self.run(PASS, {"name": queue})

    async def ask(self, *words: str | bytes | int) -> Any:
        """A plain command."""
        station = self.station
        link = station.link_at_hand() or await station.link()
        answer = await link.send(*words)
        if isinstance(answer, ReplyError):
            raise self.refusal(answer) from answer
        return answer

    def refusal(self, answer: ReplyError) -> StoreError:
        """A server that is no master any more is left: behind its name there may be another one."""
        error = plain(answer, self.address.shown)
        if isinstance(error, StoreReadOnly):
            self.station.start_over()
        return error

    async def read_clock(self) -> None:
        """How far the server's clock is ahead of ours, so that a command can say until when it is of any use."""
        seconds, microseconds = await self.ask("TIME")
        self._ahead = int(seconds) * 1000 + int(microseconds) / 1000 - time.monotonic() * 1000

    async def load(self) -> None:
        """Bring the commands to the server; it keeps them, also over a restart."""
        await self.ask("FUNCTION", "LOAD", "REPLACE", library().text)

    def words(
        self, name: str, question: dict[str, Any], *arguments: bytes, patience: float = 0.0
    ) -> tuple[str | bytes, ...]:
        """A Lua command as it is sent. `now` 0 lets the server's clock decide."""
        if self.clock is not None:
            question["now"] = self.clock.now()
        else:
            question["now"] = 0
            question["useful_until"] = round((time.monotonic() + ANSWER_SECONDS + patience) * 1000 + self._ahead)
        try:
            return (b"FCALL", name, b"0", self.prefix, encode(question), *arguments)
        except UnicodeEncodeError as error:
            raise BadInput(f"This text cannot be stored: {error}.") from error

    async def run(self, name: str, question: dict[str, Any], *arguments: bytes, patience: float = 0.0) -> Any:
        station = self.station
        link = station.link_at_hand() or await station.link()
        answer = await link.send(*self.words(name, question, *arguments, patience=patience), patience=patience)
        if isinstance(answer, ReplyError) and (is_unknown_command(answer) or is_late(answer)):
            await (self.load() if is_unknown_command(answer) else self.read_clock())
            link = station.link_at_hand() or await station.link()
            answer = await link.send(*self.words(name, question, *arguments, patience=patience), patience=patience)
        if isinstance(answer, ReplyError):
            raise self.refusal(answer)
        return answer
