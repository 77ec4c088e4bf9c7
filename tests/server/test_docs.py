"""The OpenAPI document is complete, and the documentation page needs no other host."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any
from urllib.parse import urljoin

import httpx2 as httpx
import pytest
from tests.server.support import ApiServer, announce_languages, api_server, submit_job

from jobyard.server.routes.table import ALL_ROUTES

STATIC = files("jobyard.server") / "static"


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with api_server() as made:
        yield made


async def described(client: httpx.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get("/openapi.json")).json()
    return found


async def test_every_route_is_described(api: ApiServer) -> None:
    async with api.client() as client:
        document = await described(client)
    assert document["openapi"] == "3.1.0"
    documented = {(method.upper(), path) for path, here in document["paths"].items() for method in here}
    assert documented == {(route.method, route.path) for routes in ALL_ROUTES for route in routes.all}
    operations = [operation for here in document["paths"].values() for operation in here.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert [each["operationId"] for each in operations if not each["summary"]] == []


async def test_every_reference_resolves(api: ApiServer) -> None:
    async with api.client() as client:
        document = await described(client)
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    unnamed = set(document["components"]["schemas"]) - named
    assert unnamed == {"CloudEvent"}  # the messages of a stream, whose media type has no schema of its own


async def test_request_schemas_forbid_unknown_fields(api: ApiServer) -> None:
    async with api.client() as client:
        document = await described(client)
    schemas = document["components"]["schemas"]
    taken = {name for name in schemas if name.endswith(("Request", "Backoff", "Filter"))}
    assert len(taken) > 10
    assert [name for name in taken if schemas[name].get("additionalProperties") is not False] == []


async def test_docs_page_uses_only_own_files(api: ApiServer) -> None:
    async with api.client() as client:
        page = await client.get("/docs")
        assert page.headers["content-type"].startswith("text/html")
        links = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        linked = {urljoin("/docs", link) for link in links if not link.startswith("data:")}
        kinds = {path: (await client.get(path)).headers["content-type"].partition(";")[0] for path in linked}
    assert kinds == {
        "/docs/docs.css": "text/css",
        "/docs/docs.js": "text/javascript",
        "/openapi.json": "application/json",
    }


@pytest.mark.parametrize("name", ["docs.html", "docs.js", "docs.css"])
def test_docs_page_has_no_foreign_or_inline_content(name: str) -> None:
    text = (STATIC / name).read_text("utf-8")
    assert re.findall(r"(?:https?:)?//[a-z]", text) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=|<script>|innerHTML|\beval\b|document\.write", text) == []


async def test_other_statuses_are_described() -> None:
    async with api_server() as api, api.client() as client:
        paths = (await described(client))["paths"]
        login = await client.post("/login", data={"token": "wrong"}, headers={"Sec-Fetch-Site": "same-origin"})
        api.dependencies.draining.set()
        ready = await client.get("/readyz")
    documented = paths["/readyz"]["get"]["responses"]["503"]["content"]
    assert (ready.status_code, documented) == (
        503,
        {"application/json": {"schema": {"$ref": "#/components/schemas/HealthView"}}},
    )
    assert set(paths["/health"]["get"]["responses"]) == {"200", "503"}
    documented = paths["/login"]["post"]["responses"]
    assert set(documented) == {"303", "400", "401", "403", "413", "415", "429", "503"}
    assert (login.status_code, list(documented["401"]["content"])) == (401, ["text/html"])
    assert "409" in paths["/v1/jobs"]["post"]["responses"]


async def test_every_field_and_parameter_is_described(api: ApiServer) -> None:
    async with api.client() as client:
        document = await described(client)
    schemas, operations = document["components"]["schemas"], document["paths"].values()
    fields = [(name, field, of) for name in schemas for field, of in schemas[name].get("properties", {}).items()]
    assert len(fields) > 300
    assert [(name, field) for name, field, of in fields if not of.get("description")] == []
    parameters = [each for path in operations for operation in path.values() for each in operation["parameters"]]
    assert [each["name"] for each in parameters if not each.get("description")] == []


async def test_examples_of_request_bodies_work(api: ApiServer) -> None:
    """Each example of the document, sent to its route; jobs and queues in the path exist."""
    await announce_languages(api.store)
    token, _ = await api.tokens.create("shop's", "viewer")
    async with api.client("admin") as client:
        document = await described(client)
        sent: list[str] = []
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                content = operation.get("requestBody", {}).get("content", {}).get("application/json")
                if content is None:
                    continue
                job = await submit_job(client, "mail", queue="mail", group="acme")
                names = {"id": job, "queue": "mail", "group": "acme", "schedule": "nightly", "token_id": token.id}
                names["job_id"] = job
                answer = await client.request(method, path.format(**names), json=content["example"])
                # A signal needs a job that waits for it, which no worker has parked here.
                expected = answer.is_success or (path.endswith("/signal") and answer.json()["code"] == "not_possible")
                # A job can be requeued where runners are configured: tests/github/test_runner_routes.py does.
                expected |= path.endswith("/requeue") and answer.status_code == 404
                # Workflow files are loaded where they are configured: tests/server/test_workflows.py does.
                expected |= path.startswith("/api/v2/workflows") and answer.status_code == 404
                # Input and signals need an interactive program: tests/sandbox/test_interactive.py has one.
                expected |= path.startswith("/jobs/") and answer.status_code in (404, 409)
                assert expected, (path, answer.text)
                sent.append(path)
        assert len(sent) > 10
