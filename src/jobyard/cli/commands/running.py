"""`jobyard running` and `jobyard workers`: running jobs, and the workers that run them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click
from rich.markup import escape

from jobyard.cli.command_group import CommandGroup
from jobyard.cli.option_flags import limit_flag
from jobyard.cli.render.output import age, name, number, print_table, progress, usage
from jobyard.cli.session import Session, async_command, json_option
from jobyard.cli.target import generic_server_note
from jobyard.domain.instant import Instant
from jobyard.domain.job import Job, State
from jobyard.operations.queries import take
from jobyard.operations.workflow_catalog import workflow_id_of
from jobyard.ports.admin_store import Filter, QueueInfo

SHOWN = ("id", "kind", "queue", "group", "attempt", "max_attempts", "worker", "external_id")
# From this width on, a terminal also shows groups and attempts.
WIDE = 120
BAR_WIDTH = 6


@click.command()
@click.option("--queue", metavar="NAME", help="Only jobs of this queue.")
@limit_flag(10_000, 200, "jobs")
@async_command
async def running(session: Session, queue: str | None, limit: int) -> None:
    """List the running jobs, longest first, and the queued ones.

    A platform is a queue. Waiting jobs are due; parked ones wait for a signal, a child job or a time.

    To ask a server, set JOBYARD_SERVER and JOBYARD_TOKEN. If no server, store or application is named, API_URL names
    the server. No token is sent to that one.

    \b
    Example:
      jobyard running --queue test-execution
      JOBYARD_SERVER=http://jobs.example.com:3989 JOBYARD_TOKEN=… jobyard running
      API_URL=http://127.0.0.1:3989 jobyard running
    """
    if note := generic_server_note(session.server, session.found, os.environ):
        session.echo_error(note)
    async with session.operations() as operations:
        found = await take(operations.walk(Filter(queue=queue, states=(State.RUNNING,))), limit)
        queues = [info for info in await operations.queues() if queue in (None, info.name)]
        now = await operations.now()
    found.sort(key=lambda job: (job.started_at or 0, job.sequence))
    if session.as_json:
        session.print_json(running_document(found, queues, now))
        return
    is_wide = session.console.width >= WIDE or not session.is_terminal
    rows = (running_row(job, now, is_wide=is_wide) for job in found)
    more = ("~group", ">try") if is_wide else ()
    headings = ("~queue", "job", "~kind", *more, "~worker", ">for", "~progress")
    print_table(session.console, headings, rows, "No running jobs.")
    session.echo("")
    busy = [info for info in queues if is_shown(info)]
    counts = ((escape(info.name), usage(info.running, info.settings.max_running), *waiting(info)) for info in busy)
    print_table(session.console, ("~queue", "running", ">waiting", ">parked or later"), counts, "No queued jobs.")


def running_document(jobs: Sequence[Job], queues: Sequence[QueueInfo], now: Instant) -> dict[str, Any]:
    queued = {info.name: info.waiting + info.delayed for info in queues}
    return {
        "running": [
            {word: getattr(job, word) for word in SHOWN}
            | {"elapsed_seconds": None if job.started_at is None else (now - job.started_at) / 1000}
            | {"progress": job.progress}
            for job in jobs
        ],
        "queued": queued,
        "summary": {
            "running_count": max(len(jobs), sum(info.running for info in queues)),
            "queued_count": sum(queued.values()),
        },
    }


def running_row(job: Job, now: Instant, *, is_wide: bool) -> Sequence[str]:
    more = (name(job.group), f"{job.attempt}/{job.max_attempts}") if is_wide else ()
    who = name(job.worker or job.external_id)
    return (
        escape(job.queue),
        job.id,
        escape(workflow_id_of(job)),
        *more,
        who,
        age(job.started_at, now),
        progress(job, BAR_WIDTH),
    )


def is_shown(info: QueueInfo) -> bool:
    """Queues with work, and those with a limit, which platforms have."""
    return bool(info.waiting or info.delayed or info.running or info.settings.max_running)


def waiting(info: QueueInfo) -> tuple[str, str]:
    return number(info.waiting), number(info.delayed)


@async_command
async def _list(session: Session) -> None:
    async with session.operations() as operations:
        found = await operations.workers()
        now = await operations.now()
    rows = (
        (
            escape(worker.id),
            usage(worker.running, worker.concurrency) + (" quiet" if worker.quiet else ""),
            number(worker.completed),
            age(worker.started_at, now),
            age(worker.seen_at, now),
            escape(", ".join(worker.queues)) or "all",
        )
        for worker in found
    )
    headings = ("~worker", "running", ">completed", ">up", ">seen", "~queues")
    empty = "No live workers. Start one: jobyard --app module:attribute worker"
    session.print_table({"workers": found}, headings, rows, empty)


@click.group(cls=CommandGroup, invoke_without_command=True)
@json_option
@click.pass_context
def workers(context: click.Context) -> None:
    """List the live workers; make one quiet, or stop it.

    \b
    Example:
      jobyard workers
      jobyard workers stop host-4711-3f2a90
    """
    if context.invoked_subcommand is None:
        _list()


LIST_HELP = "List the live workers and their queues.\n\n\b\nExample:\n  jobyard workers list --json"
workers.command("list", help=LIST_HELP)(_list)


@workers.command()
@click.argument("worker_id", metavar="WORKER")
@async_command
async def quiet(session: Session, worker_id: str) -> None:
    """Make a worker claim no more jobs.

    Running jobs continue, and the worker stays. Takes effect within about a second.

    \b
    Example:
      jobyard workers quiet host-4711-3f2a90
    """
    await _control(session, worker_id, "quiet")


@workers.command()
@click.argument("worker_id", metavar="WORKER")
@async_command
async def stop(session: Session, worker_id: str) -> None:
    """Stop a worker, as SIGTERM does.

    It claims no more jobs, lets running jobs finish, and exits; `jobyard up` then starts a new one.

    \b
    Example:
      jobyard workers stop host-4711-3f2a90
    """
    await _control(session, worker_id, "stop")


async def _control(session: Session, worker_id: str, control: str) -> None:
    async with session.operations() as operations:
        await operations.control_worker(worker_id, control)
    text = f"Asked worker {worker_id} to {'be quiet' if control == 'quiet' else 'stop'}."
    session.report({"worker": worker_id, "told": control}, text)
