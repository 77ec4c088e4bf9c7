"""Security headers on every response, and rejection of cross-site changes."""

from __future__ import annotations

import httpx2 as httpx
import pytest
from tests.server.support import HERE, ApiServer

from jobyard.server.dependencies import OpenAccess
from jobyard.server.middleware import SecurityMiddleware
from jobyard.server.routes import login, tokens
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock


def guarded(base: str = HERE, hosts: tuple[str, ...] | None = None) -> httpx.AsyncClient:
    api = ApiServer(MemoryStore(ManualClock()), [tokens.ROUTES, login.ROUTES], authenticator=OpenAccess())
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(SecurityMiddleware(api.app, hosts)), base_url=base, timeout=60
    )


@pytest.mark.parametrize("path", ["/login", "/v1/me", "/nothing/here", "/openapi.json", "/v1/tokens/x"])
async def test_every_response_has_the_security_headers(path: str) -> None:
    async with guarded() as client:
        headers = (await client.get(path)).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert "strict-transport-security" not in headers


async def test_https_sends_strict_transport_security() -> None:
    async with guarded("https://jobyard.test") as client:
        assert "strict-transport-security" in (await client.get("/v1/me")).headers


async def test_explicit_cache_control_is_kept() -> None:
    async with guarded() as client:
        assert (await client.get("/login.css")).headers["cache-control"] == "max-age=3600"


@pytest.mark.parametrize("headers, status", [
    ({}, 201), ({"Origin": HERE}, 201), ({"Sec-Fetch-Site": "same-origin"}, 201), ({"Sec-Fetch-Site": "none"}, 201),
    ({"Origin": "http://evil.test"}, 403), ({"Origin": "null"}, 403), ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "same-site"}, 403), ({"Origin": "http://jobyard.test.evil.test"}, 403),
])  # fmt: skip
async def test_open_server_rejects_cross_site_changes(headers: dict[str, str], status: int) -> None:
    async with guarded() as client:
        response = await client.post("/v1/tokens", json={"name": "x", "role": "viewer"}, headers=headers)
        assert response.status_code == status
        assert (await client.get("/v1/me", headers=headers)).status_code == 200


@pytest.mark.parametrize("host, status", [
    ("localhost", 200), ("localhost:8080", 200), ("127.0.0.1:1", 200), ("[::1]:80", 200), ("evil.test", 403),
    ("evil.test:80", 403), ("localhost.evil.test", 403), ("", 403), ("[", 403),
])  # fmt: skip
async def test_open_server_rejects_other_hosts(host: str, status: int) -> None:
    async with guarded(hosts=("localhost", "127.0.0.1", "::1")) as client:
        assert (await client.get("/v1/me", headers={"Host": host})).status_code == status
