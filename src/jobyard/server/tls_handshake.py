"""TLS handshakes within the connection limits: an HTTP protocol exists only after the handshake, so it cannot count."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from jobyard.server.http_protocol import LimitedProtocol


class TlsHandshake(asyncio.Protocol):
    """Accepts one connection and hands it to the HTTP protocol when the handshake is done.

    asyncio's own TLS servers leave the handshake to the event loop, for a minute and without a way to count it.
    """

    def __init__(self, context: ssl.SSLContext, http_class: type[LimitedProtocol], **options: Any) -> None:
        self._context = context
        self._http_class = http_class
        self._make_http = partial(http_class, **options)
        self._connections = options["server_state"].connections
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.pause_reading()  # until start_tls reads
        self._counted = self._http_class.count(transport.get_extra_info("peername"))
        self._http_class.handshakes.add(self)
        seconds = self._http_class.seconds_for(self._counted, len(self._connections))
        if seconds is None:
            self.abort()  # without TLS there is no response that the client could read
            return
        self._task = asyncio.get_running_loop().create_task(self._run(seconds))

    def abort(self) -> None:
        self._release()
        if self._task is not None:
            self._task.cancel()
        self._transport.abort()

    async def _run(self, seconds: float) -> None:
        loop, received = asyncio.get_running_loop(), _Received()
        try:
            transport = await loop.start_tls(
                self._transport, received, self._context, server_side=True, ssl_handshake_timeout=seconds
            )
        except OSError:  # a failed handshake, a lost connection, or the timeout
            transport = None
        finally:
            self._release()
        if transport is None or received.is_lost:
            self._transport.abort()
            return
        http = self._make_http()
        transport.set_protocol(http)
        http.connection_made(transport)
        received.replay(http)

    def _release(self) -> None:
        if self in self._http_class.handshakes:
            self._http_class.handshakes.discard(self)
            self._http_class.release(self._counted)


class _Received(asyncio.Protocol):
    """Keeps what arrives right after the handshake, before the HTTP protocol is connected."""

    def __init__(self) -> None:
        self._data: list[bytes] = []
        self._is_eof = False
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self._data.append(data)

    def eof_received(self) -> None:
        self._is_eof = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def replay(self, http: LimitedProtocol) -> None:
        for data in self._data:
            http.data_received(data)
        if self._is_eof:
            http.eof_received()
