"""Invalid requests are rejected with a problem document and pointers; nothing is written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx2 as httpx
import pytest
from tests.server.support import ApiServer, api_server, ids, submit_job
from tests.support import Watched

from jobyard import Context, Jobyard
from jobyard.app.declarations import job_factory
from jobyard.errors import StoreUnavailable
from jobyard.ports.clock import SystemClock
from jobyard.server.pagination import encode_page_token
from jobyard.server.route import Route
from jobyard.server.routes.table import ALL_ROUTES
from jobyard.stores.memory import MemoryStore

JSON = {"Content-Type": "application/json"}
DEEP = b'{"kind":"a","payload":{"a":' + b"[" * 30_000 + b"]" * 30_000 + b"}}"
RATHER_DEEP = b'{"kind":"a","payload":{"a":' + b"[" * 200 + b"]" * 200 + b"}}"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with api_server() as api, api.client("admin") as made:
        yield made
        assert await ids(made) == [], "nothing is written"


def refused(response: httpx.Response, status: int, code: str, pointer: str | None = None) -> None:
    problem = response.json()
    assert (response.status_code, problem["status"], problem["code"]) == (status, status, code), response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert {"type", "title", "detail"} <= set(problem) | {"type"}
    assert problem["detail"]
    if pointer is not None:
        assert pointer in [error["pointer"] for error in problem["errors"]]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/kind"),
        ({"kind": "a", "qeue": "b"}, "/qeue"),
        ({"kind": 1}, "/kind"),
        ({"kind": ""}, "/kind"),
        ({"kind": "x" * 201}, "/kind"),
        ({"kind": "a", "payload": []}, "/payload"),
        ({"kind": "a", "payload": None}, "/payload"),
        ({"kind": "a", "priority": "1"}, "/priority"),
        ({"kind": "a", "priority": True}, "/priority"),
        ({"kind": "a", "priority": 10**30}, "/priority"),
        ({"kind": "a", "delay_seconds": -1}, "/delay_seconds"),
        ({"kind": "a", "run_at": "tomorrow"}, "/run_at"),
        ({"kind": "a", "run_at": "2026-11-16T03:00:00"}, "/run_at"),
        ({"kind": "a", "max_attempts": 0}, "/max_attempts"),
        ({"kind": "a", "timeout_seconds": 0}, "/timeout_seconds"),
        ({"kind": "a", "backoff": {"type": "wild"}}, "/backoff/type"),
        ({"kind": "a", "backoff": {"type": "fixed", "seconds": 1, "more": 2}}, "/backoff/more"),
        ({"kind": "a", "backoff": {"type": "fixed", "seconds": -1}}, "/backoff/seconds"),
        ({"kind": "a", "backoff": {"type": "delays", "seconds": []}}, "/backoff/seconds"),
        ({"kind": "a", "unique": {"key": "k", "scope": "sometimes"}}, "/unique/scope"),
        ({"kind": "a", "tags": ["a", 1]}, "/tags/1"),
        ({"kind": "a", "tags": ["a"] * 51}, "/tags"),
    ],
    ids=str,
)
async def test_invalid_fields_have_pointers(client: httpx.AsyncClient, body: dict[str, Any], pointer: str) -> None:
    refused(await client.post("/v1/jobs", json=body), 422, "bad_input", pointer)


@pytest.mark.parametrize(
    ("path", "body", "pointers"),
    [
        ("/v1/jobs", {"kind": 1, "priority": "high", "qeue": "b"}, ["/kind", "/priority", "/qeue"]),
        ("/v1/jobs", {"priority": 1.5, "tags": ["a", 2, 3]}, ["/priority", "/tags/1", "/tags/2", "/kind"]),
        ("/v1/jobs", {"kind": "a", "unique": {"key": 1, "scope": "x"}, "run_at": "x"},
         ["/unique/key", "/unique/scope", "/run_at"]),
        ("/v1/jobs", {"kind": "", "backoff": {"type": "fixed", "seconds": -1, "x": 1}}, ["/kind", "/backoff/seconds"]),
        ("/v1/jobs/batch", {"jobs": [{"kind": 1}, {"kind": "a"}, {"kind": "a", "queue": 2, "x": 3}], "y": 1},
         ["/jobs/0/kind", "/jobs/2/queue", "/jobs/2/x", "/y"]),
        ("/v1/jobs/batch", {"jobs": [{}] * 1000}, [f"/jobs/{number}/kind" for number in range(20)]),
        ("/v1/tokens", {"name": "", "role": "king"}, ["/name", "/role"]),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
async def test_each_invalid_field_has_a_pointer(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], pointers: list[str]
) -> None:
    response = await client.post(path, json=body)
    refused(response, 422, "bad_input")
    errors = response.json()["errors"]
    assert [error["pointer"] for error in errors] == pointers
    assert all(error["detail"] for error in errors)
    assert errors[0]["detail"] in response.json()["detail"]


WITHOUT_BODY = [
    route
    for routes in ALL_ROUTES
    for route in routes.all
    if route.method != "GET" and route.path.startswith("/v1/") and route.body is None
]


@pytest.mark.parametrize("route", WITHOUT_BODY, ids=lambda route: f"{route.method} {route.path}")
async def test_a_route_without_a_body_rejects_fields(client: httpx.AsyncClient, route: Route) -> None:
    path = route.path.replace("{", "").replace("}", "")
    given = await client.request(route.method, path, json={"delay_seconds": 60})
    refused(given, 422, "bad_input", "/delay_seconds")
    refused(await client.request(route.method, path, content=b"now"), 400, "not_json")
    for empty in (b"", b"{}", b" "):
        response = await client.request(route.method, path, content=empty)
        assert response.json()["code"] not in ("bad_input", "not_json") if response.content else True


@pytest.mark.parametrize(
    ("body", "status", "pointers"),
    [
        ({"kind": "a\n"}, 422, ["/kind"]),
        ({"kind": "a", "delay_seconds": 1, "run_at": "2026-11-16T03:00:00Z"}, 422, ["/delay_seconds", "/run_at"]),
        ({"kind": "a", "unique": {"key": "k", "scope": "period"}}, 422, ["/unique"]),
        ({"kind": "a", "unique": {"key": "idempotency:x"}}, 422, ["/unique/key"]),
        ({"kind": "a", "queue": "b\n", "tags": ["c\n"]}, 422, ["/queue", "/tags"]),
        ({"kind": "a", "tags": ["good", "by:me"]}, 422, ["/tags/1"]),
        ({"kind": "a", "payload": {"x": "x" * (1 << 20)}}, 413, ["/payload"]),
        ({"kind": "a", "private_payload": {"x": "x" * (1 << 20)}}, 413, ["/private_payload"]),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_invalid_values_that_match_the_schema(
    client: httpx.AsyncClient, body: dict[str, Any], status: int, pointers: list[str]
) -> None:
    response = await client.post("/v1/jobs", json=body)
    assert (response.status_code, [error["pointer"] for error in response.json()["errors"]]) == (status, pointers)
    [item] = (await client.post("/v1/jobs/batch", json={"jobs": [body]})).json()["items"]
    assert (item["status"], [error["pointer"] for error in item["errors"]]) == (
        status,
        [f"/jobs/0{pointer}" for pointer in pointers],
    )


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ({"kind": "run_siute", "payload": {"suite": "a"}}, "unknown_kind", "/kind"),
        ({"kind": "run_suite", "payload": {"suite": 5}}, "bad_input", "/payload/suite"),
        ({"kind": "run_suite", "payload": {}}, "bad_input", "/payload/suite"),
        ({"kind": "run_suite", "payload": {"suite": "a", "siute": "b"}}, "bad_input", "/payload/siute"),
    ],
    ids=str,
)
async def test_payload_errors_of_the_handler_have_pointers(body: dict[str, Any], code: str, pointer: str) -> None:
    yard = Jobyard("memory://")

    @yard.job()
    async def run_suite(ctx: Context, suite: str) -> None: ...

    async with api_server() as api, api.client("admin") as client:
        api.dependencies.job_factory = job_factory(yard, has_app=True)
        refused(await client.post("/v1/jobs", json=body), 422, code, pointer)
        assert await ids(client) == []


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"", 400, "not_json"),
        (b'{"kind":', 400, "not_json"),
        (b'{"kind":"a"} more', 400, "not_json"),
        (b'{"kind":"\xff\xfe"}', 400, "not_json"),
        (b'{"kind":"a","payload":{"x":"\xff"}}', 400, "not_json"),
        (b'{"kind":"\\ud800"}', 400, "not_json"),
        (b'{"kind":"a","payload":{"x":NaN}}', 400, "not_json"),
        (b"[]", 422, "bad_input"),
        (b"null", 422, "bad_input"),
        (DEEP, 422, "bad_input"),
        (RATHER_DEEP, 422, "payload_not_json"),
        (b'{"kind":"a","payload":{"x":1e999}}', 422, "bad_input"),
        (b'{"kind":"a","payload":{"x":' + b"9" * 5000 + b"}}", 422, "bad_input"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_body_that_is_not_the_expected_json(
    client: httpx.AsyncClient, data: bytes, status: int, code: str
) -> None:
    refused(await client.post("/v1/jobs", content=data, headers=JSON), status, code)


@pytest.mark.parametrize("half", ["\\ud800", "\\udfff", "\\ud83d\\ud83d", "\\uD83Dx"])
async def test_lone_surrogate_is_named(client: httpx.AsyncClient, half: str) -> None:
    data = '{"kind":"a","payload":{"x":"' + half + '"}}'
    response = await client.post("/v1/jobs", content=data.encode(), headers=JSON)
    refused(response, 400, "not_json")
    assert "surrogate" in response.json()["detail"]


async def test_surrogate_pair_is_accepted(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/jobs", content=b'{"kind":"a","payload":{"x":"\\ud83d\\ude00"},', headers=JSON)
    assert "surrogate" not in response.json()["detail"]


@pytest.mark.parametrize("number", [b"1e999", b"9" * 5000])
async def test_number_out_of_range_points_to_the_payload(client: httpx.AsyncClient, number: bytes) -> None:
    data = b'{"kind":"a","payload":{"x":[1,{"y":' + number + b"}]}}"
    response = await client.post("/v1/jobs", content=data, headers=JSON)
    assert [error["pointer"] for error in response.json()["errors"]] == ["/payload"]


@pytest.mark.parametrize("name", ["a\u202eb", "\u2066a", "a\u2028b", "a\u200f", "a\x00", "a\x85"], ids=ascii)
async def test_names_reject_control_and_direction_characters(client: httpx.AsyncClient, name: str) -> None:
    for field in ("kind", "queue", "group"):
        refused(await client.post("/v1/jobs", json={"kind": "a", field: name}), 422, "bad_input", f"/{field}")
    refused(await client.patch(f"/v1/queues/{quote(name)}", json={}), 422, "bad_option")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/xml", "json", ""])
async def test_unsupported_content_type(client: httpx.AsyncClient, kind: str) -> None:
    response = await client.post("/v1/jobs", content=b'{"kind":"a"}', headers={"Content-Type": kind} if kind else {})
    refused(response, 415, "not_json")


async def test_body_too_large(client: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x" * 100_000

    response = await client.post("/v1/jobs", content=b"x" * (3 << 20), headers=JSON)
    refused(response, 413, "body_too_large")
    refused(await client.post("/v1/jobs", content=chunks(), headers=JSON), 413, "body_too_large")
    large = {"kind": "a", "payload": {"x": "x" * (1 << 20)}}
    refused(await client.post("/v1/jobs", json=large), 413, "payload_too_large")


@pytest.mark.parametrize(
    ("params", "pointer"),
    [
        ({"page_size": 0}, "page_size"),
        ({"page_size": 1001}, "page_size"),
        ({"page_size": "many"}, "page_size"),
        ({"state": "DONE"}, "state"),
        ({"created_after": "yesterday"}, "created_after"),
        ({"created_after": "null"}, "created_after"),
        ({"created_after": "0.5"}, "created_after"),
        ({"qeue": "a"}, "qeue"),
        ({"queue": ["a", "b"]}, "queue"),
        ({"page_token": "nonsense"}, "page_token"),
        ({"page_token": encode_page_token("xyz", "/v1/jobs\n")}, "page_token"),
        ({"page_token": "é"}, "page_token"),
    ],
    ids=str,
)
async def test_invalid_query(client: httpx.AsyncClient, params: dict[str, Any], pointer: str) -> None:
    response = await client.get("/v1/jobs", params=params)
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize("query", ["text=%ff", "queue=%ed%a0%80", "%ff=1", "&".join(["state=PENDING"] * 1001)])
async def test_query_that_is_not_utf8(client: httpx.AsyncClient, query: str) -> None:
    refused(await client.get(f"/v1/jobs?{query}"), 422, "bad_input")


@pytest.mark.parametrize("path", ["/v1/jobs/a%ff", "/v1/queues/%C3%28/groups"])
async def test_path_that_is_not_utf8(client: httpx.AsyncClient, path: str) -> None:
    response = await client.get(path)
    refused(response, 422, "bad_input")
    assert response.json()["instance"] == path


async def test_unexpected_query_parameter(client: httpx.AsyncClient) -> None:
    refused(await client.post("/v1/jobs?wait=5", json={"kind": "a"}), 422, "bad_input", "wait")
    refused(await client.get("/v1/workers?page_size=1"), 422, "bad_input", "page_size")
    assert (await client.get("/openapi.json?again=1")).status_code == 200


async def test_instance_is_the_raw_path(client: httpx.AsyncClient) -> None:
    response = await client.get("/v1/queues/org%2Frepository")
    refused(response, 404, "queue_not_found")
    assert response.json()["instance"] == "/v1/queues/org%2Frepository"
    assert "org/repository" in response.json()["detail"]


@pytest.mark.parametrize("headers", [JSON, {}], ids=["as JSON", "as nothing"])
async def test_optional_body_may_be_empty(headers: dict[str, str]) -> None:
    async with api_server() as api, api.client("admin") as client:
        job_id = await submit_job(client)
        response = await client.post(f"/v1/jobs/{job_id}/cancel", content=b"", headers=headers)
        assert response.json()["state"] == "CANCELLED"
        refused(await client.post(f"/v1/jobs/{job_id}/prioritise", content=b"", headers=headers), 400, "not_json")


async def test_not_found_and_method_not_allowed(client: httpx.AsyncClient) -> None:
    refused(await client.get("/v1/nothing"), 404, "not_found")
    refused(await client.put("/v1/jobs", json={}), 405, "no_such_method")
    refused(await client.get("/v1/jobs/nobody"), 404, "job_not_found")
    refused(await client.get("/v1/jobs/nobody/explain"), 404, "job_not_found")


async def test_store_address_is_hidden_from_unauthenticated_callers() -> None:
    store = Watched(MemoryStore(SystemClock()))
    api = ApiServer(store.as_store(), ALL_ROUTES)
    bogus = "jy_000000000000_" + "x" * 43
    async with api.client() as anonymous, api.client("admin") as admin:
        assert (await admin.get("/v1/me")).status_code == 200
        store.failing, store.failing_verbs = StoreUnavailable("redis://secret-host is away"), ("fetch", "queues")
        own = {"Sec-Fetch-Site": "same-origin"}
        for response in (
            await anonymous.get("/v1/queues", headers={"Authorization": f"Bearer {bogus}"}),
            await anonymous.get("/v1/queues", headers={"Cookie": f"jobyard_session={'x' * 43}"}),
            await anonymous.get("/login", headers={"Cookie": f"jobyard_session={'x' * 43}"}),
            await anonymous.post("/login", data={"token": bogus}, headers=own),
        ):
            refused(response, 503, "store_unavailable")
            assert "secret-host" not in response.text
            assert response.headers["retry-after"] == "1"
        assert "secret-host" in (await admin.get("/v1/queues")).text, "an admin sees the reason"


@pytest.mark.parametrize(("path", "verb"), [("/v1/queues", "queues"), ("/v1/jobs/a", "get")])
async def test_unexpected_errors_are_logged_and_not_exposed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str, verb: str
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("a secret")

    async with api_server() as api, api.client("admin") as client:
        monkeypatch.setattr(api.store, verb, broken)
        response = await client.get(path)
    refused(response, 500, "internal")
    assert "secret" not in response.text
    assert "ZeroDivisionError: a secret" in caplog.text


async def test_encoded_body_is_rejected(client: httpx.AsyncClient) -> None:
    for encoding, status in (("gzip", 415), ("identity", 422)):
        headers = JSON | {"Content-Encoding": encoding}
        assert (await client.post("/v1/jobs", content=b"{}", headers=headers)).status_code == status


async def test_query_errors_name_the_parameter(client: httpx.AsyncClient) -> None:
    refused(await client.get("/v1/jobs", params={"state": ["PENDING", "SOON"]}), 422, "bad_input", "state")
    assert (await client.get("/v1/jobs", params={"page_token": ""})).status_code == 200


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/v1/jobs?pagesize=3", 'Unknown query parameter pagesize. Did you mean "page_size"?'),
        ("/v1/me?pagesize=3", "Unknown query parameter pagesize."),
    ],
)
async def test_unknown_query_parameters_get_a_suggestion(client: httpx.AsyncClient, path: str, detail: str) -> None:
    response = await client.get(path)
    refused(response, 422, "bad_input", "pagesize")
    assert response.json()["detail"] == detail


@pytest.mark.parametrize(
    ("path", "body", "pointer", "meant"),
    [
        ("/v1/jobs", {"kind": "a", "prority": 1}, "/prority", "priority"),
        ("/v1/jobs", {"kind": "a", "delay": 1}, "/delay", "delay_seconds"),
        (
            "/v1/jobs/batch",
            {"jobs": [{"kind": "a"}, {"kind": "a", "timeout": 1}]},
            "/jobs/1/timeout",
            "timeout_seconds",
        ),
        ("/v1/schedules", {"name": "a", "expression": "@daily", "kind": "a", "tz": "UTC"}, "/tz", "timezone"),
        ("/execute", {"language": "python", "source_code": "1", "limits": {"time": 1}}, "/limits/time", "time_seconds"),
    ],
)
async def test_unknown_fields_get_a_suggestion(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], pointer: str, meant: str
) -> None:
    response = await client.post(path, json=body)
    refused(response, 422, "bad_input", pointer)
    assert response.json()["detail"] == f'Unknown field {pointer.rpartition("/")[2]}. Did you mean "{meant}"?'
