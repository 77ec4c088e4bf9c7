"""`jobyard running` and `jobyard workers`: what runs now, and where."""

from __future__ import annotations

import click
from rich.markup import escape

from jobyard.domain.job import State
from jobyard.main.cli.render import age, name, number, print_table, progress, usage
from jobyard.main.cli.session import Session, verb
from jobyard.ports.store import Filter


@click.command()
@click.option("--queue", metavar="NAME", help="Only jobs of this queue.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=200, show_default=True, help="At most so many.")
@verb
async def running(session: Session, queue: str | None, limit: int) -> None:
    """List what runs now, longest first, with progress.

    \b
    Example:
      jobyard running --queue test-execution
    """
    async with session.operator() as yard:
        found = []
        async for job in yard.read.walk(Filter(queue=queue, states=(State.RUNNING,))):
            found.append(job)
            if len(found) == limit:
                break
        now = await yard.store.now()
    found.sort(key=lambda job: job.started_at or 0)
    if session.as_json:
        jobs = [
            {
                "id": job.id,
                "kind": job.kind,
                "queue": job.queue,
                "group": job.group,
                "attempt": job.attempt,
                "max_attempts": job.max_attempts,
                "worker": job.worker,
                "external_id": job.external_id,
                "elapsed_seconds": None if job.started_at is None else (now - job.started_at) / 1000,
                "progress": job.progress,
            }
            for job in found
        ]
        session.print_json({"running": jobs})
        return
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
    print_table(session.console, headings, rows, "Nothing runs.")


@click.command()
@verb
async def workers(session: Session) -> None:
    """List the live workers and what they take.

    \b
    Example:
      jobyard workers
    """
    async with session.operator() as yard:
        found = await yard.store.workers()
        now = await yard.store.now()
    if session.as_json:
        session.print_json({"workers": found})
        return
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
    print_table(session.console, headings, rows, "No live worker. Start one: jobyard --app module:attribute worker")
