"""Headers, metrics and log lines that belong to each request."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import httpx2 as httpx
import pytest
from tests.server.support import ApiServer, api_server, serving

from jobyard.config.sections import ServerSection

SETTINGS = ServerSection(requests_per_second=0.001, request_burst=5)


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with api_server(SETTINGS) as made:
        yield made


async def test_responses_tell_the_rate_limit_and_their_request(api: ApiServer) -> None:
    headers = {"Authorization": f"Bearer {await api.token()}"}
    async with serving(api.app) as url, httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
        answers = [await client.get("/v1/me") for _ in range(6)]
        assert [answer.status_code for answer in answers] == [200] * 5 + [429]
        assert [answer.headers["RateLimit-Remaining"] for answer in answers] == ["4", "3", "2", "1", "0", "0"]
        assert {answer.headers["RateLimit-Limit"] for answer in answers} == {"5"}
        assert int(answers[-1].headers["RateLimit-Reset"]) > 0
        assert len({answer.headers["Request-Id"] for answer in answers}) == 6
        own = await client.get("/livez", headers={"Request-Id": "order-17"})
        assert own.headers["Request-Id"] == "order-17"
        unsafe = await client.get("/livez", headers={"Request-Id": "a b"})
        assert unsafe.headers["Request-Id"] != "a b"
        assert "RateLimit-Limit" not in own.headers, "a probe has no token"


async def test_wrong_tokens_are_counted_and_logged(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "jobyard")
    async with api.client() as client:
        for _ in range(2):
            answer = await client.get("/v1/queues/a%0Ab", headers={"Authorization": "Bearer jy_wrong"})
            assert answer.status_code == 401
        form = {"Origin": "http://jobyard.test", "Sec-Fetch-Site": "same-origin"}
        assert (await client.post("/login", data={"token": "jy_wrong"}, headers=form)).status_code == 401
    lines = [record.getMessage() for record in caplog.records if record.name == "jobyard.http"]
    assert [line.partition(":")[0] for line in lines] == ["wrong token from 127.0.0.1"] * 3
    assert not any("\n" in line or "jy_wrong" in line for line in lines)
    assert "jobyard_http_wrong_tokens_total 3.0" in api.dependencies.exporter.metrics.text().decode()


async def test_requests_are_counted_by_route(api: ApiServer) -> None:
    async with api.client("viewer") as client:
        await client.get("/v1/jobs/a")
        await client.get("/v1/jobs/b")
        await client.request("BREW", "/v1/jobs/b")
        await client.get("/nowhere/1")
    text = api.dependencies.exporter.metrics.text().decode()
    for line in (
        'jobyard_http_requests_total{method="GET",route="/v1/jobs/{id}",status="404"} 2.0',
        'jobyard_http_requests_total{method="other",route="/v1/jobs/{id}",status="405"} 1.0',
        'jobyard_http_requests_total{method="other",route="unmatched",status="404"} 1.0',
        'jobyard_http_request_duration_seconds_count{method="GET",route="/v1/jobs/{id}"} 2.0',
    ):
        assert line in text


@pytest.mark.parametrize("path", ["/v1/me", "/nowhere", "/v1/jobs"])
async def test_every_problem_names_its_instance(api: ApiServer, path: str) -> None:
    async with api.client() as client:
        answer = await client.request("PUT" if path == "/v1/jobs" else "GET", path)
        assert (answer.status_code, answer.json()["instance"]) == (
            {"/v1/me": 401, "/nowhere": 404}.get(path, 405),
            path,
        )
