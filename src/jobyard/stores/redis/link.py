"""One connection: commands go out at once, answers come back in order, nobody can leave it half-read."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

import hiredis

from jobyard.errors import StoreUnavailable
from jobyard.stores.redis.address import Address
from jobyard.stores.redis.trouble import plain

CONNECT_SECONDS = 4.0
# A server that owes an answer for so long is taken for gone: a half-open connection must not hold a worker up.
ANSWER_SECONDS = 5.0
NOTHING = object()


class AnswerLost(StoreUnavailable):
    """The connection went while an answer was owed: what was asked may or may not have happened."""


class Receiver(Protocol):
    """Whoever waits for an answer: a future, or what stands in for one."""

    def done(self) -> bool: ...
    def set_result(self, answer: Any, /) -> None: ...
    def set_exception(self, error: Exception, /) -> None: ...


class Link(asyncio.Protocol):
    """A caller that is cancelled leaves its place in the order of answers; the connection stays usable."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=NOTHING)
        self._owed: deque[tuple[Receiver, float]] = deque()  # and until when its answer is waited for
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self.is_open = False
        self.on_message: Callable[[Any], None] | None = None  # once subscribed, answers belong to nobody
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def in_flight(self) -> int:
        return len(self._owed)

    def send(self, *words: str | bytes | int, patience: float = 0.0) -> asyncio.Future[Any]:
        """The answer to come; an error of the server is answered, not raised. `patience` is for what takes longer."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.post(future, *words, patience=patience)
        return future

    def post(self, receiver: Receiver, *words: str | bytes | int, patience: float = 0.0) -> None:
        """The same for a receiver of one's own, without a turn of the event loop in between."""
        if not self.is_open or self._transport is None:
            receiver.set_exception(self._lost())
            return
        self._owed.append((receiver, self._loop.time() + ANSWER_SECONDS + patience))
        self._transport.write(hiredis.pack_command(words))  # type: ignore[arg-type]  # it takes any number of words
        if self._watch is None:
            self._watch = self._loop.call_later(ANSWER_SECONDS, self._look_at_the_time)

    def tell(self, *words: str | bytes) -> None:
        """For a subscribed connection: nothing is owed."""
        if self._transport is not None and self.is_open:
            self._transport.write(hiredis.pack_command(words))  # type: ignore[arg-type]

    async def drained(self) -> None:
        """Once all answers that are owed by now have come, or never will."""
        if self.is_open and self._owed:
            await self.send("PING")

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True
        plug = transport.get_extra_info("socket")
        if plug is not None and plug.family != socket.AF_UNIX:
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        reader, owed = self._reader, self._owed
        try:
            reader.feed(data)
            while (answer := reader.gets()) is not NOTHING:
                if self.on_message is not None:
                    self.on_message(answer)
                    continue
                receiver, _ = owed.popleft()
                if not receiver.done():
                    receiver.set_result(answer)
        except (hiredis.ProtocolError, IndexError):
            self.close()  # whatever answers there does not speak Redis

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        while self._owed:
            receiver, _ = self._owed.popleft()
            if not receiver.done():
                receiver.set_exception(self._lost())
        if not self.closed.done():
            self.closed.set_result(None)

    def _look_at_the_time(self) -> None:
        self._watch = None
        if not self._owed:
            return
        left = self._owed[0][1] - self._loop.time()
        if left <= 0:
            self.close()
        else:
            self._watch = self._loop.call_later(left, self._look_at_the_time)

    def _lost(self) -> AnswerLost:
        return AnswerLost(
            f"The connection to {self._shown} was lost before the answer came; what was asked may or may not have "
            "happened."
        )


async def connect(address: Address) -> Link:
    """A connection that is let in and looks at the right database."""
    link: Link | None = None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            link = await _reach(address)
            for words in _greeting(address):
                answer = await link.send(*words)
                if isinstance(answer, hiredis.ReplyError):
                    raise plain(answer, address.shown)
    except BaseException as error:
        if link is not None:
            link.close()
        if isinstance(error, TimeoutError):
            hint = " Does that port speak TLS? A plain one is redis://." if address.tls else ""
            raise StoreUnavailable(f"{address.shown} does not answer within {CONNECT_SECONDS:g} s.{hint}") from error
        if isinstance(error, AnswerLost):
            hint = "" if address.tls else " If that port speaks TLS, write rediss://."
            raise StoreUnavailable(f"{address.shown} hung up at once: is that a Redis?{hint}") from error
        if isinstance(error, ConnectionRefusedError):
            raise StoreUnavailable(
                f"{address.shown} refuses connections. Is the server running, on this host and port?"
            ) from error
        if isinstance(error, ssl.SSLCertVerificationError):
            raise StoreUnavailable(
                f"The certificate of {address.shown} is not trusted ({error.verify_message}): "
                "name its authority with ssl_ca_certs=/path/ca.pem in the URL."
            ) from error
        if isinstance(error, OSError):
            raise StoreUnavailable(f"Cannot connect to {address.shown}: {error.strerror or error}.") from error
        raise
    return link


async def _reach(address: Address) -> Link:
    loop = asyncio.get_running_loop()
    if address.path is not None:
        _, link = await loop.create_unix_connection(lambda: Link(address.shown), address.path)
    else:
        _, link = await loop.create_connection(lambda: Link(address.shown), address.host, address.port, ssl=address.tls)
    return link


def _greeting(address: Address) -> list[tuple[str | int, ...]]:
    words: list[tuple[str | int, ...]] = []
    if address.password is not None:
        user = () if address.username is None else (address.username,)
        words.append(("AUTH", *user, address.password))
    words.append(("CLIENT", "SETNAME", "jobyard"))
    if address.database:
        words.append(("SELECT", address.database))
    return words
