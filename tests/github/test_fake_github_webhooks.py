"""The fake of GitHub Enterprise Server signs, sends, loses and resends webhooks."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import random
import urllib.parse
from collections.abc import Mapping

from tests.github.fake_world import LINUX, World, virtual
from tests.github.virtual_time import run_virtually, wall_clock

from jobyard.demo.fake_github import FakeGitHub, Faults, Hook, Repository


@virtual
async def test_every_hook_gets_a_signed_event_with_its_own_guid() -> None:
    world = World()
    world.github.create_organization_hook(world.acme, "https://yard.example.com/org", "org secret")
    world.github.create_repository_hook(world.web, "https://yard.example.com/repo", "repo secret")
    await world.github.drain()
    pings = [(hook.scope, headers["X-GitHub-Event"]) for hook, headers, _ in world.receiver.received]
    assert pings == [("app", "ping"), ("organization", "ping"), ("repository", "ping")]
    world.receiver.received.clear()
    world.github.queue_run(world.web, [LINUX])
    await world.github.drain()
    assert len({headers["X-GitHub-Delivery"] for _, headers, _ in world.receiver.received}) == 3
    for hook, headers, body in world.receiver.received:
        digest = hmac.new(hook.secret.encode(), body, hashlib.sha256).hexdigest()
        assert headers["X-Hub-Signature-256"] == f"sha256={digest}"
        assert headers["X-GitHub-Enterprise-Host"] == "github.example.com"
        assert headers["X-GitHub-Enterprise-Version"] == "3.19.1"
        assert ("installation" in json.loads(body)) == (hook.scope == "app")


@virtual
async def test_the_organization_may_be_missing() -> None:
    world = World()
    world.github.queue_run(world.web, [LINUX])
    world.github.faults = Faults(organization_omitted=1.0)
    world.github.queue_run(world.web, [LINUX])
    world.github.faults = Faults()
    person = world.github.create_user("octocat")
    own = world.github.create_repository(person, "dotfiles")
    world.github.create_repository_hook(own, "https://yard.example.com/repo", "secret")
    world.github.queue_run(own, [LINUX])
    await world.github.drain()
    assert [event.get("organization", {}).get("login") for event in world.receiver.events()] == ["acme", None, None]
    assert [event["repository"]["owner"]["type"] for event in world.receiver.events()][1:] == ["Organization", "User"]


@virtual
async def test_form_encoded_hooks_sign_the_raw_body() -> None:
    world = World()
    world.github.set_app_hook("https://yard.example.com/webhook", "secret", content_type="form")
    world.github.queue_run(world.web, [LINUX])
    await world.github.drain()
    _, headers, body = world.receiver.received[-1]
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert json.loads(urllib.parse.parse_qs(body.decode())["payload"][0])["action"] == "queued"
    assert headers["X-Hub-Signature-256"] == "sha256=" + hmac.new(b"secret", body, hashlib.sha256).hexdigest()


@virtual
async def test_a_redelivery_keeps_the_guid() -> None:
    world = World()
    await world.github.drain()
    world.receiver.statuses = [503]
    world.github.queue_run(world.web, [LINUX])
    await world.github.drain()
    failed = world.github.webhooks.of_hook(world.hook)[0]
    assert (failed.status_code, failed.status, failed.redelivery) == (503, "Invalid HTTP Response: 503", False)
    world.github.webhooks.redeliver(failed)
    await world.github.drain()
    again = world.github.webhooks.of_hook(world.hook)[0]
    assert (again.guid, again.status_code, again.redelivery) == (failed.guid, 200, True)
    assert again.id > failed.id
    assert world.receiver.received[-1][1]["X-GitHub-Delivery"] == failed.guid


@virtual
async def test_a_receiver_that_hangs_times_out_after_thirty_seconds() -> None:
    world = World()
    world.receiver.hangs = True
    world.github.queue_run(world.web, [LINUX])
    await world.github.drain()
    newest = world.github.webhooks.of_hook(world.hook)[0]
    assert (newest.status_code, newest.status, newest.duration) == (504, "timed out", 30.0)


@virtual
async def test_deliveries_are_kept_for_seven_days() -> None:
    world = World()
    await world.github.drain()
    assert len(world.github.webhooks.of_hook(world.hook)) == 1
    await asyncio.sleep(7 * 86400 + 1)
    assert world.github.webhooks.of_hook(world.hook) == []


def guids(world: World) -> list[str]:
    return [headers["X-GitHub-Delivery"] for _, headers, _ in world.receiver.received[1:]]


@virtual
async def test_webhook_faults() -> None:
    world = World()
    await world.github.drain()
    world.github.faults = Faults(webhook_dropped=1.0)
    world.github.queue_run(world.web, [LINUX])
    await world.github.drain()
    assert (guids(world), len(world.github.webhooks.log)) == ([], 1)
    world.github.faults = Faults(webhook_failed=1.0)
    world.github.queue_run(world.web, [LINUX])
    await world.github.drain()
    assert (guids(world), world.github.webhooks.log[-1].status_code) == ([], 502)
    world.github.faults = Faults(webhook_duplicated=1.0)
    world.github.queue_run(world.web, [LINUX])
    await world.github.drain()
    assert len(guids(world)) == 2
    assert len(set(guids(world))) == 1


@virtual
async def test_delayed_and_reordered_webhooks_arrive_later() -> None:
    world = World()
    await world.github.drain()
    world.github.faults = Faults(webhook_reordered=1.0, webhook_delayed=1.0)
    before = wall_clock()
    for _ in range(10):
        world.github.queue_run(world.web, [LINUX])
    await world.github.drain()
    assert wall_clock() > before
    order = [event["workflow_job"]["id"] for event in world.receiver.events()]
    assert len(order) == 10
    assert order != sorted(order)


def history(seed: int) -> list[tuple[str, str, float]]:
    """What a receiver sees of a world with faults, by seed."""
    seen: list[tuple[str, str, float]] = []

    async def story() -> None:
        faults = Faults(webhook_dropped=0.2, webhook_delayed=0.3, webhook_duplicated=0.2, long_busy=0.5)

        async def deliver(hook: Hook, headers: Mapping[str, str], body: bytes) -> int:
            seen.append((headers["X-GitHub-Delivery"], json.loads(body).get("action", ""), wall_clock()))
            return 200

        github = FakeGitHub(clock=wall_clock, rng=random.Random(seed), deliver=deliver, faults=faults)
        web: Repository = github.create_repository(github.create_organization("acme"), "web")
        github.create_repository_hook(web, "https://yard.example.com", "secret")
        github.queue_run(web, [LINUX] * 10)
        for number in range(10):
            _, encoded = github.generate_jitconfig(web.owner, name=f"r{number}", labels=["self-hosted", "linux"])
            session = github.connect(encoded)
            if number % 3 == 0:
                await session.started.wait()
                session.kill()
        await asyncio.sleep(3600)
        await github.drain()
        github.close()

    run_virtually(story)
    return seen


def test_a_seed_gives_the_same_history() -> None:
    assert history(1) == history(1)
    assert history(1) != history(2)
