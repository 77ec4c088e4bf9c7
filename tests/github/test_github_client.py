"""The client of GitHub's REST API, over HTTP, against the fake GitHub Enterprise Server."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from functools import cache
from typing import Any

import pytest
from tests.support import PATIENCE_SECONDS

from jobyard.demo.fake_github import FakeGitHub, Faults, Hook, JobSpec, Timings
from jobyard.demo.fake_github.keys import RsaKey, generate_key
from jobyard.demo.fake_github.server import serve
from jobyard.domain.runners.github_job import GitHubJobState, RunnerScope
from jobyard.github.api import HookDelivery, JitConfig, RunnerRemoval
from jobyard.github.client import GitHubAccess, GitHubClient
from jobyard.github.errors import (
    GitHubError,
    GitHubRateLimited,
    GitHubRejected,
    GitHubUnavailable,
    RunnerNameTaken,
)

ACME = RunnerScope("acme")
LABELS = ["self-hosted", "linux"]
LINUX = JobSpec(labels=LABELS, duration=3600.0)
SCOPES = ("admin:org", "admin:org_hook", "repo")


@cache
def app_key() -> RsaKey:
    return generate_key(random.Random(3))


class World:
    """A fake GitHub on a port, with one organization, and clients of it."""

    def __init__(self, closing: AsyncExitStack, url: str, github: FakeGitHub) -> None:
        self._closing = closing
        self.url = url
        self.github = github
        self.acme = github.create_organization("acme")
        self.web = github.create_repository(self.acme, "web")
        self.installation = github.install_app(self.acme)

    def app(self, **access: Any) -> GitHubClient:
        app_id = self.github.accounts.app.id
        return self._client(GitHubAccess(url=self.url, app_id=app_id, private_key=app_key().private_pem(), **access))

    def with_token(self, scopes: tuple[str, ...] = SCOPES, **access: Any) -> GitHubClient:
        return self._client(GitHubAccess(url=self.url, token=self.github.create_personal_token(scopes).value, **access))

    def client(self, kind: str) -> GitHubClient:
        return self.app() if kind == "app" else self.with_token()

    def _client(self, access: GitHubAccess) -> GitHubClient:
        client = GitHubClient(access, timeout=PATIENCE_SECONDS)
        self._closing.push_async_callback(client.stop)
        return client


async def accept(hook: Hook, headers: Mapping[str, str], body: bytes) -> int:
    return 200


async def opened(closing: AsyncExitStack, timings: Timings | None = None, rate_limit: int | None = None) -> World:
    github = FakeGitHub(
        clock=time.time,
        rng=random.Random(5),
        deliver=accept,
        timings=timings,
        app_key=app_key(),
        rate_limit=rate_limit,
    )
    return World(closing, await closing.enter_async_context(serve(github)), github)


@pytest.fixture
async def closing() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def world(closing: AsyncExitStack) -> World:
    return await opened(closing)


both = pytest.mark.parametrize("kind", ["app", "token"])


@both
async def test_the_life_of_a_runner(world: World, kind: str) -> None:
    client = world.client(kind)
    minted = await client.generate_jitconfig(ACME, "runner-1", 1, LABELS)
    found = await client.runner(ACME, minted.runner_id)
    assert found is not None
    assert (found.name, found.is_online, found.is_busy, set(found.labels)) == ("runner-1", False, False, set(LABELS))
    with pytest.raises(RunnerNameTaken, match="runner-1"):
        await client.generate_jitconfig(ACME, "runner-1", 1, LABELS)

    session = world.github.connect(minted.encoded)
    assert (await client.runners(ACME))[0].is_online
    world.github.queue_run(world.web, [LINUX])
    await asyncio.wait_for(session.started.wait(), 60)
    busy = await client.runner_by_name(ACME, "runner-1")
    assert busy is not None
    assert busy.is_busy
    assert await client.remove_runner(ACME, minted.runner_id) is RunnerRemoval.BUSY

    session.close()
    other = await client.generate_jitconfig(ACME, "runner-2", 1, LABELS)
    assert await client.remove_runner(ACME, other.runner_id) is RunnerRemoval.REMOVED
    assert await client.remove_runner(ACME, other.runner_id) is RunnerRemoval.ABSENT
    assert await client.runner(ACME, other.runner_id) is None
    assert await client.runner_by_name(ACME, "runner-2") is None


@both
async def test_runners_of_a_repository(world: World, kind: str) -> None:
    client, scope = world.client(kind), RunnerScope("acme", "web")
    minted = await client.generate_jitconfig(scope, "runner-1", 1, LABELS)
    assert [runner.id for runner in await client.runners(scope)] == [minted.runner_id]
    assert await client.runners(ACME) == []
    assert await client.remove_runner(scope, minted.runner_id) is RunnerRemoval.REMOVED


@pytest.mark.parametrize(
    ("name", "group", "labels", "status"),
    [
        ("a" * 65, 1, LABELS, {400, 422}),
        ("bad/name", 1, LABELS, {400, 422}),
        ("runner-1", 99999, LABELS, {403, 404}),
        ("runner-1", 1, [], {422}),
    ],
)
async def test_a_registration_that_can_never_succeed(
    world: World, name: str, group: int, labels: list[str], status: set[int]
) -> None:
    with pytest.raises(GitHubRejected) as raised:
        await world.app().generate_jitconfig(ACME, name, group, labels)
    assert raised.value.status in status
    assert world.github.runners.all() == []


async def test_all_pages_of_runners(world: World) -> None:
    for number in range(250):
        world.github.generate_jitconfig(world.acme, name=f"runner-{number}", labels=LABELS)
    client = world.app()
    assert len({runner.name for runner in await client.runners(ACME)}) == 250
    last = await client.runner_by_name(ACME, "runner-249")
    assert last is not None
    assert last.name == "runner-249"


async def test_runner_groups(world: World) -> None:
    world.github.create_repository(world.acme, "site")
    world.github.create_group(world.acme, "builders", visibility="selected", repositories=[world.web])
    client = world.app()
    assert [(group.name, group.is_default, group.visibility) for group in await client.runner_groups("acme")] == [
        ("Default", True, "all"),
        ("builders", False, "selected"),
    ]
    assert [group.name for group in await client.runner_groups("acme", "site")] == ["Default"]


@both
async def test_the_states_of_a_job(world: World, kind: str) -> None:
    client = world.client(kind)
    run = world.github.queue_run(world.web, [JobSpec(labels=LABELS, environment="production")])
    (job,) = run.jobs
    waiting = await client.job("acme/web", job.id)
    assert waiting is not None
    assert waiting.state is GitHubJobState.HELD_BACK
    world.github.approve(job)
    queued = await client.job("acme/web", job.id)
    assert queued is not None
    assert queued.state is GitHubJobState.QUEUED
    assert (queued.run_id, queued.labels, queued.repo_full_name) == (run.id, tuple(LABELS), "acme/web")
    assert (queued.org_name, queued.owner_is_user, queued.runner_name) == ("acme", False, None)
    assert abs(queued.queued_at / 1000 - time.time()) < 60

    session = world.github.connect((await client.generate_jitconfig(ACME, "runner-1", 1, LABELS)).encoded)
    await asyncio.wait_for(session.started.wait(), 60)
    running = await client.job("acme/web", job.id)
    assert running is not None
    assert (running.state, running.runner_name) == (GitHubJobState.IN_PROGRESS, "runner-1")
    world.github.cancel(run)
    ended = await client.job("acme/web", job.id)
    assert ended is not None
    assert (ended.state, ended.conclusion) == (GitHubJobState.COMPLETED, "cancelled")
    assert await client.job("acme/web", 1) is None


async def test_a_job_whose_run_never_started_is_completed(world: World) -> None:
    run = world.github.queue_run(world.web, [LINUX])
    world.github.jobs.fail_startup(run)
    assert run.jobs[0].status == "queued"
    found = await world.app().job("acme/web", run.jobs[0].id)
    assert found is not None
    assert (found.state, found.conclusion) == (GitHubJobState.COMPLETED, "startup_failure")


async def test_a_job_of_a_user_is_registered_with_the_repository(world: World) -> None:
    kim = world.github.create_user("kim")
    run = world.github.queue_run(world.github.create_repository(kim, "site"), [LINUX])
    client = world.with_token()
    found = await client.job("kim/site", run.jobs[0].id)
    assert found is not None
    assert found.scope == RunnerScope("kim", "site")
    assert [job.scope for job in await client.queued_jobs("kim/site")] == [found.scope]
    minted = await client.generate_jitconfig(found.scope, "runner-1", 1, LABELS)
    assert [runner.id for runner in await client.runners(found.scope)] == [minted.runner_id]


@both
async def test_queued_jobs_of_a_repository(world: World, kind: str) -> None:
    github, client = world.github, world.client(kind)
    started = github.queue_run(world.web, [LINUX, LINUX])
    session = github.connect(github.generate_jitconfig(world.acme, name="runner-1", labels=LABELS)[1])
    await asyncio.wait_for(session.started.wait(), 60)
    gated = github.queue_run(world.web, [JobSpec(labels=LABELS, environment="production")])
    cancelled = github.queue_run(world.web, [LINUX])
    github.cancel(cancelled)
    repeated = github.queue_run(world.web, [LINUX])
    github.cancel(repeated)
    (again,) = github.rerun(repeated)
    many = [github.queue_run(world.web, [LINUX]) for _ in range(110)]
    found = {job.job_id: job.state for job in await client.queued_jobs("acme/web")}
    waiting = [job for job in started.jobs if job.status == "queued"]
    assert len(waiting) == 1
    assert found == {
        waiting[0].id: GitHubJobState.QUEUED,
        gated.jobs[0].id: GitHubJobState.HELD_BACK,
        again.id: GitHubJobState.QUEUED,
        **{run.jobs[0].id: GitHubJobState.QUEUED for run in many},
    }


async def read(client: GitHubClient, since: float) -> list[HookDelivery]:
    return [delivery async for delivery in client.deliveries(round(since * 1000))]


async def test_deliveries_of_the_app_can_be_repeated(world: World) -> None:
    github, client = world.github, world.app()
    github.set_app_hook("https://yard.example.com/webhooks/github", "secret")
    github.faults = Faults(webhook_failed=1.0)
    lost = github.queue_run(world.web, [LINUX])
    await github.drain()
    github.faults = Faults()
    for _ in range(149):
        github.queue_run(world.web, [LINUX])
    await github.drain()
    found = [each for each in await read(client, time.time() - 60) if each.event == "workflow_job"]
    assert len(found) == len({each.id for each in found}) == 150
    assert [each.id for each in found] == sorted((each.id for each in found), reverse=True)
    (failed,) = [each for each in found if not each.succeeded]
    assert (failed.action, failed.org, failed.hook_id) == ("queued", None, None)

    await client.redeliver(failed)
    await github.drain()
    attempts = [each for each in await read(client, 0) if each.guid == failed.guid]
    assert [each.succeeded for each in attempts] == [True, False]
    assert await read(client, time.time() + 60) == []
    assert lost.jobs[0].status == "queued"


async def test_deliveries_of_organization_hooks(world: World) -> None:
    github = world.github
    beta = github.create_organization("beta")
    hooks = {
        owner.login: github.create_organization_hook(owner, "https://yard.example.com/", "secret").id
        for owner in (world.acme, beta)
    }
    github.queue_run(world.web, [LINUX])
    github.queue_run(github.create_repository(beta, "api"), [LINUX])
    await github.drain()
    client = world.with_token(org_hooks=hooks)
    found = [each for each in await read(client, 0) if each.event == "workflow_job"]
    assert [(each.org, each.hook_id) for each in found] == list(hooks.items())
    await client.redeliver(found[1])
    await github.drain()
    assert len([each for each in await read(client, 0) if each.guid == found[1].guid]) == 2

    partly = world.with_token(org_hooks={"acme": 99999, "beta": hooks["beta"]})
    seen = []
    with pytest.raises(GitHubRejected):
        async for delivery in partly.deliveries(0):
            seen.append(delivery)  # noqa: PERF401
    assert {each.org for each in seen} == {"beta"}
    assert await read(world.with_token(), 0) == []


@both
async def test_repositories(world: World, kind: str) -> None:
    for number in range(120):
        world.github.create_repository(world.acme, f"repo-{number}")
    found = await world.client(kind).repositories("acme")
    assert set(found) == {"acme/web", *(f"acme/repo-{number}" for number in range(120))}


@both
async def test_an_access_without_problems(world: World, kind: str) -> None:
    client = world.client(kind)
    assert await client.check() == []
    assert await client.check_org("acme") == []


async def test_what_the_app_lacks(world: World) -> None:
    beta = world.github.create_organization("beta")
    world.github.create_organization("gamma")
    world.github.install_app(beta, {"organization_self_hosted_runners": "read", "metadata": "read"})
    client = world.app()
    found = await client.check_org("beta")
    assert len(found) == 2
    assert '"Self-hosted runners: write"' in found[0]
    assert '"Actions: read"' in found[1]
    assert "not installed" in (await client.check_org("gamma"))[0]
    wrong = GitHubClient(GitHubAccess(url=world.url, app_id=1, private_key=app_key().private_pem()))
    (problem,) = await wrong.check()
    assert problem.startswith("Cannot authenticate as GitHub App 1: ")
    await wrong.stop()


async def test_what_the_token_lacks(world: World) -> None:
    assert "admin rights" in (await world.with_token(scopes=("repo",)).check_org("acme"))[0]
    wrong = GitHubClient(GitHubAccess(url=world.url, token="ghp_wrong"))
    assert (await wrong.check())[0].startswith("Cannot use github_token: ")
    await wrong.stop()


async def test_a_server_before_just_in_time_runners(world: World) -> None:
    world.github.core.version = "3.9.7"
    assert (await world.app().check())[0].startswith("Cannot use GitHub Enterprise Server 3.9.7: ")


async def test_tokens_expire_and_the_app_is_installed_again(closing: AsyncExitStack) -> None:
    world = await opened(closing, Timings(token_lifetime=2.0))
    client = world.app()
    end = time.monotonic() + 3
    while time.monotonic() < end:
        assert await client.runners(ACME) == []
    world.github.accounts.uninstall_app(world.installation)
    # That nothing can be seen does not mean that nothing is there.
    for call in (
        client.runners(ACME),
        client.runner(ACME, 1),
        client.remove_runner(ACME, 1),
        client.job("acme/web", 1),
    ):
        with pytest.raises(GitHubRejected, match="not installed"):
            await call
    world.github.install_app(world.acme)
    assert await client.runners(ACME) == []


async def test_a_rate_limit_is_not_exceeded(closing: AsyncExitStack) -> None:
    world = await opened(closing, rate_limit=5)
    client = world.with_token()
    for _ in range(5):
        await client.runners(ACME)
    with pytest.raises(GitHubRateLimited) as raised:
        await client.runners(ACME)
    assert 3500 < raised.value.retry_after_seconds <= 3600
    (token,) = world.github.accounts.tokens.values()
    assert token.calls == 5


async def test_registrations_while_everything_fails_now_and_then(world: World) -> None:
    """Every runner that exists was returned, or its registration said that it may exist."""
    client = world.app()
    await client.runners(ACME)
    world.github.faults = Faults(
        lost_before=0.1, lost_after=0.1, server_error=0.1, server_error_after=0.1, unauthorized=0.1
    )
    names = [f"runner-{number}" for number in range(150)]

    async def register(name: str) -> JitConfig | GitHubError:
        try:
            return await client.generate_jitconfig(ACME, name, 1, LABELS)
        except GitHubError as error:
            return error

    results = dict(zip(names, await asyncio.gather(*map(register, names)), strict=True))
    world.github.faults = Faults()
    existing = {runner.name: runner.id for runner in await client.runners(ACME)}
    returned = {name: found.runner_id for name, found in results.items() if isinstance(found, JitConfig)}
    assert returned.items() <= existing.items()
    unsure = {name for name, found in results.items() if isinstance(found, GitHubUnavailable)}
    assert existing.keys() - returned.keys() <= unsure
    assert existing.keys() - returned.keys(), "no response was lost: the test shows nothing"
    assert all(isinstance(found, JitConfig | GitHubUnavailable | GitHubRejected) for found in results.values())


@pytest.mark.parametrize("fault", ["primary_limit", "secondary_limit", "secondary_without_retry_after"])
async def test_pretended_limits(world: World, fault: str) -> None:
    client = world.app()
    await client.runners(ACME)
    world.github.faults = Faults(**{fault: 1.0}, limit_seconds=40.0)
    began = time.monotonic()
    with pytest.raises(GitHubRateLimited) as raised:
        await client.runners(ACME)
    expected = 60 if fault == "secondary_without_retry_after" else 40
    passed = time.monotonic() - began
    assert expected - passed - 2 <= raised.value.retry_after_seconds <= expected + 2
    world.github.faults = Faults()
    with pytest.raises(GitHubRateLimited):
        await client.runners(ACME)


async def test_a_server_that_hangs(world: World) -> None:
    token = world.github.create_personal_token(SCOPES).value
    client = GitHubClient(GitHubAccess(url=world.url, token=token), timeout=0.3)
    world.github.faults = Faults(hanging=1.0)
    with pytest.raises(GitHubUnavailable) as caught:
        await client.runners(ACME)
    assert "taken effect" not in str(caught.value)  # it only reads
    await client.stop()
