"""`make demo`: a worker with the demo application, a feeder that enqueues jobs, and the live view."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
from pathlib import Path

from rich.console import Console

from jobyard import Jobyard
from jobyard.cli.app_loader import load_app
from jobyard.cli.commands.top import watch
from jobyard.config.settings import DEMO_SECONDS
from jobyard.errors import JobyardError
from jobyard.operations.local import LocalOperations

ROOT = Path(__file__).resolve().parent.parent
APP = "examples.demo_app:yard"
ELSEWHERE = "In another terminal, here: export JOBYARD_STORE=sqlite:///run/demo.db"
TRY_NEXT = (
    ".venv/bin/jobyard limits set test-execution team-a 1   # team a, one by one",
    ".venv/bin/jobyard jobs list --state PENDING --limit 5  # ids of waiting jobs",
    ".venv/bin/jobyard explain ID                           # why it is waiting",
)
TEAMS = ("team-a", "team-a", "team-a", "team-b", "team-b", "team-c")
# The feeder keeps at most this many suites of each team waiting: enough to see limits at work, without a growing
# backlog. Counted by team: a slow team would otherwise use up the whole allowance.
KEEP_WAITING = 5
INTERRUPTED = 130  # the exit code of a program that Ctrl-C stopped


async def feed(yard: Jobyard) -> None:
    """Enqueue more jobs for team a than for the others, which still get their share."""
    number = 0
    while True:
        number += 1
        await feed_once(yard, number)
        await asyncio.sleep(0.15)


async def feed_once(yard: Jobyard, number: int) -> None:
    team = random.choice(TEAMS)
    of_teams = {group.name: group.waiting + group.delayed async for group in yard.groups("test-execution")}
    if of_teams.get(team, 0) < KEEP_WAITING:
        suite = {"suite": f"suite-{number}", "tests": random.randint(5, 15)}
        await yard.enqueue("run_suite", suite, group=team, priority=random.choice((0, 0, 0, 5)), tags=[team])
    waiting = {queue.name: queue.waiting for queue in await yard.queues()}
    if number % 10 == 0 and waiting["cleanup"] < 3:
        await yard.enqueue("remove_old_reports", {"days": 30}, delay=random.uniform(0, 5))
    if waiting["adaptation-learning"] < 1:
        await yard.enqueue("learn", {"model": "ranking"}, unique="learn")


async def forget_limits(yard: Jobyard) -> None:
    """Remove limits that an earlier run has set: they are durable, and this run would look stuck."""
    for team in sorted(set(TEAMS)):
        await yard.remove_limit("test-execution", team)


class Interrupt:
    """The first signal stops gracefully; a second one exits as soon as the terminal is restored."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._view_is_up = True
        self._in_a_hurry = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self.ask)

    def ask(self) -> None:
        self._in_a_hurry = self._stop.is_set()
        self._stop.set()
        self._end_if_asked()

    def view_is_down(self) -> None:
        self._view_is_up = False
        self._end_if_asked()

    def _end_if_asked(self) -> None:
        """Exit without stopping the worker: its jobs are reclaimed when their leases expire, as after a crash."""
        if self._in_a_hurry and not self._view_is_up:
            os._exit(INTERRUPTED)


async def run(yard: Jobyard, console: Console) -> None:
    stop = asyncio.Event()
    interrupt = Interrupt(stop)
    seconds = os.environ.get(DEMO_SECONDS.variable)
    if seconds:
        asyncio.get_running_loop().call_later(float(seconds), stop.set)
    # A short lease makes the worker report often, so that the view is lively.
    async with yard, yard.worker(concurrency=16, lease=3, shutdown_timeout=2):
        await forget_limits(yard)
        feeder = asyncio.create_task(feed(yard))
        footer = (f"[bold]{ELSEWHERE}[/]", *TRY_NEXT)
        shown = asyncio.create_task(watch(LocalOperations(yard.store), console, stop, footer=footer))
        await asyncio.wait([feeder, shown], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        feeder.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await feeder
        await shown
        print("Stopping: running jobs get 2 seconds to finish, the rest return to the queue.", flush=True)
        interrupt.view_is_down()


def main() -> int:
    os.chdir(ROOT)
    Path("run").mkdir(exist_ok=True)
    console = Console(highlight=False)
    # Log lines would break the live view, so on a terminal they go to a file.
    logging.basicConfig(
        filename="run/demo.log" if console.is_terminal else None,
        level=logging.WARNING,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
    )
    print(ELSEWHERE, *TRY_NEXT, sep="\n", flush=True)
    try:
        asyncio.run(run(load_app(APP), console))
    except JobyardError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before the loop listened, or after it ended
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
