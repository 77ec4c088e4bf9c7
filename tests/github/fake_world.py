"""A fake GitHub with one organization, a hook and a receiver of its webhooks."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest
from tests.github.virtual_time import run_virtually, wall_clock

from jobyard.demo.fake_github import ApiError, FakeGitHub, Faults, Hook, JobSpec, Timings

Event = dict[str, Any]
LINUX = JobSpec(labels=["self-hosted", "linux"], duration=30.0)


class Receiver:
    """Keeps what it is sent; answers with the next of `statuses`, else 200."""

    def __init__(self) -> None:
        self.received: list[tuple[Hook, dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        self.hangs = False

    async def __call__(self, hook: Hook, headers: Mapping[str, str], body: bytes) -> int:
        if self.hangs:
            await asyncio.Event().wait()
        self.received.append((hook, dict(headers), body))
        return self.statuses.pop(0) if self.statuses else 200

    def events(self) -> list[Event]:
        return [json.loads(body) for _, headers, body in self.received if headers["X-GitHub-Event"] == "workflow_job"]

    def actions(self) -> list[tuple[str, str, str]]:
        """Job name, action and status of each event."""
        jobs = [(event["workflow_job"], event["action"]) for event in self.events()]
        return [(job["name"], action, job["status"]) for job, action in jobs]


class World:
    def __init__(self, faults: Faults | None = None, timings: Timings | None = None) -> None:
        self.receiver = Receiver()
        self.github = FakeGitHub(
            clock=wall_clock, rng=random.Random(7), deliver=self.receiver, faults=faults, timings=timings
        )
        self.acme = self.github.create_organization("acme")
        self.web = self.github.create_repository(self.acme, "web")
        self.github.install_app(self.acme)
        self.hook = self.github.set_app_hook("https://yard.example.com/webhook", "secret")

    def mint(self, name: str = "runner-1", labels: list[str] | None = None, group: int = 1) -> str:
        wanted = ["self-hosted", "linux"] if labels is None else labels
        return self.github.generate_jitconfig(self.acme, name=name, labels=wanted, runner_group_id=group)[1]

    def names(self) -> list[str]:
        return [runner.name for runner in self.github.runners.of_scope(self.acme, None)]


Story = Callable[[], Coroutine[Any, Any, None]]


def virtual(story: Story) -> Callable[[], None]:
    # Not `wraps`: pytest would follow it to the coroutine.
    def test() -> None:
        run_virtually(story)

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


def refusal(call: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value.status, caught.value.message
