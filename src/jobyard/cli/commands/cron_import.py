"""`jobyard cron import`: schedules from the table of another program; a dry run without --apply."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import click
from rich.markup import escape

from jobyard.api.schemas.schedules import ScheduleView
from jobyard.app.jobyard import Jobyard
from jobyard.cli.commands.cron import schedules
from jobyard.cli.cron_table import DEFAULT_TABLE, CronTable, MappedRow, mapped, read_table
from jobyard.cli.render.output import print_table
from jobyard.cli.require_store import require_database
from jobyard.cli.session import Session, async_command
from jobyard.domain.schedule import Missed
from jobyard.domain.text import counted
from jobyard.errors import BadInput, ConfigurationError, NotFound, NotPossible
from jobyard.operations.local import LocalOperations
from jobyard.operations.protocol import Operations
from jobyard.operations.schedule_options import check_timing, make_schedule
from jobyard.ports.store import Store

NEW, ADDED, THERE, NOT = "new", "added", "there already", "does not map"
COLOURS = {NEW: "green", ADDED: "green", THERE: "dim", NOT: "red"}
BECOMES = {
    "name": "name",
    "expression": "expression, in {timezone}",
    "kind": "kind",
    "payload": "payload",
    "max_retry": "max_retry",
    "timeout_seconds": "timeout_seconds",
    "enabled": "enabled; a disabled one is paused",
    "overlap": "overlap: allow, or skip",
}


class RowOutcome(NamedTuple):
    row: MappedRow
    outcome: str
    why: str = ""


def _pairs(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for value in values:
        old, equals, new = value.partition("=")
        if not (old and equals and new):
            raise click.BadParameter(f"{value!r} is not OLD=KIND.")
        found[old] = new
    return found


@click.command("import")
@click.argument("url")
@click.option("--table", default=DEFAULT_TABLE, show_default=True, help="The table, with its schema if needed.")
@click.option("--tz", "timezone", default="UTC", show_default=True, metavar="ZONE", help="The zone of its expressions.")
@click.option(
    "--handler",
    "kinds",
    multiple=True,
    callback=_pairs,
    metavar="OLD=KIND",
    help="Import handler OLD as KIND; repeatable.",
)
@click.option(
    "--missed",
    type=click.Choice([str(each) for each in Missed]),
    default=str(Missed.SKIP),
    show_default=True,
    help="How instants without a running scheduler are handled.",
)
@click.option("--apply", "is_applied", is_flag=True, help="Add the schedules. Without it, only show them.")
@async_command
async def import_table(
    session: Session, url: str, table: str, timezone: str, kinds: dict[str, str], missed: str, is_applied: bool
) -> None:
    """Import the schedules of a `cron_jobs` table (jobu).

    URL is sqlite:///old.db or postgresql://user@host/database; it is only read. Without --apply nothing is written: the
    command shows what each column and row becomes, and which rows do not map, and why. Existing schedules do not
    change. Exit code 1 if a row does not map.

    \b
    Example:
      jobyard --app shop.jobs:yard cron import sqlite:///jobu.db
      jobyard --app shop.jobs:yard cron import postgresql://jobu@db/jobu --tz Asia/Seoul --apply
    """
    found = await read_table(url, table)
    rows = list(_once([_with_policy(mapped(found, row, timezone, kinds), missed) for row in found.rows]))
    async with _operations(session, is_applied=is_applied) as operations:
        outcomes = [await _outcome(operations, session, row, is_applied=is_applied) for row in rows]
    if session.as_json:
        session.print_json(_document(found, outcomes, is_applied=is_applied))
    else:
        _print(session, found, outcomes, timezone, missed, is_applied=is_applied)
    if any(each.outcome == NOT for each in outcomes):
        raise click.exceptions.Exit(1)


@asynccontextmanager
async def _operations(session: Session, *, is_applied: bool) -> AsyncIterator[Operations]:
    """A dry run does not create a store: it compares with an empty one if there is none."""
    if is_applied or session.server is not None or await _exists(session.store()):
        async with schedules(session, creates_store=is_applied) as operations:
            yield operations
        return
    async with Jobyard("memory://") as yard:
        yield LocalOperations(yard.store, session.job_factory)


async def _exists(store: Store) -> bool:
    try:
        await require_database(store)
    except ConfigurationError:
        return False
    return True


def _with_policy(row: MappedRow, missed: str) -> MappedRow:
    return row if row.fields is None else row._replace(fields={**row.fields, "missed": missed})


def _once(rows: list[MappedRow]) -> Iterator[MappedRow]:
    """Reject rows that share a name."""
    names = Counter(row.name for row in rows)
    for row in rows:
        is_double = names[row.name] > 1
        yield row._replace(fields=None, why=f"{names[row.name]} rows have this name") if is_double else row


async def _outcome(operations: Operations, session: Session, row: MappedRow, *, is_applied: bool) -> RowOutcome:
    if row.fields is None:
        return RowOutcome(row, NOT, row.why)
    try:
        check_timing(make_schedule(row.fields), session.configuration.scheduler.shortest_interval_seconds)
        await operations.check_job(row.fields["kind"], row.fields["payload"])
        present = await _present(operations, row.name)
        if present is not None:
            if _is_same(present, row.fields):
                return RowOutcome(row, THERE)
            return RowOutcome(row, NOT, "another schedule has this name; it was not changed")
        if is_applied:
            await operations.add_schedule(dict(row.fields))
    except (BadInput, NotPossible) as error:
        return RowOutcome(row, NOT, str(error))
    return RowOutcome(row, ADDED if is_applied else NEW)


async def _present(operations: Operations, name: str) -> ScheduleView | None:
    try:
        return await operations.schedule(name)
    except NotFound:
        return None


def _is_same(present: ScheduleView, fields: Mapping[str, Any]) -> bool:
    """Compare all fields but `enabled`: the schedule may have been paused or resumed since."""
    return all(getattr(present, field) == value for field, value in fields.items() if field != "enabled")


def _document(found: CronTable, outcomes: list[RowOutcome], *, is_applied: bool) -> dict[str, Any]:
    rows = [
        {
            "name": each.row.name,
            "expression": each.row.expression,
            "handler": each.row.handler,
            "outcome": each.outcome.replace(" ", "_"),
            "why": each.why or None,
            "schedule": each.row.fields,
        }
        for each in outcomes
    ]
    columns = {column: word for word, column in found.columns.items()}
    return {"applied": is_applied, "columns": columns, "left_out": found.unknown, "rows": rows}


def _print(
    session: Session, found: CronTable, outcomes: list[RowOutcome], timezone: str, missed: str, *, is_applied: bool
) -> None:
    print_table(session.console, ("column", "becomes"), _columns(found, timezone, missed), "")
    session.echo("")
    rows = (
        (
            escape(each.row.name),
            escape(each.row.expression),
            escape(each.row.handler),
            f"[{COLOURS[each.outcome]}]{each.outcome}[/]",
        )
        for each in outcomes
    )
    print_table(session.console, ("~name", "~expression", "~handler", "outcome"), rows, "The table is empty.")
    session.echo("")
    for each in outcomes:
        if each.why:
            session.print_markup(f"[red]{escape(each.row.name)}[/]: {escape(each.why)}")
    count = {word: sum(each.outcome == word for each in outcomes) for word in COLOURS}
    done = f"{count[ADDED]} added" if is_applied else f"{count[NEW]} to add"
    session.echo(f"{counted(len(outcomes), 'row')}: {done}, {count[THERE]} there already, {count[NOT]} do not map.")
    if not is_applied and count[NEW]:
        session.echo("Dry run: nothing was written. Pass --apply to add them.")
    if session.app_name is None and session.server is None:
        session.echo_error("Handlers and parameters were not checked: pass --app to check them.")


def _columns(found: CronTable, timezone: str, missed: str) -> Iterator[tuple[str, str]]:
    for word, column in found.columns.items():
        yield escape(column), BECOMES[word].format(timezone=escape(timezone))
    if "overlap" not in found.columns:
        yield "-", "overlap: allow"
    yield "-", f"missed: {missed}"
    for column in found.unknown:
        yield escape(column), "[yellow]ignored[/]"


commands = (import_table,)
