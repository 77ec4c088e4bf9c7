"""`jobyard cron add` and `jobyard cron edit`."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from jobyard.api.schemas.schedules import ScheduleView
from jobyard.cli.commands.cron import schedules
from jobyard.cli.commands.enqueue import parse_payload
from jobyard.cli.option_flags import given_flags, option_flags
from jobyard.cli.render.schedule import instant_line
from jobyard.cli.session import Session, async_command
from jobyard.domain.schedule import Schedule
from jobyard.operations.schedule_options import SCHEDULE_OPTIONS

# Shown in the help. Retries and timeout are the handler's where an app declares them.
DEFAULTS = {
    field.name: field.default
    for field in msgspec.structs.fields(Schedule)
    if field.name in ("timezone", "max_retry", "timeout_seconds", "overlap", "missed", "missed_limit")
}
schedule_flags = option_flags(SCHEDULE_OPTIONS.values(), by_field=True, defaults=DEFAULTS)


@click.command()
@click.argument("name")
@click.argument("expression")
@click.argument("kind")
@click.argument("payload", nargs=-1)
@schedule_flags
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
    made = {"name": name, "expression": expression, "kind": kind, "enabled": not paused, **given_flags(more)}
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
@schedule_flags
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
    changes = given_flags({word: value for word, value in more.items() if not word.startswith("no_")})
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
