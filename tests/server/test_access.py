"""Authentication: tokens, the token API, rate limits and the audit log."""

from __future__ import annotations

import logging

import pytest
from tests.server.support import ApiServer
from tests.support import eventually

from jobyard.config.sections import ServerSection
from jobyard.server.auth import FAILURE_BURST
from jobyard.server.routes import audit_log, tokens
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock


@pytest.fixture
def api() -> ApiServer:
    return ApiServer(MemoryStore(ManualClock()), [tokens.ROUTES, audit_log.ROUTES])


async def test_missing_token_is_unauthorized(api: ApiServer) -> None:
    async with api.client() as client:
        response = await client.get("/v1/me")
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["code"] == "no_token"


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic {}", "Token {}", "{}", "Bearer x{}", "Bearer {}x"])
async def test_invalid_authorization_header_is_unauthorized(api: ApiServer, header: str) -> None:
    text = await api.token()
    async with api.client() as client:
        response = await client.get("/v1/me", headers={"Authorization": header.format(text)})
    assert response.status_code == 401
    is_bearer = header.startswith("Bearer")
    assert response.json()["code"] == ("invalid_token" if is_bearer else "no_token")
    assert ("invalid_token" in response.headers["www-authenticate"]) is is_bearer
    assert ("no Bearer scheme" in response.json()["detail"]) is not is_bearer


async def test_token_in_the_url_is_ignored(api: ApiServer) -> None:
    text = await api.token()
    async with api.client() as client:
        for name in ("token", "access_token", "authorization"):
            assert (await client.get("/v1/me", params={name: text})).status_code == 401


async def test_current_principal(api: ApiServer) -> None:
    async with api.client("submitter", queues=["builds"]) as client:
        body = (await client.get("/v1/me")).json()
    assert body["role"] == "submitter"
    assert body["permissions"] == ["read", "submit", "reveal"]
    assert body["queues"] == ["builds"]
    assert "csrf_token" not in body


@pytest.mark.parametrize("role", ["viewer", "submitter", "operator"])
async def test_only_admins_read_tokens_and_audit_log(api: ApiServer, role: str) -> None:
    async with api.client(role) as client:
        for method, path in (
            ("GET", "/v1/tokens"),
            ("POST", "/v1/tokens"),
            ("DELETE", "/v1/tokens/000000000000"),
            ("GET", "/v1/audit"),
        ):
            response = await client.request(method, path)
            assert (response.status_code, response.json()["code"]) == (403, "not_allowed"), path


async def test_token_lifecycle(api: ApiServer) -> None:
    async with api.client("admin") as client:
        asked = {"name": "ci", "role": "submitter", "queues": ["builds"], "expire_seconds": 60}
        made = await client.post("/v1/tokens", json=asked)
        assert made.status_code == 201
        text, token_id = made.json()["token"], made.json()["id"]
        listed = (await client.get("/v1/tokens")).json()["items"]
        [shown] = [each for each in listed if each["id"] == token_id]
        assert "token" not in shown
        assert shown["queues"] == ["builds"]
        assert shown["expires_at"].endswith("Z")

        as_ci = {"Authorization": f"Bearer {text}"}
        assert (await client.get("/v1/me", headers=as_ci)).json()["name"] == "ci"
        assert (await client.delete(f"/v1/tokens/{token_id}")).status_code == 204
        assert (await client.get("/v1/me", headers=as_ci)).status_code == 401
        assert (await client.delete(f"/v1/tokens/{token_id}")).json()["code"] == "token_not_found"

        entries = (await client.get("/v1/audit")).json()["items"]
        assert [(entry["action"], entry["target"]) for entry in entries] == [
            ("token.create", token_id),
            ("token.revoke", token_id),
        ]
        assert entries[0]["name"] == "a admin"
        assert entries[0]["details"]["queues"] == ["builds"]
        assert entries[0]["details"]["expires_at"] == shown["expires_at"]


async def test_secrets_are_neither_logged_nor_audited(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with api.client("admin") as client:
        text = (await client.post("/v1/tokens", json={"name": "ci", "role": "viewer"})).json()["token"]
        await client.get("/v1/me", headers={"Authorization": f"Bearer {text}"})
        await client.get("/v1/me", headers={"Authorization": f"Bearer {text}x"})
        secret = text.split("_", 2)[2]
        assert secret not in (await client.get("/v1/audit")).text
    assert secret not in caplog.text


@pytest.mark.parametrize("body", [
    {}, {"name": "x"}, {"name": "x", "role": "root"}, {"name": "", "role": "viewer"},
    {"name": "x", "role": "viewer", "qeues": []}, {"name": "x", "role": "viewer", "expire_seconds": 0},
])  # fmt: skip
async def test_invalid_token_request_is_rejected(api: ApiServer, body: dict[str, object]) -> None:
    async with api.client("admin") as client:
        before = len((await client.get("/v1/tokens")).json()["items"])
        assert (await client.post("/v1/tokens", json=body)).status_code == 422
        assert len((await client.get("/v1/tokens")).json()["items"]) == before


async def test_restricted_admin_cannot_exceed_its_scope(api: ApiServer) -> None:
    other, _ = await api.tokens.create("all of it", "viewer")
    async with api.client("admin", queues=["builds"]) as client:
        for scope in ({}, {"queues": ["mail"]}, {"queues": ["builds", "mail"]}):
            response = await client.post("/v1/tokens", json={"name": "x", "role": "admin", **scope})
            assert (response.status_code, response.json()["code"]) == (403, "out_of_scope")
        made = await client.post("/v1/tokens", json={"name": "x", "role": "admin", "queues": ["builds"]})
        assert made.status_code == 201
        assert {each["name"] for each in (await client.get("/v1/tokens")).json()["items"]} == {"x", "a admin"}
        assert (await client.delete(f"/v1/tokens/{other.id}")).status_code == 404
        assert (await client.get("/v1/audit")).status_code == 403


async def test_audit_log_pagination(api: ApiServer) -> None:
    async with api.client("admin") as client:
        for number in range(5):
            await client.post("/v1/tokens", json={"name": f"t{number}", "role": "viewer"})
        names: list[str] = []
        path = "/v1/audit?page_size=2"
        for _ in range(3):
            response = await client.get(path)
            names += [entry["details"]["name"] for entry in response.json()["items"]]
            if "next_page_token" not in response.json():
                assert "link" not in response.headers
                break
            path = response.headers["link"].partition(">")[0].removeprefix("<")
        assert names == [f"t{number}" for number in range(5)]
        for bad in ("page_size=0", "page_size=1001", "page_token=x", "page_token=-1", "page_token=²", "pagesize=1"):
            assert (await client.get(f"/v1/audit?{bad}")).status_code == 422, bad


async def test_request_rate_limit_has_retry_after() -> None:
    settings = ServerSection(requests_per_second=0.5, request_burst=3)
    api = ApiServer(MemoryStore(ManualClock()), [tokens.ROUTES], settings)
    async with api.client("viewer") as busy, api.client("viewer") as other:
        assert [(await busy.get("/v1/me")).status_code for _ in range(3)] == [200, 200, 200]
        refused = await busy.get("/v1/me")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
        assert refused.headers["retry-after"] == "2"
        assert (await other.get("/v1/me")).status_code == 200


async def test_failed_attempts_are_limited_by_address_but_valid_tokens_pass(api: ApiServer) -> None:
    async with api.client() as guesser, api.client("viewer") as good:
        wrong = {"Authorization": "Bearer jy_000000000000_" + "x" * 43}
        codes = [(await guesser.get("/v1/me", headers=wrong)).status_code for _ in range(int(FAILURE_BURST) + 1)]
        assert codes == [401] * int(FAILURE_BURST) + [429]
        assert (await good.get("/v1/me")).status_code == 200


async def test_rotated_token_works_with_its_new_secret(api: ApiServer) -> None:
    info, old = await api.tokens.create("ci", "viewer")
    async with api.client("admin") as client:
        rotated = await client.post(f"/v1/tokens/{info.id}/rotate")
        assert (rotated.status_code, rotated.json()["id"]) == (200, info.id)
        for text, status in ((old, 401), (rotated.json()["token"], 200)):
            headers = {"Authorization": f"Bearer {text}"}
            assert (await client.get("/v1/me", headers=headers)).status_code == status

        async def last_used_at() -> str | None:
            listed = {each["id"]: each for each in (await client.get("/v1/tokens")).json()["items"]}
            found: str | None = listed[info.id]["last_used_at"]
            return found

        await eventually(last_used_at)  # written in the background
        assert (await client.post("/v1/tokens/000000000000/rotate")).status_code == 404
        audit = (await client.get("/v1/audit")).json()["items"]
        assert [each["target"] for each in audit if each["action"] == "token.rotate"] == [info.id]


async def test_the_last_admin_cannot_revoke_itself(api: ApiServer) -> None:
    async with api.client("admin") as client, api.client("admin", queues=["mail"]) as narrow:
        second, first = sorted(await api.tokens.list(), key=lambda info: info.queues, reverse=True)
        response = await client.delete(f"/v1/tokens/{first.id}")
        assert (response.status_code, response.json()["code"]) == (409, "not_possible")
        assert (await client.get("/v1/me")).status_code == 200
        assert (await narrow.delete(f"/v1/tokens/{second.id}")).status_code == 204, "the first one covers it"
        await api.tokens.create("another", "admin")
        assert (await client.delete(f"/v1/tokens/{first.id}")).status_code == 204
        assert (await client.get("/v1/me")).status_code == 401
