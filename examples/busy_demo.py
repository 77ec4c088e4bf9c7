"""The demo application, kept busy by a schedule of its own, so that the first look at the dashboard is alive."""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple

from examples.demo_app import learn, remove_old_reports, run_suite, yard

from jobyard import WorkflowContext

__all__ = ["yard"]

SECONDS = 10


class Team(NamedTuple):
    waiting: int
    max_tests: int = 15


# Each team always has suites waiting, so that the line of groups stands. The suites of team a are long: it is often at
# its limit and is passed over, and a team with few suites waits no longer than one with many.
TEAMS = {
    "team-a": Team(40, max_tests=90),
    "team-b": Team(24),
    "team-c": Team(16),
    "team-d": Team(11),
    "team-e": Team(18, max_tests=30),
    "team-f": Team(8),
    "team-g": Team(6),
}
OWN_LIMITS = {"team-e": 1}

yard.queue("feed", max_running=1, keep_completed=20)
yard.queue("releases", max_running=4, keep_completed=20)


@yard.cron(f"*/{SECONDS} * * * * *", timeout=30)
@yard.job(queue="feed", max_attempts=1)
async def feed() -> None:
    """Submit the jobs of the next seconds."""
    waiting = {group.name: group.waiting + group.delayed async for group in yard.groups("test-execution")}
    for name, limit in OWN_LIMITS.items():
        # Only at the first run: a limit that a user changed or removed later stays as it is.
        if name not in waiting:
            await yard.set_limit("test-execution", name, limit)
    # The first suites are due at once, later ones spread over the time until the next call.
    seconds = SECONDS if waiting else 0
    for name, team in TEAMS.items():
        for _ in range(team.waiting - waiting.get(name, 0)):
            suite = f"suite-{random.randrange(1000)}"
            options = run_suite.options(group=name, delay=random.uniform(0, seconds), tags=[name])
            await options.enqueue(suite, tests=random.randint(team.max_tests // 3, team.max_tests))
    await remove_old_reports.options(delay=random.uniform(0, SECONDS)).enqueue(days=30)
    await learn.options(unique="learn").enqueue("ranking")


async def build(version: str) -> str:
    await asyncio.sleep(random.uniform(2, 5))
    return f"shop-{version}.tar.gz"


async def publish(package: str) -> str:
    await asyncio.sleep(random.uniform(1, 3))
    return f"https://shop.example/{package}"


@yard.cron("*/20 * * * * *", timeout=120, overlap="allow")
@yard.workflow(queue="releases", max_attempts=2)
async def release(ctx: WorkflowContext) -> str:
    """Build a release, test it under the limits of the other suites, watch it for a while and publish it."""
    version = f"1.{ctx.random().randrange(100)}.{ctx.random().randrange(10)}"
    await ctx.progress(5, f"building {version}")
    package = await ctx.step(build, version)
    await ctx.progress(30, f"testing {package}")
    suites = [f"{part} of {version}" for part in ("checkout", "search", "login")]
    await ctx.map(run_suite.options(group="releases", tags=["release"]).call, suites, on_error="collect")
    await ctx.progress(70, f"watching {version} on one server")
    await ctx.sleep(seconds=15)
    await ctx.progress(90, f"publishing {package}")
    address = await ctx.step(publish, package)
    await ctx.progress(100, f"published {version}")
    return address
