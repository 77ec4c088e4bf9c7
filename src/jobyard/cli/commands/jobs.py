"""`jobyard jobs`: list and show jobs; the commands that change them are in `job_actions`."""

from __future__ import annotations

import click
from rich.markup import escape

from jobyard.cli.command_group import CommandGroup
from jobyard.cli.filters import filter_options
from jobyard.cli.job_ids import whole_id
from jobyard.cli.option_flags import limit_flag
from jobyard.cli.render.job import show_job
from jobyard.cli.render.output import name, print_table, state
from jobyard.cli.session import Session, absolute_option, async_command, json_option
from jobyard.domain.job import Job
from jobyard.ports.admin_store import Filter


@click.group(cls=CommandGroup, invoke_without_command=True)
@json_option
@absolute_option
@click.pass_context
def jobs(context: click.Context) -> None:
    """List, show and change jobs. Without a subcommand: the newest jobs.

    \b
    Example:
      jobyard jobs list --queue mail --state FAILED
      jobyard jobs show 01890a5d-ac96-774b-bcce-b302099a8057
      jobyard jobs retry --queue mail --all-matching
    """
    if context.invoked_subcommand is None:
        context.invoke(list_jobs)


@jobs.command("list")
@filter_options
@limit_flag(1000, 50, "jobs")
@click.option("--cursor", metavar="TEXT", help="Continue after the previous page.")
@absolute_option
@async_command
async def list_jobs(session: Session, where: Filter, limit: int, cursor: str | None) -> None:
    """List jobs, newest first, a page at a time.

    \b
    Example:
      jobyard jobs list --queue mail --state failed --state timeout --limit 20
    """
    async with session.operations() as operations:
        found: list[Job] = []
        # A page may be short, even empty, and still have a cursor.
        while True:
            page = await operations.find(where, limit - len(found), cursor)
            found += page.jobs
            cursor = page.cursor
            if cursor is None or len(found) >= limit:
                break
        now = await operations.now()
    if session.as_json:
        session.print_json({"jobs": found, "cursor": cursor})
        return
    rows = (
        (
            job.id,
            state(job.state),
            escape(job.kind),
            escape(job.queue),
            name(job.group),
            f"{job.attempt}/{job.max_attempts}",
            session.moment(job.created_at, now),
        )
        for job in found
    )
    print_table(
        session.console, ("job", "state", "~kind", "~queue", "~group", ">try", ">created"), rows, "No job matches."
    )
    if cursor is not None:
        session.echo_error(f"More jobs: pass --cursor {cursor}")


@jobs.command("show")
@click.argument("job_id")
@async_command
async def show(session: Session, job_id: str) -> None:
    """Show everything about one job.

    Payload, result, progress, steps, the last 1,000 log lines, failed attempts and times. The beginning of its id is
    enough if no other job has it.

    \b
    Example:
      jobyard jobs show 01890a5d-ac96-774b-bcce-b302099a8057
      jobyard jobs show 01890a5d-ac96
    """
    async with session.operations() as operations:
        job = await operations.job(await whole_id(operations, job_id))
        now = await operations.now()
        waits = (await operations.explain(job.id)).sentence if job.waiting_for is not None else ""
    if session.as_json:
        session.print_json(job)
    else:
        show_job(session.console, job, now, waits)
