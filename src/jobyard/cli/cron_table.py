"""Schedules from the `cron_jobs` table of another program (jobu). The table is only read."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from jobyard.config.settings import POSTGRES_PASSWORD
from jobyard.config.store_factory import requires_extra
from jobyard.config.store_url import shown, split
from jobyard.domain.schedule import Missed, Overlap
from jobyard.errors import BadOption, ConfigurationError
from jobyard.operations.secrets import secret

DEFAULT_TABLE = "cron_jobs"
# Each field of a schedule, and the columns that may hold it, the newer name first.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "name": ("name",),
    "expression": ("cron_expression", "expression"),
    "kind": ("handler_name", "handler"),
    "payload": ("handler_params", "params"),
    "max_retry": ("max_retry",),
    "timeout_seconds": ("timeout_seconds",),
    "enabled": ("is_enabled", "enabled"),
    "overlap": ("allow_overlap",),
}
NEEDED = ("name", "expression", "kind")
# Columns that a schedule does not need.
IGNORED = frozenset({"id", "created_at", "updated_at"})
_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}")
CONNECT_SECONDS = 10.0

Row = Mapping[str, Any]


class CronTable(NamedTuple):
    """The column of each field, the columns that match no field, and the rows."""

    columns: Mapping[str, str]
    unknown: tuple[str, ...]
    rows: Sequence[Row]


class MappedRow(NamedTuple):
    """One row: the fields of a schedule, or why it cannot be imported."""

    name: str
    expression: str  # as in the table
    handler: str
    fields: Mapping[str, Any] | None
    why: str = ""


async def read_table(url: str, table: str = DEFAULT_TABLE) -> CronTable:
    """All rows, by name. Raises ConfigurationError if the table cannot be read, or is not a table of cron jobs."""
    parts = table.split(".")
    if not 1 <= len(parts) <= 2 or not all(map(_PART.fullmatch, parts)):
        raise BadOption(f"Invalid table name {table!a}. Write it as cron_jobs or public.cron_jobs.", option="table")
    quoted = ".".join(f'"{part}"' for part in parts)
    match split(url).scheme:
        case "sqlite":
            names, rows = await asyncio.to_thread(_from_sqlite, url, quoted)
        case "postgresql" | "postgres":
            names, rows = await _from_postgres(url, quoted)
        case _:
            raise ConfigurationError(
                f"Cannot import from {shown(url)}. Use sqlite:///old.db or postgresql://user@host/name."
            )
    return _found(url, table, names, rows)


def _from_sqlite(url: str, table: str) -> tuple[list[str], list[Row]]:
    path = Path(unquote(urlsplit(url).path)[1:])
    if not path.is_file():
        raise ConfigurationError(f"Database {path} not found.")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            cursor = connection.execute(f"SELECT * FROM {table}")  # noqa: S608  # its parts were checked
            names = [column[0] for column in cursor.description]
            return names, [dict(zip(names, row, strict=True)) for row in cursor]
    except sqlite3.Error as error:
        raise ConfigurationError(f"Cannot read {shown(url)}: {error}.") from error


async def _from_postgres(url: str, table: str) -> tuple[list[str], list[Row]]:
    with requires_extra("postgres", shown(url)):
        import asyncpg  # noqa: PLC0415  # an extra
    password = secret(POSTGRES_PASSWORD.variable, os.environ) or None
    given = {} if urlsplit(url).password is not None or password is None else {"password": password}
    try:
        connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS, **given)
        try:
            async with connection.transaction(readonly=True):
                statement = await connection.prepare(f"SELECT * FROM {table}")  # noqa: S608  # its parts were checked
                names = [column.name for column in statement.get_attributes()]
                return names, [dict(row) for row in await statement.fetch()]
        finally:
            await connection.close()
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ConfigurationError(f"Cannot read {shown(url)}: {why}.") from error


def _found(url: str, table: str, names: Sequence[str], rows: Sequence[Row]) -> CronTable:
    columns = {
        word: column for word, known in COLUMNS.items() if (column := next(filter(names.__contains__, known), None))
    }
    missing = [" or ".join(COLUMNS[word]) for word in NEEDED if word not in columns]
    if missing:
        raise ConfigurationError(f"Cannot import {table} of {shown(url)}: missing columns: {'; '.join(missing)}.")
    unknown = tuple(name for name in names if name not in columns.values() and name not in IGNORED)
    return CronTable(columns, unknown, sorted(rows, key=lambda row: str(row[columns["name"]])))


def mapped(found: CronTable, row: Row, timezone: str, kinds: Mapping[str, str]) -> MappedRow:
    """With the behaviour of the other program: UTC by default, overlap allowed by default, missed instants skipped."""
    given = {word: row[column] for word, column in found.columns.items() if row[column] is not None}
    name, expression, handler = (str(given.get(word, "")).strip() for word in NEEDED)
    try:
        fields: dict[str, Any] = {"name": name, "timezone": timezone, "missed": Missed.SKIP, "overlap": Overlap.ALLOW}
        fields |= {"expression": _expression(expression), "kind": kinds.get(handler, handler)}
        fields["payload"] = _payload(given.get("payload"))
        for word in ("max_retry", "timeout_seconds"):
            if word in given:
                fields[word] = _number(word, given[word])
        if "enabled" in given:
            fields["enabled"] = _truth("is_enabled", given["enabled"])
        if "overlap" in given and not _truth("allow_overlap", given["overlap"]):
            fields["overlap"] = Overlap.SKIP
    except BadOption as error:
        return MappedRow(name, expression, handler, None, str(error))
    return MappedRow(name, expression, handler, fields)


def _expression(text: str) -> str:
    if len(text.split()) == 6:
        raise BadOption(f'"{text}" has six fields with the seconds last; here they come first. Write five fields.')
    return text


def _payload(value: Any) -> Any:
    """Text in SQLite; asyncpg returns JSON columns as text, too."""
    if value in (None, "", "null"):
        return {}
    try:
        found = msgspec.json.decode(value) if isinstance(value, str | bytes) else value
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadOption(f"The parameters are not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise BadOption("The parameters are not a JSON object: handlers take them by name.")
    return found


def _number(word: str, value: Any) -> Any:
    try:
        return value if isinstance(value, int | float) else int(str(value))
    except ValueError as error:
        raise BadOption(f"{word} is not a number: {value!a}.") from error


def _truth(word: str, value: Any) -> bool:
    """
    >>> _truth("is_enabled", 1), _truth("is_enabled", "f"), _truth("is_enabled", "yes")
    (True, False, True)
    """
    text = str(value).strip().lower()
    if text in ("1", "true", "t", "yes", "y"):
        return True
    if text in ("0", "false", "f", "no", "n"):
        return False
    raise BadOption(f"{word} is not a boolean: {value!a}.")
