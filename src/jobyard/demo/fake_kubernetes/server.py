"""Serves the fake API on a socket with uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from jobyard.demo.fake_kubernetes.app import create_app
from jobyard.demo.fake_kubernetes.model import FakeKubernetes


class _Protocol(H11Protocol):
    """Lets the application cut its connection: `state["abort"]` of the ASGI scope."""

    open: dict[asyncio.Transport, None]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "abort": transport.abort}
        self.open[transport] = None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.open.pop(self.transport, None)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The caller owns the signals of the process."""
        yield


@contextlib.asynccontextmanager
async def serve(model: FakeKubernetes, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve the model until the context ends; the value is the base URL. The model itself stays open."""
    connections: dict[asyncio.Transport, None] = {}
    protocol: type[Any] = type("Protocol", (_Protocol,), {"open": connections})
    listener = socket.create_server((host, port))
    config = uvicorn.Config(
        create_app(model),
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=180,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve([listener]))
    listening = asyncio.create_task(server.listening.wait())
    try:
        await asyncio.wait({running, listening}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        yield f"http://{host}:{listener.getsockname()[1]}"
    finally:
        listening.cancel()
        for transport in list(connections):
            transport.abort()
        server.should_exit = True
        await running
        listener.close()
