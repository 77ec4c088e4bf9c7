"""The fake answers and sends what GitHub's own descriptions say."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.github.contract import Contract, ContractBroken, contract
from tests.github.fake_world import LINUX
from tests.github.test_fake_github_api import BODY, JIT, RUNNERS, Client
from tests.github.virtual_time import run_virtually
from tests.servers.absent import Absent
from tests.servers.fixtures import absent
from tests.servers.github_descriptions import VERSIONS

from jobyard.demo.fake_github import Faults, JobSpec, account_routes, action_routes, runner_routes
from jobyard.demo.fake_github.calls import ApiResponse

ROUTES = {
    (route.method, route.template) for route in (*runner_routes.ROUTES, *action_routes.ROUTES, *account_routes.ROUTES)
} | {("GET", "/rate_limit")}
WEB = "/repos/acme/web"


@pytest.fixture(params=VERSIONS)
def described(request: pytest.FixtureRequest) -> Contract:
    try:
        return contract(request.param)
    except Absent as error:
        absent(error)


class Checked(Client):
    """A client that holds each call against the description and remembers the operations."""

    def __init__(self, described: Contract, **options: Any) -> None:
        super().__init__(**options)
        self.described = described
        self.checks_requests = True
        self.called: set[tuple[str, str]] = set()
        scopes = ["admin:org", "admin:org_hook", "repo", "read:repo_hook", "write:repo_hook"]
        self.personal = self.github.create_personal_token(scopes).value
        org_hook = self.github.create_organization_hook(self.acme, "https://yard.example.com/org", "secret")
        repo_hook = self.github.create_repository_hook(self.web, "https://yard.example.com/repo", "secret")
        self.hook_paths = (f"/orgs/acme/hooks/{org_hook.id}", f"{WEB}/hooks/{repo_hook.id}")

    async def call(
        self, method: str, path: str, body: object = None, *, token: str | None = None, **query: str
    ) -> ApiResponse:
        raw = b"" if body is None else json.dumps(body).encode()
        if self.checks_requests:
            self.described.check_request(method, path, query, raw)
        response = await super().call(method, path, body, token=token, **query)
        self.described.check_response(method, path, response.status, response.body)
        self.called.add((method, self.described.template(method, path)))
        return response

    async def as_app(self, method: str, path: str, body: object = None, **query: str) -> Any:
        response = await self.call(method, path, body, token=self.jwt(), **query)
        assert response.status < 300, response.body
        return response.json()


async def runners(client: Checked) -> None:
    for scope in (RUNNERS, f"{WEB}/actions/runners"):
        runner = (await client.call("POST", f"{scope}/generate-jitconfig", BODY)).json()["runner"]
        assert (await client.call("POST", f"{scope}/generate-jitconfig", BODY)).status == 409
        await client.get(scope, name="runner-1", per_page="10", page="1")
        await client.get(f"{scope}/{runner['id']}")
        assert (await client.call("DELETE", f"{scope}/{runner['id']}")).status == 204
        assert (await client.call("GET", f"{scope}/{runner['id']}")).status == 404
    client.checks_requests = False
    for key, value in [("labels", []), ("runner_group_id", "1"), ("name", "a/b"), ("runner_group_id", 9)]:
        assert (await client.call("POST", JIT, {**BODY, key: value})).status >= 400
    client.checks_requests = True
    group = client.github.create_group(client.acme, "few", visibility="selected", repositories=[client.web])
    groups = "/orgs/acme/actions/runner-groups"
    assert len((await client.get(groups, visible_to_repository="web"))["runner_groups"]) == 2
    for path in ("", "/repositories", "/runners"):
        await client.get(f"{groups}/{group.id}{path}")


async def workflows(client: Checked) -> None:
    gated = JobSpec(labels=["linux"], environment="production")
    run = client.github.queue_run(client.web, [LINUX, gated, LINUX, JobSpec(labels=[], skipped=True)], max_parallel=1)
    await look(client, run.id)
    session = client.github.connect(client.mint("runner-2"))
    await session.started.wait()
    await look(client, run.id)
    [busy] = (await client.get(RUNNERS))["runners"]
    assert (await client.call("DELETE", f"{RUNNERS}/{busy['id']}")).status == 422
    client.github.approve(run.jobs[1])
    await session.wait()
    assert (await client.call("POST", f"{WEB}/actions/runs/{run.id}/cancel", token=client.personal)).status == 202
    await look(client, run.id)
    for verb in ("rerun", "rerun-failed-jobs"):
        path = f"{WEB}/actions/runs/{run.id}/{verb}"
        assert (await client.call("POST", path, token=client.personal)).status == 201
        await look(client, run.id)
        client.github.cancel(run)
    killed = client.github.connect(client.mint("runner-3"))
    client.github.queue_run(client.web, [LINUX])
    await killed.started.wait()
    killed.kill()
    await asyncio.sleep(3600)
    client.github.jobs.create_check_run(client.web)
    await client.github.drain()


async def look(client: Checked, run_id: int) -> None:
    run = f"{WEB}/actions/runs/{run_id}"
    await client.get(run)
    for path, query in (
        (f"{WEB}/actions/runs", {}),
        (f"{run}/jobs", {"filter": "all"}),
        (f"{run}/attempts/1/jobs", {}),
    ):
        await client.get(path, **query)
    for status in ("queued", "in_progress", "waiting", "pending", "completed"):
        await client.get(f"{WEB}/actions/runs", status=status)
    for job in (await client.get(f"{run}/jobs"))["jobs"]:
        await client.get(f"{WEB}/actions/jobs/{job['id']}")


async def apps_and_hooks(client: Checked) -> None:
    installation = await client.as_app("GET", "/orgs/acme/installation")
    for path in ("/app", "/app/installations", f"/app/installations/{installation['id']}", f"{WEB}/installation"):
        await client.as_app("GET", path)
    asked = {"permissions": {"organization_self_hosted_runners": "write"}}
    await client.as_app("POST", f"/app/installations/{installation['id']}/access_tokens", asked)
    await client.get("/installation/repositories")
    await client.get("/orgs/acme/repos")
    await client.get("/meta")
    await client.get("/orgs/acme/hooks")
    for log in [f"{path}/deliveries" for path in ("/app/hook", *client.hook_paths)]:
        token = client.jwt() if log.startswith("/app") else client.personal
        [newest, *_] = (await client.call("GET", log, token=token, per_page="5", status="success")).json()
        await client.call("GET", f"{log}/{newest['id']}", token=token)
        assert (await client.call("POST", f"{log}/{newest['id']}/attempts", token=token)).status == 202


def test_every_route_and_webhook(described: Contract) -> None:
    async def story() -> None:
        client = Checked(described, rate_limit=100_000)
        await runners(client)
        await workflows(client)
        client.token = client.personal
        await client.get("/rate_limit")
        client.token = client.github.accounts.create_installation_token(client.installation).value
        await apps_and_hooks(client)
        await client.github.drain()
        assert client.called == ROUTES
        events = [(headers, json.loads(body)) for _, headers, body in client.receiver.received]
        for headers, payload in events:
            described.check_webhook(headers, payload)
        actions = {payload.get("action") for _, payload in events}
        assert actions == {None, "queued", "waiting", "in_progress", "completed"}

    run_virtually(story)


def test_errors_of_faults(described: Contract) -> None:
    async def story() -> None:
        client = Checked(described)
        assert (await client.call("GET", "/rate_limit")).status == 404
        for fault in ("primary_limit", "secondary_limit", "server_error", "unauthorized"):
            client.github.faults = Faults(**{fault: 1.0})
            assert (await client.call("GET", RUNNERS)).status >= 400

    run_virtually(story)


def test_what_is_wrong_is_noticed(described: Contract) -> None:
    """The checks can fail: each of these differs from the description in one place."""
    good = {"total_count": 0, "runners": []}
    described.check_response("GET", RUNNERS, 200, json.dumps(good).encode())
    runner = {"id": 1, "name": "r", "os": "linux", "status": "online", "busy": False, "labels": []}
    wrong = [
        {"runners": []},
        {**good, "more": 1},
        {**good, "total_count": "0"},
        {**good, "runners": [{**runner, "busy": 1}]},
    ]
    for body in wrong:
        with pytest.raises(ContractBroken):
            described.check_response("GET", RUNNERS, 200, json.dumps(body).encode())
    with pytest.raises(ContractBroken, match="not among"):
        described.check_response("GET", RUNNERS, 202, b"{}")
    for query, body in (({"nam": "x"}, b""), ({"per_page": "10"}, b"{}")):
        with pytest.raises(ContractBroken):
            described.check_request("GET", RUNNERS, query, body)
    described.check_request("POST", JIT, {}, json.dumps(BODY).encode())
    with pytest.raises(ContractBroken, match="labels"):
        described.check_request("POST", JIT, {}, json.dumps({**BODY, "labels": []}).encode())
    with pytest.raises(ContractBroken, match="no such operation"):
        described.template("POST", "/orgs/acme/actions/runners/jit/config")


def test_wrong_webhooks_are_noticed(described: Contract) -> None:
    async def story() -> None:
        client = Client()
        client.github.queue_run(client.web, [LINUX])
        client.github.jobs.send_null_job(client.web)
        await client.github.drain()
        [(_, headers, body), (_, _, null)] = client.receiver.received[1:]
        payload = json.loads(body)
        described.check_webhook(headers, payload)
        for job in ({**payload["workflow_job"], "status": "pending"}, {"id": 1}, None):
            with pytest.raises(ContractBroken):
                described.check_webhook(headers, {**payload, "workflow_job": job})
        with pytest.raises(ContractBroken):
            described.check_webhook(headers, json.loads(null))
        unsigned = {name: value for name, value in headers.items() if name != "X-Hub-Signature-256"}
        with pytest.raises(ContractBroken, match="header"):
            described.check_webhook(unsigned, payload)

    run_virtually(story)
