"""An HTTP client's way to the fake GitHub inside of one process: no sockets, so it works under a virtual clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx2

from jobyard.demo.fake_github import ConnectionLost, FakeGitHub
from jobyard.demo.fake_github.api import RestApi
from jobyard.demo.fake_github.app import API_PREFIX
from jobyard.demo.fake_github.calls import ApiRequest


class FakeGitHubTransport(httpx2.AsyncBaseTransport):
    """Lost connections and read timeouts become the errors that a client sees on a network."""

    def __init__(self, github: FakeGitHub) -> None:
        self.api = RestApi(github)
        self.requests: list[ApiRequest] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        call = ApiRequest(
            method=request.method,
            path=url.path.removeprefix(API_PREFIX),
            query=dict(url.params),
            headers=dict(request.headers),
            body=await request.aread(),
            base_url=f"{url.scheme}://{url.netloc.decode()}{API_PREFIX}",
        )
        self.requests.append(call)
        async with _timeout(request):
            try:
                response = await self.api.request(call)
            except ConnectionLost as error:
                raise httpx2.RemoteProtocolError("Server disconnected without sending a response.") from error
        return httpx2.Response(response.status, headers=response.headers, content=response.body)


@contextlib.asynccontextmanager
async def _timeout(request: httpx2.Request) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(request.extensions.get("timeout", {}).get("read")):
            yield
    except TimeoutError as error:
        raise httpx2.ReadTimeout("No response arrived in time.", request=request) from error
