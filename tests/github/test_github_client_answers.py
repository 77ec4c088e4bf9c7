"""What the GitHub client makes of jobs, deliveries and checks; certificates and secrets."""

from __future__ import annotations

import ipaddress
import logging
import re
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID
from tests.github.github_client_support import (
    ACME,
    JITCONFIG,
    JOB,
    MINTED,
    RUNNERS,
    TOKEN,
    Tokens,
    app,
    connected,
    pem,
    private_key,
)
from tests.github.scripted_server import Received, Reply, ScriptedServer, refused, scripted_server

from jobyard.domain.runners.github_job import GitHubJobState
from jobyard.errors import ConfigurationError
from jobyard.github.client import GitHubAccess, GitHubClient
from jobyard.github.errors import (
    GitHubRejected,
    GitHubUnavailable,
)

# Jobs


async def described(server: ScriptedServer, job: dict[str, Any], run: Reply) -> Any:
    server.on["GET /repos/acme/site/actions/jobs/5"] = Reply(200, {**JOB, **job})
    server.on["GET /repos/acme/site/actions/runs/3"] = run
    async with connected(server) as client:
        return await client.job("acme/site", 5)


@pytest.mark.parametrize(
    ("job", "run", "state"),
    [
        ({}, {"status": "queued"}, GitHubJobState.QUEUED),
        ({}, {"status": "in_progress"}, GitHubJobState.QUEUED),
        ({}, {"status": "completed", "conclusion": "startup_failure"}, GitHubJobState.COMPLETED),
        ({}, {"status": "queued", "run_attempt": 2}, GitHubJobState.COMPLETED),
        ({"status": "waiting"}, {"status": "waiting"}, GitHubJobState.HELD_BACK),
        ({"status": "waiting"}, {"status": "completed"}, GitHubJobState.COMPLETED),
        ({"status": "pending"}, {"status": "pending"}, GitHubJobState.HELD_BACK),
        ({"status": "requested"}, {}, GitHubJobState.HELD_BACK),
        ({"status": "a word of the future"}, {}, GitHubJobState.HELD_BACK),
        ({"status": None, "labels": None, "run_attempt": None, "name": None}, {}, GitHubJobState.HELD_BACK),
        ({"status": "in_progress", "runner_name": "r"}, {"status": "in_progress"}, GitHubJobState.IN_PROGRESS),
        ({"status": "completed", "conclusion": "success"}, {"status": "queued"}, GitHubJobState.COMPLETED),
    ],
)
async def test_the_state_of_a_job(
    server: ScriptedServer, job: dict[str, Any], run: dict[str, Any], state: GitHubJobState
) -> None:
    found = await described(server, job, Reply(200, run))
    assert found.state is state
    assert found.labels == (() if "labels" in job else ("linux",))
    assert found.runner_id is None


async def test_a_job_or_a_run_that_does_not_exist(server: ScriptedServer) -> None:
    assert await described(server, {}, refused(404, "Not Found")) is None
    async with connected(server) as client:
        assert await client.job("acme/site", 6) is None


async def test_the_kind_of_owner_of_a_job_comes_from_its_run(server: ScriptedServer) -> None:
    run = Reply(200, {"status": "completed", "repository": {"owner": {"type": "User"}}})
    found = await described(server, {"status": "completed", "conclusion": "success"}, run)
    assert found.owner_is_user
    assert found.conclusion == "success"


async def test_queued_jobs_are_bounded_and_found_once(server: ScriptedServer, caplog: pytest.LogCaptureFixture) -> None:
    runs = "/repos/acme/site/actions/runs"

    def listed(request: Received) -> Reply:
        page = int(request.query.get("page", "1"))
        link = {"Link": f'<{server.url}{runs}?status={request.query["status"]}&page={page + 1}>; rel="next"'}
        if request.query["status"] not in {"queued", "in_progress"}:
            return Reply(200, {"workflow_runs": []})
        return Reply(200, {"workflow_runs": [{"id": page * 1000 + at} for at in range(1, 101)]}, link)

    def jobs(request: Received) -> Reply:
        assert request.query["filter"] == "latest"
        run_id = int(request.path.split("/")[-2])
        states = ("queued", "in_progress", "waiting", "completed")
        found = [{**JOB, "id": run_id * 10 + at, "run_id": run_id, "status": state} for at, state in enumerate(states)]
        return Reply(200, {"jobs": found})

    server.on[f"GET {runs}"] = listed
    for page in (1, 2, 3):
        server.on |= {f"GET {runs}/{page * 1000 + at}/jobs": jobs for at in range(1, 101)}
    async with connected(server, timeout=10) as client:
        found = await client.queued_jobs("acme/site")
    assert len(found) == 400
    assert len({job.job_id for job in found}) == 400
    assert {job.state for job in found} == {GitHubJobState.QUEUED, GitHubJobState.HELD_BACK}
    assert "more than 200 runs" in caplog.text


async def test_queued_jobs_fail_as_a_whole(server: ScriptedServer) -> None:
    runs = "/repos/acme/site/actions/runs"
    server.on[f"GET {runs}"] = Reply(200, {"workflow_runs": [{"id": 1}, {"id": 2}]})
    server.on[f"GET {runs}/1/jobs"] = Reply(200, {"jobs": [JOB]})
    server.on[f"GET {runs}/2/jobs"] = refused(500, "Server Error")
    async with connected(server) as client:
        with pytest.raises(GitHubUnavailable):
            await client.queued_jobs("acme/site")
        server.on[f"GET {runs}/2/jobs"] = refused(404, "Not Found")  # deleted meanwhile
        assert [job.job_id for job in await client.queued_jobs("acme/site")] == [5]


# Deliveries


async def test_a_slow_delivery_that_is_listed_late_does_not_end_the_list(server: ScriptedServer) -> None:
    def page(*seconds: int, more: int | None = None) -> Reply:
        at = [datetime.fromtimestamp(second, UTC).isoformat() for second in seconds]
        items = [
            {"id": second, "delivered_at": text, "status_code": 200} for second, text in zip(seconds, at, strict=True)
        ]
        link = f'<{server.url}/?cursor={more}>; rel="next"'
        return Reply(200, items, {"Link": link} if more else {})

    log = {"": page(900, 100, 800, more=1), "1": page(700, 200, more=2), "2": page(99, 98, more=3), "3": page(97)}
    server.on["GET /orgs/acme/hooks/4/deliveries"] = lambda request: log[request.query.get("cursor", "")]
    async with connected(server, org_hooks={"acme": 4}) as client:
        found = [delivery.id async for delivery in client.deliveries(600_000)]
    assert found == [900, 800, 700]
    assert [request.query.get("cursor") for request in server.received] == [None, "1", "2"]


# Checks


async def test_the_token_is_wrong(server: ScriptedServer) -> None:
    server.on["GET /meta"] = refused(401, "Bad credentials")
    async with connected(server) as client:
        assert await client.check() == [
            "Cannot use github_token: GitHub rejects it as wrong, revoked or expired. Create a new one."
        ]


async def test_the_token_lacks_scopes_and_the_server_is_old(server: ScriptedServer) -> None:
    server.on["GET /meta"] = Reply(200, {"installed_version": "3.9.2"}, {"X-OAuth-Scopes": "repo, read:org"})
    async with connected(server, org_hooks={"acme": 4}) as client:
        found = await client.check()
    assert [problem.partition(":")[0] for problem in found] == [
        "Cannot use GitHub Enterprise Server 3.9.2",
        "Cannot register runners",
        "Cannot read webhook deliveries",
    ]
    server.on["GET /meta"] = Reply(
        200, {}, {"X-OAuth-Scopes": "admin:org, repo", "X-GitHub-Enterprise-Version": "3.17.1"}
    )
    async with connected(server) as client:
        assert await client.check() == []


async def test_the_app_lacks_permissions_and_events(server: ScriptedServer) -> None:
    server.on["GET /app"] = Reply(200, {"permissions": {"organization_self_hosted_runners": "read"}, "events": None})
    async with app(server) as client:
        found = await client.check()
    assert len(found) == 3
    assert '"Self-hosted runners: write"' in found[0]
    assert '"Actions: read"' in found[1]
    assert '"Workflow job"' in found[2]


async def test_an_organization_has_not_accepted_a_permission(server: ScriptedServer) -> None:
    Tokens(server, permissions={"organization_self_hosted_runners": "write"})
    async with app(server) as client:
        (problem,) = await client.check_org("acme")
    assert problem == (
        'Cannot read the state of jobs: the GitHub App in acme lacks the permission "Actions: read". '
        "Add it in the settings of the App, and accept it in each organization."
    )


async def test_the_private_key_is_not_one(server: ScriptedServer) -> None:
    async with connected(server, app_id=12, private_key="-----BEGIN RSA PRIVATE KEY-----\nc2VjcmV0\n") as client:
        (problem,) = await client.check()
        assert "github_private_key is not an RSA private key" in problem
        assert "c2VjcmV0" not in problem
        with pytest.raises(GitHubRejected) as raised:
            await client.runners(ACME)
    assert "c2VjcmV0" not in str(raised.value)


async def test_the_clock_is_wrong(server: ScriptedServer) -> None:
    ahead = format_datetime(datetime.now(UTC) + timedelta(seconds=900), usegmt=True)
    server.on["GET /app"] = refused(401, "'Expiration time' claim ('exp') must be in the future", Date=ahead)
    async with app(server) as client:
        (problem,) = await client.check()
    assert "clock of this machine" in problem
    assert "behind GitHub's" in problem


@pytest.mark.parametrize("status", [403, 404])
async def test_the_token_cannot_manage_an_organization(server: ScriptedServer, status: int) -> None:
    server.on[f"GET {RUNNERS}"] = refused(status, "Must have admin rights to this organization")
    async with connected(server) as client:
        (problem,) = await client.check_org("acme")
    assert problem.startswith("Cannot manage the runners of acme: ")
    assert "admin rights" in problem


async def test_repositories_of_a_user_with_a_token(server: ScriptedServer) -> None:
    server.on["GET /users/kim/repos"] = Reply(
        200,
        [
            {"full_name": "kim/old", "pushed_at": "2026-01-01T00:00:00Z"},
            {"full_name": "kim/gone", "archived": True},
            {"full_name": "kim/new", "pushed_at": "2026-11-01T00:00:00Z"},
            {"full_name": "kim/empty", "pushed_at": None},
        ],
    )
    async with connected(server) as client:
        assert await client.repositories("kim") == ["kim/new", "kim/old", "kim/empty"]


@pytest.mark.parametrize(
    ("access", "words"),
    [
        ({}, "No access"),
        ({"token": "x", "app_id": 1, "private_key": "k"}, "Both"),
        ({"app_id": 1}, "Set both"),
        ({"token": "x\ny"}, "github_token"),
        ({"token": "x", "url": "github.example.com"}, "github_url"),
        ({"token": "x", "api_url": "https://kim:pw@github.example.com"}, "github_api_url"),
    ],
)
def test_settings_that_cannot_work(access: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as raised:
        GitHubClient(GitHubAccess(**access))
    assert "pw" not in str(raised.value)


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server with a certificate of its own authority, and the file of that authority."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "private")])
    now = datetime.now(UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, private_key().public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private_key(), hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_text(pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.pem", folder / "key.pem")
    return context, folder / "ca.pem"


async def test_a_private_authority_is_trusted_only_if_configured(tmp_path: Path) -> None:
    context, authority = certificate(tmp_path)
    async with scripted_server(context) as server:
        server.on[f"GET {RUNNERS}/7"] = Reply(200, {"id": 7})
        async with connected(server, ca_file=str(authority)) as client:
            assert await client.runner(ACME, 7) is not None
        async with connected(server) as client:
            with pytest.raises(GitHubUnavailable, match="set github_ca_file"):
                await client.runner(ACME, 7)
    assert len(server.received) == 1


async def test_a_file_of_certificates_that_cannot_be_read() -> None:
    client = GitHubClient(GitHubAccess(token=TOKEN, ca_file="/nowhere.pem"))
    with pytest.raises(ConfigurationError, match="github_ca_file"):
        await client.start()


# Secrets


async def test_no_secret_is_shown_or_logged(server: ScriptedServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = Tokens(server)
    server.on[JITCONFIG] = MINTED
    access = GitHubAccess(api_url=server.url, app_id=12, private_key=pem())
    client = GitHubClient(access)
    minted = await client.generate_jitconfig(ACME, "r", 1, ["linux"])
    server.on[JITCONFIG] = lambda request: refused(422, f"Invalid token {request.token}")
    with pytest.raises(GitHubRejected) as raised:
        await client.generate_jitconfig(ACME, "r", 1, ["linux"])
    await client.stop()
    shown = [repr(access), repr(client), repr(minted), str(access), repr(raised.value), caplog.text, repr(vars(client))]
    secrets = [f"ghs_{tokens.made}", minted.encoded, pem().splitlines()[1], "eyJ"]
    assert [secret for secret in secrets for text in shown if secret in text] == []
    assert "Invalid token ..." in str(raised.value)
    assert TOKEN not in repr(GitHubAccess(token=TOKEN))


async def test_a_wrong_clock_is_told_once(server: ScriptedServer, caplog: pytest.LogCaptureFixture) -> None:
    def dated(seconds: float) -> Reply:
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)
        return Reply(200, {"id": 7, "name": "r"}, {"Date": date})

    server.on[f"GET {RUNNERS}/7"] = [dated(5), dated(60), dated(60)]
    async with connected(server) as client:
        for _ in range(3):
            await client.runner(ACME, 7)
    told = [record.getMessage() for record in caplog.records if "clock" in record.getMessage()]
    assert len(told) == 1
    assert re.fullmatch(r"the clock of this machine is (59|60) seconds behind GitHub's; correct it", told[0])
