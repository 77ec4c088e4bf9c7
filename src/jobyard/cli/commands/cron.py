"""`jobyard cron`: list, show, pause, resume, run and remove schedules, and show their history."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice

import click

from jobyard.api.schemas.schedules import MAX_NEXT, NextTicksResponse, next_ticks_response
from jobyard.cli.command_group import CommandGroup
from jobyard.cli.option_flags import limit_flag
from jobyard.cli.render.output import print_table
from jobyard.cli.render.schedule import history_row, instant_line, row, show_schedule
from jobyard.cli.session import Session, async_command, json_option
from jobyard.domain.cron import Cron
from jobyard.domain.instant import Instant
from jobyard.errors import NotFound, did_you_mean
from jobyard.operations.protocol import Operations
from jobyard.operations.queries import take

HEADINGS = ("~schedule", "~expression", "~zone", "~kind", ">next", "")
NONE_YET = (
    "No schedules. Declare one with @yard.cron(…) or under `schedules` in jobyard.yaml, or: "
    "jobyard cron add NAME EXPRESSION KIND"
)


@asynccontextmanager
async def schedules(session: Session, *, creates_store: bool = False) -> AsyncIterator[Operations]:
    """Operations that suggest a name when the schedule is not found."""
    async with session.operations(creates_store=creates_store) as operations:
        try:
            yield operations
        except NotFound as error:
            name = str(click.get_current_context().params.get("name", ""))
            hint = did_you_mean(name, [each.name async for each in operations.schedules()])
            raise NotFound(f"{error}{hint or ' `jobyard cron` lists them.'}") from error


@click.group(cls=CommandGroup, invoke_without_command=True)
@json_option
@click.pass_context
def cron(context: click.Context) -> None:
    """List, show, add and change schedules.

    `jobyard up` and `jobyard scheduler` fire them. Changes take effect within a second.

    \b
    Example:
      jobyard cron
      jobyard cron next "0 9 * * 1-5" --tz Asia/Seoul
      jobyard cron add nightly "0 2 * * *" report days=1 --tz Asia/Seoul
    """
    if context.invoked_subcommand is None:
        _list()


@async_command
async def _list(session: Session) -> None:
    async with schedules(session) as operations:
        found = [each async for each in operations.schedules()]
        now = await operations.now()
    session.print_table({"schedules": found}, HEADINGS, (row(each, now) for each in found), NONE_YET)


LIST_HELP = "List the schedules and their next instants.\n\n\b\nExample:\n  jobyard cron list --json"
cron.command("list", help=LIST_HELP)(_list)


@cron.command()
@click.argument("name")
@async_command
async def show(session: Session, name: str) -> None:
    """Show one schedule.

    Its settings, its next instants, and its latest history.

    \b
    Example:
      jobyard cron show nightly
    """
    async with schedules(session) as operations:
        found, coming = await operations.schedule(name), await operations.next_of_schedule(name, 3)
        past = await take(operations.schedule_history(name), 5)
        now = await operations.now()
    if session.as_json:
        session.print_json({"schedule": found, "next": coming.items, "history": past})
    else:
        show_schedule(session.console, found, coming, past, now)


@cron.command("next")
@click.argument("what", metavar="EXPRESSION|NAME")
@click.option("--tz", "timezone", metavar="ZONE", help="The time zone of the expression.  [default: UTC]")
@click.option("--count", type=click.IntRange(1, MAX_NEXT), default=5, show_default=True, help="The number of instants.")
@async_command
async def next_instants(session: Session, what: str, timezone: str | None, count: int) -> None:
    """Show what an expression means, and its next instants.

    An expression has five fields (minute, hour, day of month, month, day of week), six with seconds in front, or is one
    of @yearly, @monthly, @weekly, @daily, @hourly. Anything else is the name of a schedule.

    \b
    Example:
      jobyard cron next "0 9 * * 1-5" --tz Asia/Seoul
      jobyard cron next nightly
    """
    if is_expression(what):
        now = round(time.time() * 1000)
        after = Cron(what, timezone or "UTC").after(now)
        _print_next(session, next_ticks_response(what, timezone or "UTC", islice(after, count)), now)
        return
    if timezone is not None:
        raise click.UsageError(f"{what} is the name of a schedule, which has its own time zone: omit --tz.")
    async with schedules(session) as operations:
        _print_next(session, await operations.next_of_schedule(what, count), await operations.now())


def _print_next(session: Session, found: NextTicksResponse, now: Instant) -> None:
    if session.as_json:
        session.print_json(found)
        return
    session.echo(f"{found.in_words} ({found.timezone})")
    for at in found.items:
        session.echo(instant_line(at, found.timezone, now))
    if not found.items:
        session.echo_error("Not due again: paused, or past its end.")


def is_expression(text: str) -> bool:
    """
    >>> is_expression("0 9 * * 1-5"), is_expression("@daily"), is_expression("nightly")
    (True, True, False)
    """
    return len(text.split()) > 1 or text.strip().startswith("@") or "*" in text


@cron.command()
@click.argument("name")
@limit_flag(100, 20, "instants")
@async_command
async def history(session: Session, name: str, limit: int) -> None:
    """Show the history of a schedule, newest first.

    fired: its job was inserted in time. late: inserted later. missed: no scheduler was running, and the
    policy is not to insert it later. skipped: the job of an earlier instant was not finished. The last 100 are kept.

    \b
    Example:
      jobyard cron history nightly
    """
    async with schedules(session) as operations:
        found = await take(operations.schedule_history(name), limit)
    if session.as_json:
        session.print_json({"history": found})
        return
    if found:
        headings = ("instant", "verdict", ">decided", "job", "its state")
        print_table(session.console, headings, map(history_row, found), "")
    else:
        session.echo_error(f"Schedule {name} has not been due yet.")


@cron.command()
@click.argument("name")
@async_command
async def pause(session: Session, name: str) -> None:
    """Pause a schedule.

    \b
    Example:
      jobyard cron pause nightly
    """
    async with schedules(session) as operations:
        found = await operations.pause_schedule(name)
    session.report({"schedule": found}, f"Schedule {name} is paused.")


@cron.command()
@click.argument("name")
@async_command
async def resume(session: Session, name: str) -> None:
    """Resume a paused schedule.

    Instants while it was paused are not made up for.

    \b
    Example:
      jobyard cron resume nightly
    """
    async with schedules(session) as operations:
        found = await operations.resume_schedule(name)
        now = await operations.now()
    coming = "not due again" if found.next_at is None else f"next {instant_line(found.next_at, found.timezone, now)}"
    session.report({"schedule": found}, f"Schedule {name} is resumed; {coming}.")


@cron.command()
@click.argument("name")
@async_command
async def run(session: Session, name: str) -> None:
    """Insert a job of a schedule now.

    Independent of its instants and of its other jobs; prints the id of the job.

    \b
    Example:
      jobyard cron run nightly
    """
    async with schedules(session) as operations:
        job_id = await operations.run_schedule(name)
    session.report({"schedule": name, "job_id": job_id}, job_id)


@cron.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@async_command
async def remove(session: Session, name: str, yes: bool) -> None:
    """Remove a schedule and its history; its jobs stay.

    \b
    Example:
      jobyard cron remove nightly --yes
    """
    async with schedules(session) as operations:
        found = await operations.schedule(name)
        session.confirm(f"Remove schedule {name} ({found.expression}, {found.kind}) and its history?", yes=yes)
        await operations.remove_schedule(name)
    session.report({"schedule": name, "removed": True}, f"Schedule {name} is removed.")
