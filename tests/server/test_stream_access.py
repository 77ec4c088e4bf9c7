"""Streams end with the session or the token that opened them."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator

import httpx2 as httpx
import pytest
from tests.server.sse import listening
from tests.server.support import ApiServer, serving
from tests.support import eventually

from jobyard.operations.sessions import Sessions
from jobyard.ports.clock import SystemClock
from jobyard.server.routes import events, login, tokens
from jobyard.stores.memory import MemoryStore


@pytest.fixture
def api() -> ApiServer:
    return ApiServer(MemoryStore(SystemClock()), [events.ROUTES, tokens.ROUTES, login.ROUTES])


@pytest.fixture
async def server(api: ApiServer) -> AsyncIterator[str]:
    async with serving(api.app) as url:
        yield url
        api.dependencies.draining.set()


async def session(http: httpx.AsyncClient, api: ApiServer, role: str = "viewer") -> str:
    """Log in; returns the CSRF token."""
    form = {"token": await api.token(role)}
    assert (await http.post("/login", data=form, headers={"Origin": str(http.base_url)})).status_code == 303
    return str((await http.get("/v1/me")).json()["csrf_token"])


async def test_logout_ends_all_streams_of_the_session_and_no_others(api: ApiServer, server: str) -> None:
    async with (
        httpx.AsyncClient(base_url=server, timeout=60) as http,
        httpx.AsyncClient(base_url=server, timeout=60) as other,
    ):
        csrf = await session(http, api)
        await session(other, api)
        path = "/v1/events?ping_seconds=1"
        async with listening(http, path) as first, listening(http, path) as second, listening(other, path) as kept:
            await eventually(lambda: all(each.first("snapshot") for each in (first, second, kept)))
            answer = await http.post("/logout", headers={"Origin": server, "X-CSRF-Token": csrf})
            assert answer.status_code == 303
            await eventually(lambda: first.is_over and second.is_over)
            assert "event: access_ended" in first.lines
            pings = kept.lines.count("event: ping")
            await eventually(lambda: kept.lines.count("event: ping") > pings)
            assert not kept.is_over


async def test_session_that_another_server_ended_ends_its_streams(api: ApiServer, server: str) -> None:
    async with httpx.AsyncClient(base_url=server, timeout=60) as http:
        await session(http, api)
        async with listening(http, "/v1/events") as reader:
            await eventually(lambda: reader.first("snapshot"))
            assert await Sessions(api.store, api.tokens).close(http.cookies["jobyard_session"])
            await eventually(lambda: reader.is_over)
            assert "event: access_ended" not in reader.lines, "only for those who asked for visible pings"


async def test_revoking_a_token_ends_its_streams_at_once(api: ApiServer, server: str) -> None:
    # Without the poll that notices what other servers have revoked.
    api.dependencies.broadcaster._slow_poll_at = math.inf
    async with (
        httpx.AsyncClient(base_url=server, timeout=60) as admin,
        httpx.AsyncClient(base_url=server, timeout=60) as http,
    ):
        admin.headers["Authorization"] = f"Bearer {await api.token()}"
        http.headers["Authorization"] = f"Bearer {await api.token('viewer')}"
        token_id = (await http.get("/v1/me")).json()["id"]
        async with listening(http, "/v1/events") as reader:
            await eventually(lambda: reader.first("snapshot"))
            assert (await admin.delete(f"/v1/tokens/{token_id}")).status_code == 204
            await eventually(lambda: reader.is_over)
