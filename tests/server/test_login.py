"""Browser sessions: login form, cookie and CSRF protection."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

import httpx2 as httpx
import pytest
from tests.server.support import HERE, ApiServer

from jobyard.config.store_factory import make_store
from jobyard.operations.audit_log import Audit
from jobyard.server.auth import FAILURE_BURST
from jobyard.server.dependencies import OpenAccess
from jobyard.server.routes import audit_log, dashboard, login, tokens
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock

ROUTES = [login.ROUTES, tokens.ROUTES, audit_log.ROUTES]
OWN = {"Origin": HERE}


@pytest.fixture
def api() -> ApiServer:
    return ApiServer(MemoryStore(ManualClock()), ROUTES)


async def logged_in(api: ApiServer, client: httpx.AsyncClient, role: str = "admin") -> httpx.Response:
    return await client.post("/login", data={"token": await api.token(role)}, headers={"Origin": str(client.base_url)})


async def test_login_form_works_without_scripts(api: ApiServer) -> None:
    async with api.client() as client:
        page = await client.get("/login")
        assert page.status_code == 200
        assert '<form method="post" action="login">' in page.text
        assert "<script" not in page.text
        assert "style=" not in page.text
        style = await client.get("/login.css")
        assert style.headers["content-type"].startswith("text/css")


async def test_session_has_the_permissions_of_the_token(api: ApiServer) -> None:
    async with api.client() as client:
        response = await logged_in(api, client, "operator")
        assert (response.status_code, response.headers["location"]) == (303, "/")
        assert (await client.get("/v1/me")).json()["role"] == "operator"
        assert "a operator" in (await client.get("/login")).text


async def test_cookie_is_http_only_and_same_site(api: ApiServer) -> None:
    async with api.client() as client:
        cookie = (await logged_in(api, client)).headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "max-age=" in cookie
        assert "secure" not in cookie.replace("samesite", "")
    async with api.client(base="https://jobyard.test") as client:
        cookie = (await logged_in(api, client)).headers["set-cookie"]
        assert cookie.startswith("__Host-")
        assert "Secure" in cookie
        assert (await client.get("/v1/me")).status_code == 200


@pytest.mark.parametrize("base, caller, is_told", [
    ("http://127.0.0.1:8080", "127.0.0.1", True), ("http://localhost", "::1", True),
    ("http://jobs.example.com", "127.0.0.1", False), ("http://127.0.0.1:8080", "10.0.0.7", False),
])  # fmt: skip
async def test_file_of_the_store_is_told_on_its_machine_only(
    tmp_path: Path, base: str, caller: str, is_told: bool
) -> None:
    url = f"sqlite:///{tmp_path / 'a&b.db'}"
    api = ApiServer(make_store(url), [dashboard.ROUTES])
    transport = httpx.ASGITransport(api.app, client=(caller, 1))
    async with httpx.AsyncClient(transport=transport, base_url=base, timeout=60) as client:
        page = (await client.get("/")).text
    assert f'data-store="{escape(url) if is_told else ""}"' in page


async def test_failed_logins_are_rate_limited(api: ApiServer) -> None:
    async with api.client() as client:
        response = await client.post("/login", data={"token": "<b>nope</b>"}, headers=OWN)
        assert response.status_code == 401
        assert 'role="alert"' in response.text
        assert "nope" not in response.text
        assert "set-cookie" not in response.headers
        for _ in range(int(FAILURE_BURST)):
            response = await client.post("/login", data={"token": "nope"}, headers=OWN)
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) >= 1
        assert (await logged_in(api, client)).status_code == 303, "a good token is not held up by others' wrong ones"


@pytest.mark.parametrize("headers", [
    {}, {"Origin": "http://evil.test"}, {"Origin": "null"}, {"Origin": ""}, {"Origin": "http://["},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "none"}, {"Origin": "http://jobyard.test:81"},
    {**OWN, "Sec-Fetch-Site": "cross-site"},
])  # fmt: skip
async def test_other_sites_can_neither_log_in_nor_change(api: ApiServer, headers: dict[str, str]) -> None:
    async with api.client() as client:
        text = await api.token()
        assert (await client.post("/login", data={"token": text}, headers=headers)).status_code == 403
        await logged_in(api, client)
        csrf = (await client.get("/v1/me")).json()["csrf_token"]
        before = len(await api.tokens.list())
        body = {"name": "x", "role": "admin"}
        response = await client.post("/v1/tokens", json=body, headers={**headers, "X-CSRF-Token": csrf})
        assert (response.status_code, response.json()["code"]) == (403, "csrf")
        assert (await client.post("/logout", data={"csrf_token": csrf}, headers=headers)).status_code == 403
        assert len(await api.tokens.list()) == before
        assert (await client.get("/v1/me")).status_code == 200


async def test_changes_need_the_csrf_token_of_the_session(api: ApiServer) -> None:
    async with api.client() as client, api.client() as other:
        await logged_in(api, client)
        await logged_in(api, other)
        csrf = (await client.get("/v1/me")).json()["csrf_token"]
        foreign = (await other.get("/v1/me")).json()["csrf_token"]
        body = {"name": "x", "role": "viewer"}
        assert (await client.post("/logout", data={"csrf_token": foreign}, headers=OWN)).status_code == 403
        for wrong in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": "x"}, {"X-CSRF-Token": foreign}):
            assert (await client.post("/v1/tokens", json=body, headers={**OWN, **wrong})).status_code == 403
            form = {"csrf_token": "x"}
            assert (await client.post("/logout", data=form, headers={**OWN, **wrong})).status_code == 403
        right = {**OWN, "X-CSRF-Token": csrf, "Sec-Fetch-Site": "same-origin"}
        assert (await client.post("/v1/tokens", json=body, headers=right)).status_code == 201


async def test_logout_ends_the_session_everywhere(api: ApiServer) -> None:
    async with api.client() as client:
        await logged_in(api, client)
        kept = dict(client.cookies)
        found = re.search(r'name="csrf_token" value="([0-9a-f]+)"', (await client.get("/login")).text)
        assert found
        response = await client.post("/logout", data={"csrf_token": found.group(1)}, headers=OWN)
        assert response.status_code == 303
        assert (await client.get("/v1/me")).status_code == 401
        client.cookies.update(kept)
        assert (await client.get("/v1/me")).status_code == 401
    assert [entry.action for entry in await Audit(api.store).read()] == ["session.open", "session.close"]


async def test_cookie_does_not_override_an_invalid_header(api: ApiServer) -> None:
    async with api.client() as client:
        await logged_in(api, client)
        assert (await client.get("/v1/me", headers={"Authorization": "Bearer nope"})).status_code == 401


@pytest.mark.parametrize("content, kind", [
    (b"token=" + b"x" * 5000, login.FORM), (b"{}", "application/json"), (b"token=\xff\xfe", login.FORM),
    (b"&".join(b"a=b" for _ in range(50)), login.FORM),
])  # fmt: skip
async def test_body_that_is_not_a_form_is_rejected(api: ApiServer, content: bytes, kind: str) -> None:
    async with api.client() as client:
        response = await client.post("/login", content=content, headers={**OWN, "Content-Type": kind})
        assert 400 <= response.status_code < 500


async def test_open_server_needs_no_login() -> None:
    api = ApiServer(MemoryStore(ManualClock()), ROUTES, authenticator=OpenAccess())
    async with api.client() as client:
        assert (await client.post("/login", data={"token": "x"}, headers=OWN)).status_code == 303
        assert (await client.get("/v1/me")).json()["role"] == "admin"
