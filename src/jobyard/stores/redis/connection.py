"""One connection to the server: commands are pipelined, replies arrive in order."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

import hiredis

from jobyard.errors import StoreUnavailable
from jobyard.stores.redis.address import RedisAddress
from jobyard.stores.redis.errors import ReplyLost, store_error

CONNECT_SECONDS = 4.0
# A connection without a reply for this long counts as dead: a half-open one would otherwise block a worker for minutes.
REPLY_SECONDS = 5.0
INCOMPLETE = object()


class Receiver(Protocol):
    """Target of a reply: a future, or an object with the same three methods."""

    def done(self) -> bool: ...
    def set_result(self, reply: Any, /) -> None: ...
    def set_exception(self, error: Exception, /) -> None: ...


class RedisConnection(asyncio.Protocol):
    """A cancelled caller keeps its place in the order of replies, so the connection stays usable."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=INCOMPLETE)
        self._pending: deque[tuple[Receiver, float]] = deque()  # with the deadline of the reply
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_open = False
        self.on_message: Callable[[Any], None] | None = None  # set on a subscribed connection: replies are messages
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def send(self, *words: str | bytes | int, extra_seconds: float = 0.0) -> asyncio.Future[Any]:
        """Future of the reply. An error reply is its result, not its exception.

        `extra_seconds` extends the deadline of a command that takes longer.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        self.post(future, *words, extra_seconds=extra_seconds)
        return future

    def post(self, receiver: Receiver, *words: str | bytes | int, extra_seconds: float = 0.0) -> None:
        """`send` for a custom receiver, which saves a turn of the event loop."""
        if not self.is_open or self._transport is None:
            receiver.set_exception(self._reply_lost())
            return
        self._pending.append((receiver, self._loop.time() + REPLY_SECONDS + extra_seconds))
        self._transport.write(hiredis.pack_command(words))  # type: ignore[arg-type]  # it takes any number of words
        if self._timer is None:
            self._timer = self._loop.call_later(REPLY_SECONDS, self._check_deadline)

    def send_unanswered(self, *words: str | bytes) -> None:
        """Send on a subscribed connection, where replies arrive as messages."""
        if self._transport is not None and self.is_open:
            self._transport.write(hiredis.pack_command(words))  # type: ignore[arg-type]

    async def drain(self) -> None:
        """Wait until the replies to all commands sent so far arrived, or the connection is lost."""
        if self.is_open and self._pending:
            await self.send("PING")

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # Callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        reader, pending = self._reader, self._pending
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not INCOMPLETE:
                if self.on_message is not None:
                    self.on_message(reply)
                    continue
                receiver, _ = pending.popleft()
                if not receiver.done():
                    receiver.set_result(reply)
        except (hiredis.ProtocolError, IndexError):
            self.close()  # the peer does not speak the Redis protocol

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pending:
            receiver, _ = self._pending.popleft()
            if not receiver.done():
                receiver.set_exception(self._reply_lost())
        if not self.closed.done():
            self.closed.set_result(None)

    def _check_deadline(self) -> None:
        self._timer = None
        if not self._pending:
            return
        left = self._pending[0][1] - self._loop.time()
        if left <= 0:
            self.close()
        else:
            self._timer = self._loop.call_later(left, self._check_deadline)

    def _reply_lost(self) -> ReplyLost:
        return ReplyLost(
            f"Lost the connection to {self._url} before the reply arrived: the command may or may not have been "
            "executed."
        )


async def connect(address: RedisAddress) -> RedisConnection:
    connection: RedisConnection | None = None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: RedisConnection(address.url), address.host, address.port, ssl=address.tls
            )
            for words in _handshake(address):
                reply = await connection.send(*words)
                if isinstance(reply, hiredis.ReplyError):
                    raise store_error(reply, address.url)
    except BaseException as error:
        if connection is not None:
            connection.close()
        reason = _reason(error, address)
        if reason is None:
            raise
        raise StoreUnavailable(f"Cannot connect to {address.url}: {reason}") from error
    return connection


def _reason(error: BaseException, address: RedisAddress) -> str | None:
    match error:
        case TimeoutError():
            hint = " If that port does not use TLS, use redis://." if address.tls else ""
            return f"no response within {CONNECT_SECONDS:g} s.{hint}"
        case ReplyLost():
            hint = "" if address.tls else " If that port uses TLS, use rediss://."
            return f"the peer closed the connection. Check that it is a Redis server.{hint}"
        case ConnectionRefusedError():
            return "connection refused. Check that the server is running on this host and port."
        case ssl.SSLCertVerificationError():
            return (
                f"its certificate is not trusted ({error.verify_message}). "
                "Add ssl_ca_certs=/path/ca.pem to the URL to name its authority."
            )
        case OSError():
            return f"{error.strerror or error}."
    return None


def _handshake(address: RedisAddress) -> list[tuple[str | int, ...]]:
    words: list[tuple[str | int, ...]] = []
    if address.password is not None:
        user = () if address.username is None else (address.username,)
        words.append(("AUTH", *user, address.password))
    words.append(("CLIENT", "SETNAME", "jobyard"))
    if address.database:
        words.append(("SELECT", address.database))
    return words
