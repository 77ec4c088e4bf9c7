"""The demo application, kept busy by a schedule of its own, so that the first look at the dashboard is alive."""

from __future__ import annotations

import random

from examples.demo_app import learn, remove_old_reports, run_suite, yard

__all__ = ["yard"]

# Team a submits more than the others, which still get their share.
TEAMS = {"team-a": 14, "team-b": 7, "team-c": 3, "team-d": 2}
SECONDS = 10
# Enough to see the limits at work, without a growing backlog.
MAX_WAITING = 40

yard.queue("feed", max_running=1, keep_completed=20)


@yard.cron(f"*/{SECONDS} * * * * *", timeout=30)
@yard.job(queue="feed", max_attempts=1)
async def feed() -> None:
    """Submit the jobs of the next seconds."""
    waiting = {group.name: group.waiting + group.delayed async for group in yard.groups("test-execution")}
    for team, number in TEAMS.items():
        for _ in range(min(number, MAX_WAITING - waiting.get(team, 0))):
            suite = f"suite-{random.randrange(1000)}"
            options = run_suite.options(group=team, delay=random.uniform(0, SECONDS), tags=[team])
            await options.enqueue(suite, tests=random.randint(5, 15))
    await remove_old_reports.options(delay=random.uniform(0, SECONDS)).enqueue(days=30)
    await learn.options(unique="learn").enqueue("ranking")
