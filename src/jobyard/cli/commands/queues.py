"""`jobyard queues`: list, pause, resume, drain and delete queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click
from msgspec import structs
from rich.markup import escape

from jobyard.api.convert import finished_per_minute
from jobyard.cli.commands.job_actions import change_matching, yes_option
from jobyard.cli.render.output import number, usage
from jobyard.cli.session import Session, async_command, json_option
from jobyard.domain.job import State
from jobyard.ports.admin_store import Action, Filter, QueueInfo
from jobyard.ports.schedule_store import WorkerInfo

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


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def queues(context: click.Context) -> None:
    """List the queues; pause, resume, drain or delete one.

    Per minute: jobs that ended in the last minute, as reported by the live workers. Completed and failed count only the
    jobs that retention keeps (keep_completed, keep_failed).

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
