"""The REST API of the fake: authentication, pages, limits, faults, and the same over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from tests.github.fake_transport import FakeGitHubTransport
from tests.github.fake_world import LINUX, World, virtual
from tests.github.virtual_time import wall_clock

from jobyard.demo.fake_github import ConnectionLost, FakeGitHub, Faults, JobSpec
from jobyard.demo.fake_github.api import RestApi
from jobyard.demo.fake_github.calls import ApiRequest, ApiResponse
from jobyard.demo.fake_github.keys import RsaKey, generate_key, sign_jwt
from jobyard.demo.fake_github.server import serve

RUNNERS = "/orgs/acme/actions/runners"
JIT = f"{RUNNERS}/generate-jitconfig"
BODY = {"name": "runner-1", "runner_group_id": 1, "labels": ["self-hosted", "linux"]}


@functools.cache
def app_key() -> RsaKey:
    return generate_key(random.Random(1), 1024)


class Client(World):
    """A world with a REST client that has an installation token."""

    def __init__(self, faults: Faults | None = None, rate_limit: int | None = None) -> None:
        super().__init__(faults)
        self.github.accounts.app.key = app_key()
        self.github.rate_limit = rate_limit
        self.api = RestApi(self.github)
        [self.installation] = self.github.accounts.installations.values()
        self.token = self.github.accounts.create_installation_token(self.installation).value

    def jwt(self, **options: Any) -> str:
        return sign_jwt(app_key(), **{"issuer": self.github.accounts.app.id, "now": wall_clock(), **options})

    async def call(
        self, method: str, path: str, body: object = None, *, token: str | None = None, **query: str
    ) -> ApiResponse:
        headers = {"Authorization": f"Bearer {token or self.token}", "User-Agent": "test"}
        raw = b"" if body is None else json.dumps(body).encode()
        return await self.api.request(ApiRequest(method=method, path=path, query=query, headers=headers, body=raw))

    async def get(self, path: str, **query: str) -> Any:
        response = await self.call("GET", path, **query)
        assert response.status == 200, response.body
        return response.json()


@virtual
async def test_the_app_gets_a_token_that_expires_after_an_hour() -> None:
    client = Client()
    installation = await client.call("GET", "/orgs/acme/installation", token=client.jwt())
    path = f"/app/installations/{installation.json()['id']}/access_tokens"
    response = await client.call("POST", path, {}, token=client.jwt())
    assert (response.status, response.json()["repository_selection"]) == (201, "all")
    token = response.json()["token"]
    assert (await client.call("GET", RUNNERS, token=token)).status == 200
    await asyncio.sleep(3601)
    expired = await client.call("GET", RUNNERS, token=token)
    assert (expired.status, expired.json()["message"]) == (401, "Bad credentials")


@virtual
async def test_tokens_of_the_app_are_verified() -> None:
    client = Client()
    other = generate_key(random.Random(2), 512)
    good = client.jwt()
    wrong = {
        "signature": sign_jwt(other, issuer=4711, now=wall_clock()),
        "issuer": client.jwt(issuer=4712),
        "expired": client.jwt(now=wall_clock() - 3600),
        "too long": client.jwt(lifetime=3600),
        "future": client.jwt(now=wall_clock() + 600),
        "changed": good[:-6] + ("A" * 6),
        "installation token": client.token,
    }
    assert (await client.call("GET", "/app", token=good)).status == 200
    assert (await client.call("GET", "/app", token=client.jwt(issuer="Iv1.4711fa4e"))).status == 200
    for name, token in wrong.items():
        assert (await client.call("GET", "/app", token=token)).status == 401, name


@virtual
async def test_permissions_scopes_and_accounts_are_checked() -> None:
    client = Client()
    client.github.create_organization("other")
    assert (await client.call("GET", "/orgs/other/actions/runners")).status == 404
    assert (await client.call("GET", "/orgs/nobody/actions/runners")).status == 404
    reader = client.github.accounts.create_installation_token(
        client.installation, {"organization_self_hosted_runners": "read"}
    )
    assert (await client.call("GET", RUNNERS, token=reader.value)).status == 200
    refused = await client.call("POST", JIT, BODY, token=reader.value)
    assert (refused.status, refused.json()["message"]) == (403, "Resource not accessible by integration")
    weak = client.github.create_personal_token(["repo"])
    assert (await client.call("GET", RUNNERS, token=weak.value)).status == 403
    strong = client.github.create_personal_token(["admin:org"])
    assert (await client.call("GET", RUNNERS, token=strong.value)).status == 200
    nothing = await client.api.request(ApiRequest(method="GET", path=RUNNERS, headers={"User-Agent": "test"}))
    assert (nothing.status, nothing.json()["message"]) == (401, "Requires authentication")


@virtual
async def test_a_runner_from_configuration_to_deletion() -> None:
    client = Client()
    created = await client.call("POST", JIT, BODY)
    runner = created.json()["runner"]
    assert (created.status, runner["status"], runner["os"], runner["busy"]) == (201, "offline", "unknown", False)
    assert [label["name"] for label in runner["labels"]] == BODY["labels"]
    assert (await client.call("POST", JIT, BODY)).status == 409
    assert (await client.get(RUNNERS, name="runner-1"))["total_count"] == 1
    assert (await client.get(RUNNERS, name="runner"))["total_count"] == 0
    session = client.github.connect(created.json()["encoded_jit_config"])
    client.github.queue_run(client.web, [LINUX])
    await session.started.wait()
    path = f"{RUNNERS}/{runner['id']}"
    assert (await client.get(path))["busy"] is True
    busy = await client.call("DELETE", path)
    assert (busy.status, busy.json()["message"]) == (422, 'Bad request - Runner "runner-1" is still running a job')
    await session.wait()
    assert (await client.call("GET", path)).status == 404
    await client.call("POST", JIT, BODY)
    deleted = await client.call("DELETE", f"{RUNNERS}/2")
    assert (deleted.status, deleted.body) == (204, b"")


@virtual
async def test_bodies_are_validated() -> None:
    client = Client()
    without = {key: value for key, value in BODY.items() if key != "runner_group_id"}
    missing = await client.call("POST", JIT, without)
    assert missing.status == 422
    assert "object is missing required key: runner_group_id" in missing.json()["message"]
    for key, value in [("runner_group_id", "1"), ("labels", "linux"), ("labels", []), ("labels", [1]), ("job_id", 1)]:
        assert (await client.call("POST", JIT, {**BODY, key: value})).status == 422, (key, value)
    assert (await client.call("POST", JIT, {**BODY, "name": "a:b"})).status == 400
    assert (await client.call("POST", JIT, {**BODY, "runner_group_id": 9})).status == 404
    assert await client.get(RUNNERS) == {"total_count": 0, "runners": []}


@virtual
async def test_runner_groups_by_visibility() -> None:
    client = Client()
    api = client.github.create_repository(client.acme, "api")
    group = client.github.create_group(client.acme, "few", visibility="selected", repositories=[api])
    seen = {
        name: [
            each["name"] for each in (await client.get("/orgs/acme/actions/runner-groups", **query))["runner_groups"]
        ]
        for name, query in {
            "all": {},
            "web": {"visible_to_repository": "web"},
            "api": {"visible_to_repository": "api"},
        }.items()
    }
    assert seen == {"all": ["Default", "few"], "web": ["Default"], "api": ["Default", "few"]}
    listed = await client.get(f"/orgs/acme/actions/runner-groups/{group.id}/repositories")
    assert [each["full_name"] for each in listed["repositories"]] == ["acme/api"]


@virtual
async def test_pages_are_linked() -> None:
    client = Client()
    for number in range(5):
        client.mint(f"runner-{number}")
    first = await client.call("GET", RUNNERS, per_page="2")
    assert first.json()["total_count"] == 5
    links = {relation: url for url, relation in re.findall(r'<([^>]+)>; rel="(\w+)"', first.headers["Link"])}
    assert set(links) == {"next", "last"}
    assert links["next"] == "https://github.example.com/api/v3/orgs/acme/actions/runners?per_page=2&page=2"
    last = await client.call("GET", RUNNERS, per_page="2", page="3")
    assert [runner["name"] for runner in last.json()["runners"]] == ["runner-4"]
    assert 'rel="next"' not in last.headers["Link"]


@virtual
async def test_runs_and_jobs() -> None:
    client = Client()
    run = client.github.queue_run(client.web, [LINUX, JobSpec(labels=["linux"], environment="production")])
    repo = "/repos/acme/web/actions"
    assert (await client.get(f"{repo}/jobs/{run.jobs[0].id}"))["status"] == "queued"
    assert (await client.get(f"{repo}/jobs/{run.jobs[1].id}"))["status"] == "waiting"
    assert (await client.call("GET", f"{repo}/jobs/1")).status == 404
    assert [each["id"] for each in (await client.get(f"{repo}/runs", status="queued"))["workflow_runs"]] == [run.id]
    session = client.github.connect(client.mint())
    await session.wait()
    # A run that has begun is not listed as queued any more, although jobs of it wait.
    assert (await client.get(f"{repo}/runs", status="queued"))["total_count"] == 0
    assert (await client.get(f"{repo}/runs/{run.id}"))["status"] == "in_progress"
    client.github.cancel(run.jobs[1])
    client.github.rerun(run, failed_only=True)
    latest = (await client.get(f"{repo}/runs/{run.id}/jobs"))["jobs"]
    every = (await client.get(f"{repo}/runs/{run.id}/jobs", filter="all"))["jobs"]
    assert [job["run_attempt"] for job in latest] == [1, 2]
    assert len(every) == 3


@virtual
async def test_deliveries_by_cursor_and_redelivery() -> None:
    client = Client()
    await client.github.drain()
    client.receiver.statuses = [500]
    client.github.queue_run(client.web, [LINUX] * 4)
    await client.github.drain()
    jwt, log = client.jwt(), "/app/hook/deliveries"
    first = await client.call("GET", log, token=jwt, per_page="3")
    [cursor] = re.findall(r"cursor=(\w+)>; rel=\"next\"", first.headers["Link"])
    second = await client.call("GET", log, token=jwt, per_page="3", cursor=cursor)
    assert "Link" not in second.headers
    every = first.json() + second.json()
    assert [each["event"] for each in every] == ["workflow_job"] * 4 + ["ping"]
    [failed] = (await client.call("GET", log, token=jwt, status="failure")).json()
    assert (failed["status_code"], failed["action"], failed["redelivery"]) == (500, "queued", False)
    detail = (await client.call("GET", f"{log}/{failed['id']}", token=jwt)).json()
    assert detail["request"]["headers"]["X-GitHub-Delivery"] == failed["guid"]
    attempt = await client.call("POST", f"{log}/{failed['id']}/attempts", token=jwt)
    assert (attempt.status, attempt.json()) == (202, {})
    await client.github.drain()
    newest = (await client.call("GET", log, token=jwt)).json()[0]
    assert (newest["guid"], newest["redelivery"], newest["status_code"]) == (failed["guid"], True, 200)


@virtual
async def test_an_organization_has_a_delivery_log_too() -> None:
    client = Client()
    hook = client.github.create_organization_hook(client.acme, "https://yard.example.com/org", "secret")
    client.github.queue_run(client.web, [LINUX])
    await client.github.drain()
    assert [each["id"] for each in await client.get("/orgs/acme/hooks")] == [hook.id]
    log = f"/orgs/acme/hooks/{hook.id}/deliveries"
    newest = (await client.get(log))[0]
    assert (newest["event"], newest["installation_id"], newest["repository_id"]) == (
        "workflow_job",
        None,
        client.web.id,
    )
    assert (await client.call("POST", f"{log}/{newest['id']}/attempts")).status == 202
    assert (await client.call("GET", f"/orgs/acme/hooks/{client.hook.id}/deliveries")).status == 404


@virtual
async def test_rate_limits_are_off_until_they_are_enabled() -> None:
    client = Client()
    assert (await client.call("GET", "/rate_limit")).json()["message"] == "Rate limiting is not enabled."
    client = Client(rate_limit=2)
    for remaining in ("1", "0"):
        assert (await client.call("GET", RUNNERS)).headers["X-RateLimit-Remaining"] == remaining
    limited = await client.call("GET", RUNNERS)
    assert (limited.status, limited.headers["X-RateLimit-Remaining"]) == (403, "0")
    assert (await client.get("/rate_limit"))["resources"]["core"]["used"] == 2
    await asyncio.sleep(float(limited.headers["X-RateLimit-Reset"]) - wall_clock())
    assert (await client.call("GET", "/meta")).status == 401, "the token expired meanwhile"
    client.token = client.github.accounts.create_installation_token(client.installation).value
    assert (await client.call("GET", RUNNERS)).status == 200


@virtual
async def test_api_faults() -> None:
    client = Client()
    client.github.faults = Faults(primary_limit=1.0)
    limited = await client.call("GET", RUNNERS)
    assert limited.status in (403, 429)
    assert limited.headers["X-RateLimit-Remaining"] == "0"
    assert float(limited.headers["X-RateLimit-Reset"]) >= wall_clock() + 60
    client.github.faults = Faults(secondary_limit=1.0)
    assert (await client.call("GET", RUNNERS)).headers["Retry-After"] == "60"
    client.github.faults = Faults(secondary_without_retry_after=1.0)
    assert "Retry-After" not in (await client.call("GET", RUNNERS)).headers
    client.github.faults = Faults(unauthorized=1.0)
    assert (await client.call("GET", RUNNERS)).status == 401
    client.github.faults = Faults(slow=1.0)
    before = wall_clock()
    await client.call("GET", RUNNERS)
    assert wall_clock() > before
    client.github.faults = Faults(hanging=1.0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.call("GET", RUNNERS), 600)
    client.github.faults = Faults(server_error=1.0)
    assert (await client.call("POST", JIT, BODY)).status >= 500
    client.github.faults = Faults(lost_before=1.0)
    with pytest.raises(ConnectionLost):
        await client.call("POST", JIT, BODY)
    assert client.names() == []
    client.github.faults = Faults(lost_after=1.0)
    with pytest.raises(ConnectionLost):
        await client.call("POST", JIT, BODY)
    assert client.names() == ["runner-1"]
    client.github.faults = Faults(server_error_after=1.0)
    assert (await client.call("POST", JIT, {**BODY, "name": "runner-2"})).status >= 500
    assert client.names() == ["runner-1", "runner-2"]


@virtual
async def test_an_http_client_reaches_it_without_sockets() -> None:
    client = Client()
    transport = FakeGitHubTransport(client.github)
    headers = {"Authorization": f"Bearer {client.token}"}
    url = "https://github.example.com/api/v3"
    async with httpx2.AsyncClient(transport=transport, base_url=url, headers=headers, timeout=20) as http:
        assert (await http.post(JIT, json=BODY)).status_code == 201
        assert (await http.get(RUNNERS, params={"name": "runner-1"})).json()["total_count"] == 1
        client.github.faults = Faults(lost_after=1.0)
        with pytest.raises(httpx2.RemoteProtocolError):
            await http.delete(f"{RUNNERS}/1")
        assert client.names() == []
        client.github.faults = Faults(hanging=1.0)
        before = wall_clock()
        with pytest.raises(httpx2.ReadTimeout):
            await http.get(RUNNERS)
        assert wall_clock() - before == 20
    assert [request.path for request in transport.requests] == [JIT, RUNNERS, f"{RUNNERS}/1", RUNNERS]


# Over HTTP, in real time.


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[tuple[FakeGitHub, httpx2.AsyncClient]]:
    github = FakeGitHub(clock=time.time, rng=random.Random(7))
    async with serve(github) as url, httpx2.AsyncClient(base_url=url, timeout=10) as http:
        await http.post("/_control/organizations", json={"login": "acme"})
        await http.post("/_control/repositories", json={"owner": "acme", "name": "web"})
        token = (await http.post("/_control/tokens", json={})).json()["token"]
        http.headers["Authorization"] = f"Bearer {token}"
        yield github, http


async def mint(http: httpx2.AsyncClient, name: str) -> str:
    response = await http.post(f"/api/v3{JIT}", json={**BODY, "name": name})
    assert response.status_code == 201, response.text
    encoded = response.json()["encoded_jit_config"]
    assert isinstance(encoded, str)
    return encoded


async def queue(http: httpx2.AsyncClient, **job: object) -> int:
    run = {"repository": "acme/web", "jobs": [{"labels": ["linux"], "duration": 0.0, **job}]}
    response = await http.post("/_control/runs", json=run)
    return int(response.json()["job_ids"][0])


async def test_a_job_over_http() -> None:
    async with served() as (_, http):
        encoded = await mint(http, "runner-1")
        session = (await http.post("/_control/connect", json={"encoded_jit_config": encoded})).json()
        assert (await http.post("/_control/connect", json={"encoded_jit_config": encoded})).status_code == 409
        job_id = await queue(http)
        ended = (await http.get(f"/_control/sessions/{session['id']}", params={"wait": 10})).json()
        assert (ended["outcome"], ended["job_id"], ended["conclusion"]) == ("completed", job_id, "success")
        job = (await http.get(f"/api/v3/repos/acme/web/actions/jobs/{job_id}")).json()
        assert (job["status"], job["runner_name"]) == ("completed", "runner-1")
        runners = await http.get(f"/api/v3{RUNNERS}", params={"per_page": 1})
        assert runners.json() == {"total_count": 0, "runners": []}
        assert runners.headers["X-GitHub-Enterprise-Version"] == "3.19.1"
        state = (await http.get("/_control/state")).json()
        assert [run["status"] for run in state["runs"]] == ["completed"]


async def test_one_request_is_a_whole_runner_program() -> None:
    async with served() as (github, http):
        await queue(http)
        assert (await http.post("/_control/run", content=await mint(http, "runner-1"))).text == "completed\n"
        job = github.jobs.jobs[await queue(http, duration=60.0)]
        program = asyncio.create_task(http.post("/_control/run", content=await mint(http, "runner-2")))
        async with asyncio.timeout(60):
            while job.status != "in_progress":
                await http.get("/_control/state")
            program.cancel()
            session = github.runners.sessions[2]
            assert await session.wait() == "killed"
        assert session.runner.busy, "GitHub has not noticed yet"


async def test_a_lost_response_closes_the_connection() -> None:
    async with served() as (github, http):
        await http.put("/_control/faults", json={"lost_after": 1.0})
        with pytest.raises(httpx2.RemoteProtocolError):
            await http.post(f"/api/v3{JIT}", json=BODY)
        await http.put("/_control/faults", json={})
        assert [runner.name for runner in github.runners.all()] == ["runner-1"]
        assert (await http.put("/_control/faults", json={"lost": 1.0})).status_code == 422


async def test_webhooks_are_posted() -> None:
    received: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        [length] = re.findall(rb"content-length: (\d+)", head.lower())
        await received.put((head.lower(), await reader.readexactly(int(length))))
        writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    receiver = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = receiver.sockets[0].getsockname()[1]
    async with receiver, served() as (github, http):
        await http.post("/_control/hooks", json={"url": f"http://127.0.0.1:{port}/hook", "secret": "s"})
        head, _ = await received.get()
        assert b"x-github-event: ping" in head
        await queue(http)
        head, body = await received.get()
        assert b"x-github-event: workflow_job" in head
        assert json.loads(body)["action"] == "queued"
        await github.drain()
        assert [delivery.status_code for delivery in github.webhooks.log] == [202, 202]


def test_by_hand() -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "jobyard.demo.fake_github", "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    try:
        url = json.loads(program.stdout.readline())["control"]
        app = httpx2.get(f"{url}/app", timeout=60).json()
        assert app["private_key"].startswith("-----BEGIN RSA PRIVATE KEY-----")
        api = url.replace("_control", "api/v3")
        answer = httpx2.get(f"{api}/app", headers={"Authorization": f"Bearer {app['jwt']}"}, timeout=60)
        assert (answer.status_code, answer.json()["id"]) == (200, app["app_id"])
    finally:
        program.terminate()
        assert program.wait(10) == 0
        program.stdout.close()
