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
payload_flag = click.option("--payload", "payload_json", metavar="JSON", help="PAYLOAD as one JSON object.")
schedule_flags = option_flags(SCHEDULE_OPTIONS.values(), by_field=True, defaults=DEFAULTS)


@click.command()
@click.argument("name")
@click.argument("expression")
@click.argument("kind")
@click.argument("payload", nargs=-1)
@payload_flag
@schedule_flags
@click.option("--paused", is_flag=True, help="Add it paused.")
@async_command
async def add(
    session: Session,
    /,
    name: str,
    expression: str,
    kind: str,
    payload: tuple[str, ...],
    payload_json: str | None,
    paused: bool,
    **more: Any,
) -> None:
    """Add a schedule.

    It inserts a job of KIND at each instant of EXPRESSION: five fields (minute, hour, day of month, month, day of week)
    in quotation marks, six with seconds first, or @hourly, @daily and so on; `jobyard cron next` explains it. PAYLOAD
    is written as for `jobyard enqueue`. An app, or a server with one, validates kind and payload.

    \b
    Example:
      jobyard cron add nightly "0 2 * * *" report days=1 --tz Asia/Seoul
      jobyard cron add sync "*/5 * * * *" sync '{"full": false}' --overlap queue --jitter 20
    """
    made = {"name": name, "expression": expression, "kind": kind, "enabled": not paused, **given_flags(more)}
    made |= _payload(payload, payload_json)
    async with schedules(session, creates_store=True) as operations:
        found = await operations.add_schedule(made)
        await _print(session, found, await operations.now())


@click.command()
@click.argument("name")
@click.argument("payload", nargs=-1)
@payload_flag
@click.option("--expression", metavar="EXPRESSION", help="The cron expression.")
@click.option("--kind", metavar="KIND", help="The kind of its jobs.")
@schedule_flags
@click.option("--no-timeout", is_flag=True, help="Remove the timeout.")
@click.option("--no-group", is_flag=True, help="Remove the group.")
@click.option("--no-start", is_flag=True, help="Remove the start time.")
@click.option("--no-end", is_flag=True, help="Remove the end time.")
@async_command
async def edit(session: Session, /, name: str, payload: tuple[str, ...], payload_json: str | None, **more: Any) -> None:
    """Change a schedule; options that are not given stay as they are.

    PAYLOAD replaces the whole payload, and is written as for `jobyard enqueue`.

    A schedule that is declared in code or in jobyard.yaml is changed there; it can still be paused, resumed and run.

    \b
    Example:
      jobyard cron edit nightly --expression "30 2 * * *"
      jobyard cron edit nightly days=7
    """
    changes = given_flags({word: value for word, value in more.items() if not word.startswith("no_")})
    for flag, word in (("timeout", "timeout_seconds"), ("group", "group"), ("start", "start_at"), ("end", "end_at")):
        if more[f"no_{flag}"]:
            if word in changes:
                raise click.UsageError(f"Pass --{flag} or --no-{flag}, not both.")
            changes[word] = None
    changes |= _payload(payload, payload_json)
    if not changes:
        raise click.UsageError("Nothing to change: pass at least one option. See `jobyard cron edit --help`.")
    async with schedules(session) as operations:
        found = await operations.edit_schedule(name, changes)
        await _print(session, found, await operations.now())


def _payload(words: tuple[str, ...], text: str | None) -> dict[str, Any]:
    if words and text is not None:
        raise click.UsageError("Pass PAYLOAD or --payload, not both.")
    given = words if text is None else (text,)
    return {"payload": parse_payload(given)} if given else {}


async def _print(session: Session, found: ScheduleView, now: int) -> None:
    if session.as_json:
        session.print_json({"schedule": found})
        return
    session.echo(f"{found.name}: {found.in_words} ({found.timezone})")
    if found.next_at is not None:
        session.echo(f"next {instant_line(found.next_at, found.timezone, now)}")
    else:
        session.echo_error("Paused." if not found.enabled else "Not due again.")


commands = (add, edit)
