"""`jobyard limits`: how many jobs of a group may run at once, changed while everything runs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import click
from rich.markup import escape

from jobyard.app.jobyard import Jobyard
from jobyard.cli.render.output import print_table, usage
from jobyard.cli.session import Session, verb
from jobyard.ports.admin_store import GroupInfo

PAGE = 1000


@click.group()
def limits() -> None:
    """Set, show and remove the limits of groups.

    A group without a limit of its own has its queue's max_per_group. A limit of 0 blocks the group, 1 makes it serial.
    A change takes effect with the next claim and never stops what already runs.

    \b
    Example:
      jobyard limits set test-execution team-a 25
      jobyard limits show test-execution
    """


@limits.command("set")
@click.argument("queue")
@click.argument("group")
@click.argument("limit", type=int, metavar="N")
@verb
async def set_limit(session: Session, queue: str, group: str, limit: int) -> None:
    """Give a group its own limit.

    \b
    Example:
      jobyard limits set test-execution team-a 25
    """
    async with session.operator() as yard:
        await yard.operate.known_queue(queue)
        await yard.set_limit(queue, group, limit)
    if session.as_json:
        session.print_json({"queue": queue, "group": group, "limit": limit})
    effect = " (blocked)" if limit == 0 else " (one after the other)" if limit == 1 else ""
    session.say(f"Group {group} of queue {queue} runs at most {limit} at a time{effect}.")


@limits.command()
@click.argument("queue")
@click.argument("group", required=False)
@verb
async def show(session: Session, queue: str, group: str | None) -> None:
    """Show the limits of a queue, or of one group.

    Of a queue: its own, and the groups that have one of their own.

    \b
    Example:
      jobyard limits show test-execution
    """
    async with session.operator() as yard:
        settings = (await yard.operate.known_queue(queue)).settings
        found = [each async for each in _all_groups(yard, queue)]
    chosen = [each for each in found if (each.name == group if group else each.limit is not None)]
    if session.as_json:
        session.print_json(
            {
                "queue": queue,
                "max_running": settings.max_running,
                "max_per_group": settings.max_per_group,
                "groups": [
                    {
                        "group": each.name,
                        "limit": each.limit,
                        "effective_limit": each.effective_limit,
                        "running": each.running,
                    }
                    for each in chosen
                ],
            }
        )
        return
    session.say(
        f"Queue {queue}: at most {_limit(settings.max_running)} running, {_limit(settings.max_per_group)} per group."
    )
    rows = (
        (
            escape(each.name or "-"),
            "-" if each.limit is None else str(each.limit),
            usage(each.running, each.effective_limit),
        )
        for each in chosen
    )
    nobody = f"Group {group} has no jobs and no limit of its own." if group else "No group has a limit of its own."
    print_table(session.console, ("~group", ">own limit", "running"), rows, nobody)


@limits.command()
@click.argument("queue")
@click.argument("group")
@verb
async def remove(session: Session, queue: str, group: str) -> None:
    """Take a group's own limit away.

    Its queue's max_per_group holds again.

    \b
    Example:
      jobyard limits remove test-execution team-a
    """
    async with session.operator() as yard:
        settings = (await yard.operate.known_queue(queue)).settings
        await yard.remove_limit(queue, group)
    if session.as_json:
        session.print_json({"queue": queue, "group": group, "limit": None, "effective_limit": settings.max_per_group})
    session.say(f"Group {group} of queue {queue} has the queue's limit again: {_limit(settings.max_per_group)}.")


async def _all_groups(yard: Jobyard, queue: str) -> AsyncIterator[GroupInfo]:
    after: str | None = None
    while True:
        page = await yard.store.groups(queue, PAGE, after)
        for group in page:
            yield group
        if len(page) < PAGE:
            return
        after = page[-1].name


def _limit(value: int | None) -> str:
    return "any number" if value is None else str(value)
