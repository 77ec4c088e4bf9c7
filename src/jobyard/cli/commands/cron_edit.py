"""`jobyard cron add` and `jobyard cron edit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from jobyard.api.schemas.schedules import ScheduleView
from jobyard.cli.commands.cron import schedules
from jobyard.cli.commands.enqueue import parse_payload
from jobyard.cli.render.schedule import instant_line
from jobyard.cli.session import Session, async_command
from jobyard.domain.instant import instant, rfc3339
from jobyard.domain.schedule import Missed, Overlap

Command = Callable[..., Any]


def moment(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else rfc3339(instant(value))
    except ValueError as error:
        raise click.BadParameter(f"{error}.", context, parameter) from error


def words(command: Command) -> Command:
    """What is said of a schedule beside its expression and its kind."""
    for option in (
        click.option("--end", "end_at", callback=moment, metavar="TIME", help="No instant after it."),
        click.option("--start", "start_at", callback=moment, metavar="TIME", help="No instant before it."),
        click.option(
            "--jitter", "jitter_seconds", type=float, metavar="SECONDS", help="Each job begins up to so much later."
        ),
        click.option("--missed-limit", type=int, metavar="N", help="How many `--missed all` makes up.  [default: 10]"),
        click.option(
            "--missed",
            type=click.Choice([str(each) for each in Missed]),
            help="Instants that no scheduler was there for: make up for none, the newest, or all.  [default: once]",
        ),
        click.option(
            "--overlap",
            type=click.Choice([str(each) for each in Overlap]),
            help="While its last job is not over: insert the next one anyway, skip it, let it wait.  [default: skip]",
        ),
        click.option(
            "--timeout", "timeout_seconds", type=float, metavar="SECONDS",
            help="How long one attempt may take.  [default: 300]",
        ),
        click.option("--max-retry", type=int, metavar="N", help="How often a failed job is repeated.  [default: 3]"),
        click.option("--priority", type=int, help="Higher goes first within the group."),
        click.option("--group", metavar="NAME", help="The group whose limit its jobs share."),
        click.option("--queue", metavar="NAME", help="Another queue than the handler's."),
        click.option("--tz", "timezone", metavar="ZONE", help="The time zone, such as Asia/Seoul.  [default: UTC]"),
    ):  # fmt: skip
        command = option(command)
    return command


def given(found: dict[str, Any]) -> dict[str, Any]:
    return {word: value for word, value in found.items() if value is not None}


@click.command()
@click.argument("name")
@click.argument("expression")
@click.argument("kind")
@click.argument("payload", nargs=-1)
@words
@click.option("--paused", is_flag=True, help="It fires only once it is resumed.")
@async_command
async def add(
    session: Session, /, name: str, expression: str, kind: str, payload: tuple[str, ...], paused: bool, **more: Any
) -> None:
    """Make a schedule.

    It inserts a job of KIND at each instant of EXPRESSION: five fields (minute, hour, day of month, month, day of week)
    in quotation marks, six with seconds in front, or @hourly, @daily and the like; `jobyard cron next` says what it
    means. PAYLOAD is written as for `jobyard enqueue`. An app, or a server that has one, checks kind and payload.

    \b
    Example:
      jobyard cron add nightly "0 2 * * *" report days=1 --tz Asia/Seoul
      jobyard cron add sync "*/5 * * * *" sync '{"full": false}' --overlap queue --jitter 20
    """
    made = {"name": name, "expression": expression, "kind": kind, "enabled": not paused, **given(more)}
    if payload:
        made["payload"] = parse_payload(payload)
    async with schedules(session, creates_store=True) as operations:
        found = await operations.add_schedule(made)
        await _say(session, found, await operations.now())


@click.command()
@click.argument("name")
@click.option("--expression", metavar="EXPRESSION", help="When it fires.")
@click.option("--kind", metavar="KIND", help="Which handler.")
@click.option("--payload", metavar="JSON", help="An object with the handler's parameters; replaces the present one.")
@words
@click.option("--no-timeout", is_flag=True, help="An attempt may take any time.")
@click.option("--no-group", is_flag=True, help="Its jobs belong to no group.")
@click.option("--no-start", is_flag=True, help="No first instant.")
@click.option("--no-end", is_flag=True, help="No last instant.")
@async_command
async def edit(session: Session, /, name: str, payload: str | None, **more: Any) -> None:
    """Change a schedule; what is not given stays as it is.

    One that is declared in code or in jobyard.yaml is changed there; it can be paused, resumed and run all the same.

    \b
    Example:
      jobyard cron edit nightly --expression "30 2 * * *"
    """
    changes = given({word: value for word, value in more.items() if not word.startswith("no_")})
    for flag, word in (("timeout", "timeout_seconds"), ("group", "group"), ("start", "start_at"), ("end", "end_at")):
        if more[f"no_{flag}"]:
            if word in changes:
                raise click.UsageError(f"Give --{flag} or --no-{flag}, not both.")
            changes[word] = None
    if payload is not None:
        changes["payload"] = parse_payload((payload,))
    if not changes:
        raise click.UsageError("Say what to change: see `jobyard cron edit --help`.")
    async with schedules(session) as operations:
        found = await operations.edit_schedule(name, changes)
        await _say(session, found, await operations.now())


async def _say(session: Session, found: ScheduleView, now: int) -> None:
    if session.as_json:
        session.print_json({"schedule": found})
        return
    session.echo(f"{found.name}: {found.in_words} ({found.timezone})")
    if found.next_at is not None:
        session.echo(f"next {instant_line(found.next_at, found.timezone, now)}")
    else:
        session.echo_error("It is paused." if not found.enabled else "It is not due again.")
