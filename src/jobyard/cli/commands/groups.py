"""`jobyard groups`: list, pause and resume the groups of a queue."""

from __future__ import annotations

import click

from jobyard.cli.command_group import CommandGroup
from jobyard.cli.commands.queues import set_paused
from jobyard.cli.option_flags import limit_flag
from jobyard.cli.render.output import name, number, print_table, usage
from jobyard.cli.session import Session, async_command
from jobyard.operations.queries import take
from jobyard.ports.admin_store import GroupInfo

HEADINGS = ("~group", ">waiting", ">delayed", "running", "limit", "")


def group_row(group: GroupInfo) -> tuple[str, ...]:
    source = "own" if group.limit is not None else "queue's" if group.effective_limit is not None else "none"
    return (
        "[dim](no group)[/]" if group.name is None else name(group.name),
        number(group.waiting),
        number(group.delayed),
        usage(group.running, group.effective_limit),
        source,
        "[yellow]paused[/]" if group.paused else "[red]blocked[/]" if group.effective_limit == 0 else "",
    )


@click.group(cls=CommandGroup)
def groups() -> None:
    """List the groups of a queue; pause or resume one.

    \b
    Example:
      jobyard groups list test-execution
      jobyard groups pause test-execution team-a
    """


@groups.command("list")
@click.argument("queue")
@limit_flag(1000, 50, "groups")
@click.option("--after", metavar="NAME", help="Only groups after this name.")
@async_command
async def list_groups(session: Session, queue: str, limit: int, after: str | None) -> None:
    """List the groups with jobs, a limit or a pause, by name.

    \b
    Example:
      jobyard groups list test-execution
    """
    async with session.operations() as operations:
        await operations.queue(queue)
        found = await take(operations.groups(queue, after, limit), limit)
    if session.as_json:
        session.print_json({"groups": found})
        return
    print_table(session.console, HEADINGS, map(group_row, found), f"Queue {queue} has no groups with jobs or a limit.")
    if len(found) == limit and found[-1].name is not None:
        session.echo_error(f"More groups: pass --after {found[-1].name}")


@groups.command()
@click.argument("queue")
@click.argument("group")
@async_command
async def pause(session: Session, queue: str, group: str) -> None:
    """Start no more jobs of one group; running jobs continue.

    \b
    Example:
      jobyard groups pause test-execution team-a
    """
    await set_paused(session, queue, group, paused=True)


@groups.command()
@click.argument("queue")
@click.argument("group")
@async_command
async def resume(session: Session, queue: str, group: str) -> None:
    """Start jobs of a paused group again.

    \b
    Example:
      jobyard groups resume test-execution team-a
    """
    await set_paused(session, queue, group, paused=False)
