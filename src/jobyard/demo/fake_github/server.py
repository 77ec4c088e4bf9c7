"""The fake on a port of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Mapping

import httpx2
import uvicorn

from jobyard.demo.fake_github.app import create_app
from jobyard.demo.fake_github.deliveries import Deliver
from jobyard.demo.fake_github.entities import Hook
from jobyard.demo.fake_github.model import FakeGitHub


class _Server(uvicorn.Server):
    """uvicorn without signal handlers: signals concern the whole process."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serve(model: FakeGitHub, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve the model until the block ends; yields the address, for instance `http://127.0.0.1:8123`.

    Webhooks are posted over HTTP unless the model has a `deliver` of its own.
    """
    listening = socket.create_server((host, port))
    config = uvicorn.Config(
        create_app(model),
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        # Longer than clients keep an idle connection, so that no request meets a connection that is being closed.
        timeout_keep_alive=180,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    async with httpx2.AsyncClient(timeout=model.timings.webhook_timeout) as client:
        if model.webhooks.deliver is None:
            model.webhooks.deliver = http_deliver(client)
        running = asyncio.create_task(server.serve([listening]))
        await server.ready.wait()
        try:
            yield f"http://{host}:{listening.getsockname()[1]}"
        finally:
            model.close()
            server.should_exit = True
            await running


def http_deliver(client: httpx2.AsyncClient) -> Deliver:
    async def deliver(hook: Hook, headers: Mapping[str, str], body: bytes) -> int:
        try:
            response = await client.post(hook.url, content=body, headers=dict(headers))
        except httpx2.TimeoutException as error:
            raise TimeoutError from error
        return response.status_code

    return deliver
