"""Rate limits and App tokens of the GitHub client."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from tests.github.github_client_support import ACME, JITCONFIG, MINTED, RUNNERS, Tokens, app, connected, in_seconds, pem
from tests.github.scripted_server import HANG, Reply, ScriptedServer, refused
from tests.support import PATIENCE_SECONDS

from jobyard.domain.runners.github_job import RunnerScope
from jobyard.github.client import credentials
from jobyard.github.client.rate_limits import RateLimits
from jobyard.github.errors import (
    GitHubRateLimited,
    GitHubRejected,
    GitHubUnavailable,
)

# Rate limits


def reset_in(seconds: float) -> str:
    return str(round(time.time() + seconds))


@pytest.mark.parametrize(
    ("reply", "seconds"),
    [
        (refused(403, "You have exceeded a secondary rate limit", Retry_After="30"), 30),
        (refused(429, "Too many requests", Retry_After="30"), 30),
        (refused(429, "You have exceeded a secondary rate limit"), 60),
        (refused(403, "You have triggered an abuse detection mechanism"), 60),
        (refused(403, "API rate limit exceeded", x_ratelimit_remaining="0"), 60),
        (Reply(429, raw=b"<html>", headers={"Content-Type": "text/html"}), 60),
        (refused(403, "Forbidden", Retry_After="99999999"), 3600),
    ],
)
async def test_a_rate_limit_says_how_long_to_wait_and_is_obeyed(
    server: ScriptedServer, reply: Reply, seconds: float
) -> None:
    server.on[f"GET {RUNNERS}/7"] = reply
    async with connected(server) as client:
        began = time.monotonic()
        for _ in range(3):
            with pytest.raises(GitHubRateLimited) as raised:
                await client.runner(ACME, 7)
            passed = time.monotonic() - began
            assert seconds - passed - 0.1 <= raised.value.retry_after_seconds <= seconds
    assert len(server.received) == 1


async def test_a_primary_limit_lasts_until_its_reset_by_the_clock_of_github(server: ScriptedServer) -> None:
    ahead = time.time() + 7200
    headers = {
        "x-ratelimit-limit": "5000",
        "x-ratelimit-remaining": "0",
        "x-ratelimit-reset": str(round(ahead) + 90),
        "Date": format_datetime(datetime.fromtimestamp(ahead, UTC), usegmt=True),
    }
    server.on[f"GET {RUNNERS}/7"] = Reply(403, {"message": "API rate limit exceeded"}, headers)
    async with connected(server) as client:
        with pytest.raises(GitHubRateLimited) as raised:
            await client.runner(ACME, 7)
    assert 88 <= raised.value.retry_after_seconds <= 91


async def test_the_last_allowed_request_succeeds_and_the_next_is_not_sent(server: ScriptedServer) -> None:
    spent = {"x-ratelimit-limit": "60", "x-ratelimit-remaining": "0", "x-ratelimit-reset": reset_in(100)}
    server.on[f"GET {RUNNERS}/7"] = Reply(200, {"id": 7, "name": "r"}, spent)
    async with connected(server) as client:
        assert await client.runner(ACME, 7) is not None
        with pytest.raises(GitHubRateLimited):
            await client.runner(ACME, 7)
    assert len(server.received) == 1


async def test_used_up_registrations_do_not_stop_other_requests(server: ScriptedServer) -> None:
    spent = {
        "x-ratelimit-limit": "1500",
        "x-ratelimit-remaining": "0",
        "x-ratelimit-reset": reset_in(100),
        "x-ratelimit-resource": "actions_runner_registration",
    }
    server.on[JITCONFIG] = Reply(201, MINTED.data, spent)
    server.on[f"GET {RUNNERS}/7"] = Reply(200, {"id": 7})
    async with connected(server) as client:
        await client.generate_jitconfig(ACME, "r", 1, ["linux"])
        with pytest.raises(GitHubRateLimited):
            await client.generate_jitconfig(ACME, "r", 1, ["linux"])
        assert await client.runner(ACME, 7) is not None
    assert server.count(JITCONFIG) == 1


async def test_requests_are_sent_again_when_the_time_has_passed(server: ScriptedServer) -> None:
    server.on[f"GET {RUNNERS}/7"] = [refused(403, "secondary rate limit", Retry_After="1"), Reply(200, {"id": 7})]
    async with connected(server) as client:
        with pytest.raises(GitHubRateLimited) as raised:
            await client.runner(ACME, 7)
        await asyncio.sleep(raised.value.retry_after_seconds + 0.05)
        assert await client.runner(ACME, 7) is not None


async def test_a_limit_of_one_installation_leaves_the_others_alone(server: ScriptedServer) -> None:
    Tokens(server)
    server.on["GET /orgs/beta/installation"] = Reply(200, {"id": 51})
    server.on["POST /app/installations/51/access_tokens"] = Reply(201, {"token": "b", "expires_at": in_seconds(3600)})
    server.on["GET /orgs/beta/actions/runners/7"] = Reply(200, {"id": 7})
    server.on[f"GET {RUNNERS}/7"] = refused(403, "secondary rate limit", Retry_After="60")
    async with app(server) as client:
        with pytest.raises(GitHubRateLimited):
            await client.runner(ACME, 7)
        assert await client.runner(RunnerScope("beta"), 7) is not None


def test_unexplained_limits_grow_until_a_request_succeeds() -> None:
    now = 0.0
    limits = RateLimits(lambda: now)

    def wait() -> float:
        found = limits.note("runners", 403, {}, "You have exceeded a secondary rate limit")
        assert found is not None
        return found.retry_after_seconds

    assert wait() == 60
    assert wait() == 60  # it was under way together with the first
    now += 61
    limits.check("runners")
    assert wait() == 120
    now += 121
    assert limits.note("runners", 200, {}, "") is None
    assert wait() == 60


def test_unreadable_headers_of_a_limit_are_ignored() -> None:
    limits = RateLimits(lambda: 0.0)
    odd = {"x-ratelimit-limit": "x", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1e400", "retry-after": "soon"}
    found = limits.note("runners", 403, odd, "API rate limit exceeded")
    assert found is not None
    assert found.retry_after_seconds == 60


# Tokens of an App


async def test_concurrent_requests_share_one_token(server: ScriptedServer) -> None:
    tokens = Tokens(server)
    async with app(server) as client:
        await asyncio.gather(*(client.runner(ACME, 7) for _ in range(20)))
        await client.runner(RunnerScope("ACME"), 7)
    assert tokens.made == 1
    assert server.count("GET /orgs/acme/installation") == 1


async def test_a_rejected_token_is_renewed_once_for_all(server: ScriptedServer) -> None:
    tokens = Tokens(server)
    async with app(server) as client:
        await client.runner(ACME, 7)
        tokens.made += 1  # revokes the one that the client has
        found = await asyncio.gather(*(client.runner(ACME, 7) for _ in range(10)))
    assert all(found)
    assert tokens.made == 3
    assert server.count("GET /orgs/acme/installation") == 1


async def test_a_token_that_stays_rejected_is_an_error(server: ScriptedServer) -> None:
    Tokens(server)
    server.on[f"GET {RUNNERS}/7"] = refused(401, "Bad credentials")
    async with app(server) as client:
        with pytest.raises(GitHubRejected, match="401, Bad credentials"):
            await client.runner(ACME, 7)
    assert server.count(f"GET {RUNNERS}/7") == 2


def pass_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Turn the clock by which tokens are renewed."""
    monkeypatch.setattr(credentials, "_now", lambda: asyncio.get_running_loop().time() + seconds)


async def test_a_token_is_renewed_before_it_expires(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens(server)
    async with app(server) as client:
        assert await client.runner(ACME, 7) is not None
        assert await client.runner(ACME, 7) is not None
        assert tokens.made == 1
        pass_time(monkeypatch, tokens.lifetime - credentials.MARGIN_SECONDS + 1)
        assert await client.runner(ACME, 7) is not None
    assert tokens.made == 2
    assert len([request for request in server.received if request.token == "ghs_1"]) == 2


async def test_a_valid_token_is_used_while_it_cannot_be_renewed(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = Tokens(server)
    async with app(server) as client:
        await client.runner(ACME, 7)
        server.on["POST /app/installations/50/access_tokens"] = refused(503, "Down")
        pass_time(monkeypatch, tokens.lifetime - credentials.MARGIN_SECONDS + 1)
        for _ in range(2):
            assert await client.runner(ACME, 7) is not None
    assert server.count("POST /app/installations/50/access_tokens") == 2
    assert tokens.made == 1


async def test_an_app_that_was_installed_again_is_found(server: ScriptedServer) -> None:
    tokens = Tokens(server)
    async with app(server) as client:
        await client.runner(ACME, 7)
        server.on["GET /orgs/acme/installation"] = Reply(200, {"id": 60})
        server.on["POST /app/installations/60/access_tokens"] = tokens.create
        server.on["POST /app/installations/50/access_tokens"] = refused(404, "Not Found")
        tokens.made += 1
        assert await client.runner(ACME, 7) is not None
    assert server.count("GET /orgs/acme/installation") == 2


async def test_an_app_that_is_not_installed(server: ScriptedServer) -> None:
    async with app(server) as client:
        with pytest.raises(GitHubRejected, match="not installed there"):
            await client.runners(ACME)
        (problem,) = await client.check_org("acme")
    assert problem == ("Cannot use acme: the GitHub App is not installed there. Install it in the settings of the App.")


async def test_the_app_of_a_user_account(server: ScriptedServer) -> None:
    server.on["GET /users/kim/installation"] = Reply(200, {"id": 52, "target_type": "User"})
    granted = {"token": "k", "permissions": {"actions": "read"}}
    server.on["POST /app/installations/52/access_tokens"] = Reply(201, granted)
    server.on["POST /repos/kim/site/actions/runners/generate-jitconfig"] = MINTED
    async with app(server) as client:
        assert (await client.generate_jitconfig(RunnerScope("kim", "site"), "r", 1, ["linux"])).runner_id == 7
        (problem,) = await client.check_org("kim")
    assert '"Administration: write"' in problem


async def test_a_hanging_renewal_meets_the_deadline_of_all_who_wait_for_it(server: ScriptedServer) -> None:
    Tokens(server)
    server.on["POST /app/installations/50/access_tokens"] = HANG
    async with app(server, timeout=0.3) as client:
        async with asyncio.timeout(PATIENCE_SECONDS):
            found = await asyncio.gather(*(client.runner(ACME, 7) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(error, GitHubUnavailable) for error in found)


async def test_a_private_key_from_an_environment_variable(server: ScriptedServer) -> None:
    tokens = Tokens(server)
    async with connected(server, app_id="12", private_key=pem().replace("\n", "\\n")) as client:
        await client.runner(ACME, 7)
    assert tokens.made == 1
