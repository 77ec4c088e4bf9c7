"""What the runner program does in a container of the fake cluster: it takes one job of the fake GitHub and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from jobyard.demo.fake_github import FakeGitHub, SessionRefused
from jobyard.demo.fake_kubernetes import ContainerEnvironment

NO_CONFIGURATION = 1


async def run_job(
    github: FakeGitHub, environment: ContainerEnvironment, fetch: Callable[[], Awaitable[str | None]]
) -> int:
    """The exit code. A warm runner has no configuration at its start: `fetch` waits for it; None: it is not wanted."""
    jit = environment.get("ACTIONS_RUNNER_INPUT_JITCONFIG") or await fetch()
    if jit is None:
        return NO_CONFIGURATION
    try:
        session = github.connect(jit)
    except SessionRefused:
        return 0  # as the real program, which hides its exit code
    try:
        await session.wait()
    except asyncio.CancelledError:
        session.kill()
        raise
    return 0
