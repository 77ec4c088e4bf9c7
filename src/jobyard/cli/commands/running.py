"""`jobyard running` and `jobyard workers`: running jobs, and the workers that run them."""

from __future__ import annotations

import click
from rich.markup import escape

from jobyard.cli.option_flags import limit_flag
from jobyard.cli.render.output import age, name, number, progress, usage
from jobyard.cli.session import Session, async_command, json_option
from jobyard.domain.job import State
from jobyard.operations.queries import take
from jobyard.ports.admin_store import Filter

SHOWN = ("id", "kind", "queue", "group", "attempt", "max_attempts", "worker", "external_id")


@click.command()
@click.option("--queue", metavar="NAME", help="Only jobs of this queue.")
@limit_flag(10_000, 200, "jobs")
@async_command
async def running(session: Session, queue: str | None, limit: int) -> None:
    """List the running jobs, longest first, with progress.

    \b
    Example:
      jobyard running --queue test-execution
    """
    async with session.operations() as operations:
        found = await take(operations.walk(Filter(queue=queue, states=(State.RUNNING,))), limit)
        now = await operations.now()
    found.sort(key=lambda job: job.started_at or 0)
    jobs = [
        {word: getattr(job, word) for word in SHOWN}
        | {"elapsed_seconds": None if job.started_at is None else (now - job.started_at) / 1000}
        | {"progress": job.progress}
        for job in found
    ]
    where = ("~worker",) if session.console.width >= 120 or not session.is_terminal else ()
    rows = (
        (
            job.id,
            escape(job.kind),
            escape(job.queue),
            name(job.group),
            f"{job.attempt}/{job.max_attempts}",
            age(job.started_at, now),
            *([name(job.worker or job.external_id)] if where else []),
            progress(job, 6),
        )
        for job in found
    )
    headings = ("job", "~kind", "~queue", "~group", ">try", ">for", *where, "~progress")
    session.print_table({"running": jobs}, headings, rows, "No running jobs.")


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


@click.group(invoke_without_command=True)
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
