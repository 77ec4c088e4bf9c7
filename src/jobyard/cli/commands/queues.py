"""`jobyard queues`: list, set, pause, resume, drain and delete queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
from msgspec import structs
from rich.markup import escape

from jobyard.api.convert import finished_per_minute
from jobyard.cli.command_group import CommandGroup
from jobyard.cli.commands.job_actions import change_matching, yes_option
from jobyard.cli.render.output import number, usage
from jobyard.cli.session import Session, async_command, json_option
from jobyard.domain.job import QueueSettings, State
from jobyard.errors import BadOption
from jobyard.operations.protocol import Operations
from jobyard.ports.admin_store import Action, Filter, QueueInfo
from jobyard.ports.schedule_store import WorkerInfo

NO_LIMIT = "none"
SETTINGS = {
    "max_running": "The maximum number of jobs that run at a time.",
    "max_per_group": "The maximum number of jobs of a group that run at a time; a group may have its own limit.",
    "max_waiting": "The maximum number of waiting jobs; more are rejected.",
    "max_waiting_per_group": "The maximum number of waiting jobs of a group; more are rejected.",
    "keep_completed": "The number of completed jobs that are kept.",
    "keep_failed": "The number of failed jobs that are kept.",
    "keep_completed_seconds": "Completed jobs that are younger than this are kept beyond that number.",
    "keep_failed_seconds": "Failed jobs that are younger than this are kept beyond that number.",
    "keep_at_most": "The number of finished jobs beyond which the oldest are removed early, completed ones first.",
}
HEADINGS = ("~queue", ">waiting", ">delayed", "running", ">per minute", ">completed", ">failed", "")


def queue_row(queue: QueueInfo, workers: Sequence[WorkerInfo]) -> tuple[str, ...]:
    failed = f"[red]{number(queue.failed)}[/]" if queue.failed else "0"
    return (
        escape(queue.name),
        number(queue.waiting),
        number(queue.delayed),
        usage(queue.running, queue.settings.max_running),
        number(finished_per_minute(queue.name, workers)),
        number(queue.completed),
        failed,
        ", ".join(_notes(queue)),
    )


def _notes(queue: QueueInfo) -> Iterator[str]:
    if queue.paused:
        yield "[yellow]paused[/]"
    if queue.settings_origin == "operator":
        yield "limits changed"


@async_command
async def _list(session: Session) -> None:
    async with session.operations() as operations:
        found, workers = await operations.queues(), await operations.workers()
    rates = [{"finished_per_minute": finished_per_minute(queue.name, workers)} for queue in found]
    document = {"queues": [structs.asdict(queue) | rate for queue, rate in zip(found, rates, strict=True)]}
    rows = (queue_row(queue, workers) for queue in found)
    session.print_table(document, HEADINGS, rows, "No queues yet: nothing was enqueued.")


@click.group(cls=CommandGroup, invoke_without_command=True)
@json_option
@click.pass_context
def queues(context: click.Context) -> None:
    """List the queues; change, pause, resume, drain or delete one.

    Per minute: jobs that ended in the last minute, as reported by the live workers. Completed and failed count only the
    jobs that retention keeps (the keep_ settings).

    \b
    Example:
      jobyard queues
      jobyard queues pause mail
    """
    if context.invoked_subcommand is None:
        _list()


queues.command("list", help="List the queues with their counts.\n\n\b\nExample:\n  jobyard queues list --json")(_list)


@queues.command()
@click.argument("queue")
@async_command
async def pause(session: Session, queue: str) -> None:
    """Start no more jobs of a queue; running jobs continue.

    \b
    Example:
      jobyard queues pause mail
    """
    await set_paused(session, queue, None, paused=True)


@queues.command()
@click.argument("queue")
@async_command
async def resume(session: Session, queue: str) -> None:
    """Start jobs of a paused queue again.

    \b
    Example:
      jobyard queues resume mail
    """
    await set_paused(session, queue, None, paused=False)


class Limit(click.ParamType[int | str]):
    """A number, or `none` for no limit."""

    name = "limit"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value.lower() in (NO_LIMIT, "unlimited"):
            return NO_LIMIT
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {NO_LIMIT}.", param, ctx)


async def require_queue(operations: Operations, queue: str) -> None:
    try:
        await operations.queue(queue)
    except BadOption as error:
        raise BadOption(f"{error} To create it, pass --create.", option=error.option) from error


def setting_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """One flag for each setting of a queue."""
    for name, value in reversed(structs.asdict(QueueSettings()).items()):
        kind, metavar = (Limit(), f"N|{NO_LIMIT}") if value is None else (type(value), "N")
        flag = f"--{name.replace('_', '-')}"
        function = click.option(flag, name, type=kind, metavar=metavar, help=SETTINGS[name])(function)
    return function


@queues.command("set")
@click.argument("queue")
@setting_options
@click.option("--create", is_flag=True, help="Create the queue if nothing was enqueued there yet.")
@async_command
async def set_settings(session: Session, /, queue: str, create: bool, **options: Any) -> None:
    """Change the settings of a queue.

    The change takes effect at once, does not stop running jobs, and wins over what the code and the configuration
    declare, until `jobyard limits reset`.

    \b
    Example:
      jobyard queues set mail --max-running 10
      jobyard queues set mail --max-waiting none --keep-failed 1000
    """
    changes = {word: None if value == NO_LIMIT else value for word, value in options.items() if value is not None}
    if not changes:
        raise click.UsageError("Pass at least one setting, such as --max-running 10.")
    async with session.operations(creates_store=create) as operations:
        if not create:
            await require_queue(operations, queue)
        await operations.configure(queue, changes)
        settings = structs.asdict((await operations.queue(queue)).settings)
    changed = ", ".join(f"{word} {NO_LIMIT if settings[word] is None else f'{settings[word]:g}'}" for word in changes)
    session.report({"queue": queue, "settings": settings}, f"Queue {queue} has {changed}.")


@queues.command()
@click.argument("queue")
@yes_option
@async_command
async def drain(session: Session, queue: str, yes: bool) -> None:
    """Delete all waiting jobs of a queue.

    Also delayed jobs. Running jobs continue.

    \b
    Example:
      jobyard queues drain mail
    """
    async with session.operations() as operations:
        await operations.queue(queue)
        await change_matching(session, operations, Action.DELETE, Filter(queue=queue, states=(State.PENDING,)), yes=yes)


@queues.command()
@click.argument("queue")
@async_command
async def delete(session: Session, queue: str) -> None:
    """Delete a queue that has no jobs.

    Its settings, limits and pauses go with it. A queue with jobs, finished ones included, is not deleted; a queue that
    the code or the configuration declares comes back when a process starts.

    \b
    Example:
      jobyard queues delete mail
    """
    async with session.operations() as operations:
        await operations.queue(queue)
        await operations.remove_queue(queue)
    session.report({"queue": queue, "deleted": True}, f"Queue {queue} is deleted.")


async def set_paused(session: Session, queue: str, group: str | None, *, paused: bool) -> None:
    async with session.operations() as operations:
        await operations.queue(queue)
        await operations.pause(queue, group, paused=paused)
    what = f"Queue {queue}" if group is None else f"Group {group} of queue {queue}"
    document = {"queue": queue, "group": group, "paused": paused}
    session.report(document, f"{what} is {'paused' if paused else 'resumed'}.")
