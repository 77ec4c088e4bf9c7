"""`jobyard dead`: list dead letters and retry them."""

from __future__ import annotations

import click
from rich.markup import escape

from jobyard.cli.command_group import CommandGroup
from jobyard.cli.commands.job_actions import change_ids, change_matching, yes_option
from jobyard.cli.option_flags import limit_flag
from jobyard.cli.render.output import name, reason, state
from jobyard.cli.session import Session, absolute_option, async_command, json_option
from jobyard.operations.commands import DEAD
from jobyard.operations.queries import take
from jobyard.ports.admin_store import Action, Filter


@click.group(cls=CommandGroup, invoke_without_command=True)
@json_option
@absolute_option
@click.pass_context
def dead(context: click.Context) -> None:
    """List and redrive dead letters (FAILED and TIMEOUT).

    \b
    Example:
      jobyard dead
      jobyard dead redrive --queue mail
    """
    if context.invoked_subcommand is None:
        context.invoke(list_dead)


@dead.command("list")
@click.option("--queue", metavar="NAME", help="Only jobs of this queue.")
@click.option("--kind", metavar="NAME", help="Only jobs of this kind.")
@limit_flag(1000, 50, "jobs")
@absolute_option
@async_command
async def list_dead(session: Session, queue: str | None, kind: str | None, limit: int) -> None:
    """List dead letters, newest first, with their reasons.

    \b
    Example:
      jobyard dead list --queue mail
    """
    async with session.operations() as operations:
        found = await take(operations.walk(Filter(queue=queue, kind=kind, states=DEAD)), limit)
        now = await operations.now()
    rows = (
        (job.id, state(job.state), escape(job.kind), session.moment(job.finished_at, now), name(reason(job)))
        for job in found
    )
    session.print_table({"jobs": found}, ("job", "state", "~kind", ">ended", "~reason"), rows, "No dead letters.")


@dead.command()
@click.argument("job_ids", metavar="[JOB_ID]...", nargs=-1)
@click.option("--queue", metavar="NAME", help="Only jobs of this queue.")
@click.option("--kind", metavar="NAME", help="Only jobs of this kind.")
@yes_option
@async_command
async def redrive(session: Session, job_ids: tuple[str, ...], queue: str | None, kind: str | None, yes: bool) -> None:
    """Retry dead letters: the given jobs, or all that match.

    They are due now, with attempts from zero, and keep their errors.

    \b
    Example:
      jobyard dead redrive 01890a5d-ac96-774b-bcce-b302099a8057
      jobyard dead redrive --queue mail --yes
    """
    if job_ids and (queue or kind):
        raise click.UsageError("Pass job ids or filters, not both.")
    where = Filter(queue=queue, kind=kind, states=DEAD)
    async with session.operations() as operations:
        if job_ids:
            await change_ids(session, operations, Action.RETRY, job_ids)
        else:
            await change_matching(session, operations, Action.RETRY, where, yes=yes)
