"""The fake as an ASGI application: the REST API under `/api/v3`, the control API under `/_control`."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from jobyard.demo.fake_github.api import RestApi
from jobyard.demo.fake_github.calls import ApiRequest
from jobyard.demo.fake_github.control import Control
from jobyard.demo.fake_github.errors import ConnectionLost
from jobyard.demo.fake_github.model import FakeGitHub

API_PREFIX = "/api/v3"


class RestEndpoint:
    def __init__(self, github: FakeGitHub) -> None:
        self._api = RestApi(github)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        call = ApiRequest(
            method=request.method,
            path=scope["path"].removeprefix(API_PREFIX),
            query=dict(request.query_params),
            headers=dict(request.headers),
            body=await request.body(),
            base_url=f"{request.url.scheme}://{request.url.netloc}{API_PREFIX}",
        )
        try:
            answer = await self._api.request(call)
        except ConnectionLost:
            await _hang_up(receive, send)
            return
        await Response(answer.body, answer.status, answer.headers)(scope, receive, send)


def create_app(github: FakeGitHub) -> ASGIApp:
    rest = RestEndpoint(github)
    control = Starlette(routes=[Mount("/_control", routes=Control(github).routes())])

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # Not a route of Starlette, which wraps `send`: see `_hang_up`.
        if scope["type"] == "http" and scope["path"].startswith(f"{API_PREFIX}/"):
            await rest(scope, receive, send)
        else:
            await control(scope, receive, send)

    return app


async def _hang_up(receive: Receive, send: Send) -> None:
    """Close the connection without a byte. Only a server has one; ASGI has no message for this."""
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if transport is None:
        raise ConnectionLost
    transport.abort()
    while (await receive())["type"] != "http.disconnect":
        pass
