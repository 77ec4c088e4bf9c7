"""`jobyard limits`: how many jobs of a queue or a group may run at the same time."""

from __future__ import annotations

import re

import click
from msgspec import structs

from jobyard.cli.command_group import CommandGroup
from jobyard.cli.render.output import name, print_table, usage
from jobyard.cli.runner_access import known_organizations, spelled
from jobyard.cli.session import Session, async_command
from jobyard.domain.job import QueueSettings
from jobyard.domain.text import counted
from jobyard.operations.organizations import RUNNERS_QUEUE


class NegativeNumberCommand(click.Command):
    """A command whose last argument is a number: -1 is a wrong number there, not an unknown option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        negative = [word for word in args if re.fullmatch(r"-\d+", word)]
        if negative and "--" not in args:
            args = [*(word for word in args if word not in negative), "--", *negative]
        return super().parse_args(ctx, args)


@click.group(cls=CommandGroup)
def limits() -> None:
    """Show and change the limits of groups and queues.

    A group without its own limit uses the max_per_group of its queue. A limit of 0 blocks the group, 1 makes it serial.
    A change takes effect with the next claim and does not stop running jobs.

    \b
    Example:
      jobyard limits set test-execution team-a 25
      jobyard limits show test-execution
    """


@limits.command("set", cls=NegativeNumberCommand)
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
    note = ""
    if queue == RUNNERS_QUEUE:
        group, note = spelled(group, await known_organizations(session))
    async with session.operations() as operations:
        await operations.queue(queue)
        await operations.set_limit(queue, group, limit)
    effect = " (blocked)" if limit == 0 else " (serial)" if limit == 1 else ""
    text = f"Group {group} of queue {queue} runs at most {counted(limit, 'job')} at a time{effect}."
    session.report({"queue": queue, "group": group, "limit": limit}, f"{text} {note}".rstrip())


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
        info = await operations.queue(queue)
        found = [each async for each in operations.groups(queue)]
    settings, declared = info.settings, info.declared_settings
    chosen = [each for each in found if (each.name == group if group else each.limit is not None)]
    if session.as_json:
        groups = [
            {"group": each.name, "limit": each.limit, "effective_limit": each.effective_limit, "running": each.running}
            for each in chosen
        ]
        own = {"max_running": settings.max_running, "max_per_group": settings.max_per_group}
        session.print_json({"queue": queue, **own, "settings_origin": info.settings_origin, "groups": groups})
        return
    session.echo(f"Queue {queue}: {_both(info.settings)}.")
    if info.settings_origin == "operator":
        session.echo(f"Changed by an operator: {_changes(settings, declared)}. Undo: jobyard limits reset {queue}")
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


@limits.command()
@click.argument("queue")
@async_command
async def reset(session: Session, queue: str) -> None:
    """Undo the changes to the settings of a queue.

    What the code or the configuration declares for the queue applies again, or the defaults. The limits of its groups
    stay.

    \b
    Example:
      jobyard limits reset test-execution
    """
    async with session.operations() as operations:
        await operations.queue(queue)
        await operations.reset_settings(queue)
        info = await operations.queue(queue)
    settings = structs.asdict(info.settings)
    text = f"Queue {queue} has its {info.settings_origin} settings: {_both(info.settings)}."
    session.report({"queue": queue, "settings": settings, "settings_origin": info.settings_origin}, text)


def _both(settings: QueueSettings) -> str:
    """
    >>> _both(QueueSettings(max_running=2))
    'max 2 running; no per-group limit'
    """
    total = "no limit on running jobs" if settings.max_running is None else f"max {settings.max_running} running"
    own = settings.max_per_group
    return f"{total}; {'no per-group limit' if own is None else f'max {own} per group'}"


def _changes(settings: QueueSettings, declared: QueueSettings | None) -> str:
    """
    >>> _changes(QueueSettings(max_running=5), QueueSettings(max_running=8))
    'max_running 5 (declared: 8)'
    """
    before, word = (declared, "declared") if declared is not None else (QueueSettings(), "default")
    pairs = ((field, getattr(settings, field), getattr(before, field)) for field in QueueSettings.__struct_fields__)
    return ", ".join(f"{field} {_limit(new)} ({word}: {_limit(old)})" for field, new, old in pairs if new != old)


def _limit(value: float | None) -> str:
    return "unlimited" if value is None else f"{value:g}"
