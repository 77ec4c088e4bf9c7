"""`jobyard limits`: how many jobs of a group may run at the same time."""

from __future__ import annotations

import click

from jobyard.cli.render.output import name, print_table, usage
from jobyard.cli.session import Session, async_command


@click.group()
def limits() -> None:
    """Set, show and remove the limits of groups.

    A group without its own limit uses the max_per_group of its queue. A limit of 0 blocks the group, 1 makes it serial.
    A change takes effect with the next claim and does not stop running jobs.

    \b
    Example:
      jobyard limits set test-execution team-a 25
      jobyard limits show test-execution
    """


@limits.command("set")
@click.argument("queue")
@click.argument("group")
@click.argument("limit", type=int, metavar="N")
@async_command
async def set_limit(session: Session, queue: str, group: str, limit: int) -> None:
    """Set the limit of a group.

    \b
    Example:
      jobyard limits set test-execution team-a 25
    """
    async with session.operations() as operations:
        await operations.queue(queue)
        await operations.set_limit(queue, group, limit)
    effect = " (blocked)" if limit == 0 else " (serial)" if limit == 1 else ""
    text = f"Group {group} of queue {queue} runs at most {limit} jobs at a time{effect}."
    session.report({"queue": queue, "group": group, "limit": limit}, text)


@limits.command()
@click.argument("queue")
@click.argument("group", required=False)
@async_command
async def show(session: Session, queue: str, group: str | None) -> None:
    """Show the limits of a queue, or of one group.

    For a queue: its own limits, and the groups that have their own limit.

    \b
    Example:
      jobyard limits show test-execution
    """
    async with session.operations() as operations:
        settings = (await operations.queue(queue)).settings
        found = [each async for each in operations.groups(queue)]
    chosen = [each for each in found if (each.name == group if group else each.limit is not None)]
    if session.as_json:
        groups = [
            {"group": each.name, "limit": each.limit, "effective_limit": each.effective_limit, "running": each.running}
            for each in chosen
        ]
        own = {"max_running": settings.max_running, "max_per_group": settings.max_per_group}
        session.print_json({"queue": queue, **own, "groups": groups})
        return
    running, per_group = _limit(settings.max_running), _limit(settings.max_per_group)
    session.echo(f"Queue {queue}: at most {running} running, {per_group} per group.")
    rows = (
        (name(each.name), "-" if each.limit is None else str(each.limit), usage(each.running, each.effective_limit))
        for each in chosen
    )
    empty = f"Group {group} has no jobs and no limit." if group else "No group has its own limit."
    print_table(session.console, ("~group", ">own limit", "running"), rows, empty)


@limits.command()
@click.argument("queue")
@click.argument("group")
@async_command
async def remove(session: Session, queue: str, group: str) -> None:
    """Remove the limit of a group.

    The max_per_group of its queue applies again.

    \b
    Example:
      jobyard limits remove test-execution team-a
    """
    async with session.operations() as operations:
        settings = (await operations.queue(queue)).settings
        await operations.remove_limit(queue, group)
    session.report(
        {"queue": queue, "group": group, "limit": None, "effective_limit": settings.max_per_group},
        f"Group {group} of queue {queue} uses the limit of its queue: {_limit(settings.max_per_group)}.",
    )


def _limit(value: int | None) -> str:
    return "unlimited" if value is None else str(value)
