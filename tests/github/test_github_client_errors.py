"""Errors of the GitHub client: rejections, deadlines, other hosts."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.github.github_client_support import ACME, JITCONFIG, JOB, MINTED, RUNNERS, TOKEN, connected
from tests.github.scripted_server import DRIP, HANG, LOST, Reply, ScriptedServer, refused, scripted_server
from tests.support import PATIENCE_SECONDS

from jobyard.domain.runners.github_job import GitHubJobState, RunnerScope
from jobyard.github.api import JitConfig, RunnerRemoval
from jobyard.github.errors import (
    GitHubError,
    GitHubRejected,
    GitHubUnavailable,
    RunnerNameTaken,
)

# Rejections


async def test_every_request_identifies_itself_and_the_version_of_the_api(server: ScriptedServer) -> None:
    server.on[JITCONFIG] = MINTED
    async with connected(server) as client:
        minted = await client.generate_jitconfig(ACME, "r", 1, ["self-hosted", "linux"], "_w")
    assert minted == JitConfig(7, "r", "aml0LXNlY3JldA==")
    (request,) = server.received
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert request.headers["accept"] == "application/vnd.github+json"
    assert request.headers["x-github-api-version"] == "2022-11-28"
    assert request.headers["user-agent"].startswith("jobyard")
    body = {"name": "r", "runner_group_id": 1, "labels": ["self-hosted", "linux"], "work_folder": "_w"}
    assert msgspec.json.decode(request.body) == body


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        (refused(409, "Already exists - A runner with the name r already exists."), RunnerNameTaken, "Already exists"),
        (refused(400, "A valid runner name is 64 characters or less"), GitHubRejected, "64 characters"),
        (refused(403, "Resource not accessible by integration"), GitHubRejected, "by integration"),
        (refused(404, "Not Found"), GitHubRejected, "Not Found"),
        (Reply(422, {"message": "Invalid input", "errors": ["missing key"]}), GitHubRejected, "missing key"),
        (refused(401, "Bad credentials"), GitHubRejected, "Bad credentials"),
        (refused(500, "Server Error"), GitHubUnavailable, "500"),
        (refused(503, "Down for maintenance"), GitHubUnavailable, "may have taken effect"),
        (Reply(520, raw=b"unknown"), GitHubUnavailable, "520"),
        (Reply(201, raw=b'{"runner": '), GitHubUnavailable, "JSON"),
        (Reply(201, {"runner": None, "encoded_jit_config": None}), GitHubUnavailable, "no configuration"),
        (Reply(201, ["not", "an", "object"]), GitHubUnavailable, "not an object"),
        (Reply(200, raw=b"<html>Sign in</html>", headers={"Content-Type": "text/html"}), GitHubUnavailable, "proxy"),
        (Reply(201, raw=b"\xff\xfe", headers={"Content-Type": "application/json"}), GitHubUnavailable, "JSON"),
        (Reply(201, raw=b"{}", headers={"Content-Encoding": "gzip"}), GitHubUnavailable, "may have taken effect"),
        (Reply(201, MINTED.data, {"Content-Length": "9999"}), GitHubUnavailable, "may have taken effect"),
        (LOST, GitHubUnavailable, "may have taken effect"),
    ],
)
async def test_a_failed_registration_says_whether_to_repeat_it(
    server: ScriptedServer, reply: Reply | str, error: type[GitHubError], words: str
) -> None:
    server.on[JITCONFIG] = reply
    async with connected(server) as client:
        with pytest.raises(error, match=words) as raised:
            await client.generate_jitconfig(ACME, "r", 1, ["linux"])
    assert server.count(JITCONFIG) == 1
    if isinstance(raised.value, GitHubRejected) and isinstance(reply, Reply):
        assert raised.value.status == reply.status


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_an_error_page_of_a_proxy_is_not_an_answer_of_github(server: ScriptedServer, status: int) -> None:
    server.on[f"DELETE {RUNNERS}/7"] = Reply(status, raw=b"<html>no</html>", headers={"Content-Type": "text/html"})
    server.on["GET /repos/acme/site/actions/jobs/5"] = Reply(status, {"error": "no upstream"})
    async with connected(server) as client:
        with pytest.raises(GitHubUnavailable, match="proxy"):
            await client.remove_runner(ACME, 7)
        with pytest.raises(GitHubUnavailable, match="proxy"):
            await client.job("acme/site", 5)


@pytest.mark.parametrize(
    ("reply", "removal"),
    [
        (Reply(204), RunnerRemoval.REMOVED),
        (refused(404, "Not Found"), RunnerRemoval.ABSENT),
        (refused(422, 'Bad request - Runner "r" is still running a job'), RunnerRemoval.BUSY),
    ],
)
async def test_removal_of_a_runner(server: ScriptedServer, reply: Reply, removal: RunnerRemoval) -> None:
    server.on[f"DELETE {RUNNERS}/7"] = reply
    async with connected(server) as client:
        assert await client.remove_runner(ACME, 7) is removal


@pytest.mark.parametrize("reply", [HANG, DRIP])
async def test_a_server_that_hangs_meets_the_deadline(server: ScriptedServer, reply: str) -> None:
    server.on[JITCONFIG] = reply
    async with connected(server, timeout=0.2) as client:
        with pytest.raises(GitHubUnavailable, match="may have taken effect"):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await client.generate_jitconfig(ACME, "r", 1, ["linux"])


async def test_a_read_whose_connection_is_lost_is_repeated_once(server: ScriptedServer) -> None:
    path = f"GET {RUNNERS}/7"
    async with connected(server) as client:
        server.on[path] = [LOST, Reply(200, {"id": 7})]
        assert await client.runner(ACME, 7) is not None
        server.on[path] = [LOST, LOST, Reply(200, {"id": 7})]
        with pytest.raises(GitHubUnavailable):
            await client.runner(ACME, 7)
    assert server.count(path) == 4


async def test_a_registration_whose_connection_is_lost_is_not_repeated(server: ScriptedServer) -> None:
    server.on[JITCONFIG] = [LOST, MINTED]
    async with connected(server) as client:
        with pytest.raises(GitHubUnavailable, match="may have taken effect"):
            await client.generate_jitconfig(ACME, "r", 1, ["linux"])
    assert server.count(JITCONFIG) == 1


async def test_a_server_that_is_away_is_unavailable(server: ScriptedServer) -> None:
    server.url = "http://127.0.0.1:1"
    async with connected(server) as client:
        with pytest.raises(GitHubUnavailable):
            await client.runners(ACME)
        assert (await client.check())[0].startswith("Cannot check the access to http://127.0.0.1:1: Cannot GET /meta: ")


# Hosts: the token is for one only


async def test_pages_are_read_from_the_configured_host(server: ScriptedServer) -> None:
    async with scripted_server() as other:
        link = f'<{other.url}/organizations/9/actions/runners?per_page=100&page=2>; rel="next"'
        server.on[f"GET {RUNNERS}"] = lambda request: (
            Reply(200, {"total_count": 2, "runners": [{"id": 2, "name": "b"}]})
            if request.query.get("page") == "2"
            else Reply(200, {"total_count": 2, "runners": [{"id": 1, "name": "a"}]}, {"Link": link})
        )
        async with connected(server) as client:
            assert [runner.name for runner in await client.runners(ACME)] == ["a", "b"]
        assert other.received == []


async def test_pages_without_end_are_an_error(server: ScriptedServer) -> None:
    again = Reply(200, {"runners": [{"id": 1}]}, {"Link": f'<{server.url}{RUNNERS}?page=1>; rel="next"'})
    server.on[f"GET {RUNNERS}"] = again
    async with connected(server) as client:
        with pytest.raises(GitHubUnavailable, match="does not end"):
            await client.runners(ACME)


async def test_a_runner_that_moves_past_the_reader_is_found(server: ScriptedServer) -> None:
    # Runner 2 moves to the first page, because runner 1 is removed after that page was read.
    more = {"Link": f'<{server.url}{RUNNERS}?page=2>; rel="next"'}
    server.on[f"GET {RUNNERS}"] = [
        Reply(200, {"total_count": 3, "runners": [{"id": 1, "name": "a"}]}, more),
        Reply(200, {"total_count": 3, "runners": [{"id": 3, "name": "c"}]}),
        Reply(200, {"total_count": 2, "runners": [{"id": 2, "name": "b"}]}, more),
        Reply(200, {"total_count": 2, "runners": [{"id": 3, "name": "c"}]}),
    ]
    async with connected(server) as client:
        assert {runner.name for runner in await client.runners(ACME)} >= {"b", "c"}


async def test_a_redirect_to_another_host_is_not_followed(server: ScriptedServer) -> None:
    async with scripted_server() as other:
        moved = Reply(307, {"message": "Moved"}, {"Location": f"{other.url}/stolen"})
        server.on["GET /repos/acme/site/actions/jobs/5"] = moved
        server.on[JITCONFIG] = moved
        async with connected(server) as client:
            with pytest.raises(GitHubUnavailable, match="redirected to http://127"):
                await client.job("acme/site", 5)
            with pytest.raises(GitHubUnavailable, match="redirected"):
                await client.generate_jitconfig(ACME, "r", 1, ["linux"])
        assert other.received == []


async def test_a_renamed_repository_is_followed_on_the_same_host(server: ScriptedServer) -> None:
    server.on["GET /repos/acme/site/actions/jobs/5"] = Reply(301, {}, {"Location": "/repositories/8/jobs/5"})
    server.on["GET /repositories/8/jobs/5"] = Reply(200, JOB)
    server.on["GET /repos/acme/site/actions/runs/3"] = Reply(200, {"status": "queued"})
    async with connected(server) as client:
        found = await client.job("acme/site", 5)
    assert found is not None
    assert found.state is GitHubJobState.QUEUED


async def test_a_circle_of_redirects_ends(server: ScriptedServer) -> None:
    server.on["GET /a"] = Reply(302, {}, {"Location": "/b"})
    server.on["GET /b"] = Reply(302, {}, {"Location": "/a"})
    server.on[f"GET {RUNNERS}/7"] = Reply(302, {}, {"Location": "/a"})
    async with connected(server) as client:
        with pytest.raises(GitHubUnavailable, match="circle"):
            await client.runner(ACME, 7)


@pytest.mark.parametrize("name", ["", ".", ".."])
async def test_a_name_cannot_change_the_path(server: ScriptedServer, name: str) -> None:
    async with connected(server) as client:
        with pytest.raises(GitHubRejected):
            await client.runners(RunnerScope(name))
        with pytest.raises(GitHubRejected):
            await client.job(f"acme/{name}", 5)
        assert server.received == []
        with pytest.raises(GitHubRejected):
            await client.runners(RunnerScope("a/../b?c"))
    assert server.received[0].path == "/orgs/a%2F..%2Fb%3Fc/actions/runners"
