"""Jobs: get, find (by descending sequence, at a bounded cost per page), change, prune."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from jobyard.domain.job import Job
from jobyard.ports.admin_store import CLOCK_SET_BACK, Action, Changed, Filter, Page
from jobyard.stores._shared.cursor import decode_cursor
from jobyard.stores._shared.sequence_query import SequenceQuery
from jobyard.stores.sqlite.change import change
from jobyard.stores.sqlite.codec import decode_job, json_list, load_job
from jobyard.stores.sqlite.connection import SqliteConnection
from jobyard.stores.sqlite.job_index import choose_sources, clamped, first_sequence
from jobyard.stores.sqlite.retention import prune
from jobyard.stores.sqlite.sql import SQL

LOAD_JOB_BY_SEQUENCE = SQL["load_job"].removesuffix("j.id = ?") + "j.sequence = ?"

# Bounds on the cost of one page: rows visited, and payload bytes searched.
MAX_ROWS_PER_PAGE = 20_000
MAX_BYTES_PER_PAGE = 16 << 20
TOO_OLD = -(1 << 50)
STATE_IN = (
    "coalesce((SELECT d.state FROM jobyard_done d WHERE d.sequence = j.sequence),"
    " (SELECT 'RUNNING' FROM jobyard_lease l WHERE l.sequence = j.sequence), 'PENDING')"
    " IN (SELECT value FROM json_each(?))"
)

# Up to this many sequences are sorted for a page at once, and up to that many when the newest jobs hold few matches.
FEW_ROWS, MAX_SORTED_ROWS = 100_000, 2_000_000


class SqliteJobs:
    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection

    async def get(self, job_id: str) -> Job | None:
        return await self._connection.read(lambda reader: load_job(reader, job_id))

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        return await self._connection.read(lambda reader: find_jobs(reader, where, limit, cursor))

    async def change(
        self,
        action: Action,
        job_ids: Sequence[str],
        *,
        reason: str = "",
        priority: int = 0,
        unless_requested: bool = False,
    ) -> Changed:
        return await self._connection.write(
            lambda tx: change(tx, action, job_ids, reason, priority, unless_requested=unless_requested)
        )

    async def prune(self, limit: int = 1000) -> int:
        return await self._connection.write(lambda tx: prune(tx, limit))


class Stretch(msgspec.Struct):
    """How far the search for one page has come."""

    last: int  # the sequence visited last
    visited: int = 0
    searched: int = 0  # bytes
    is_over: bool = False  # there are no more matches

    @property
    def is_at_bound(self) -> bool:
        return self.visited >= MAX_ROWS_PER_PAGE or self.searched >= MAX_BYTES_PER_PAGE


def find_jobs(connection: sqlite3.Connection, where: Filter, limit: int, cursor: str | None) -> Page:
    """Visit jobs by descending sequence, from the narrowest index that the filter can use."""
    before = first_sequence(connection, where, 1 << 62 if cursor is None else decode_cursor(cursor))
    jobs: list[Job] = []
    stretch = Stretch(before)
    for source in choose_sources(connection, where, MAX_ROWS_PER_PAGE, FEW_ROWS, MAX_SORTED_ROWS):
        stretch = Stretch(stretch.last)
        jobs += _visit(connection, where, source, limit - len(jobs), stretch)
        if len(jobs) == limit or stretch.is_over:
            break
    return Page(tuple(jobs), None if stretch.is_over else str(stretch.last))


def _visit(
    connection: sqlite3.Connection, where: Filter, source: SequenceQuery, limit: int, stretch: Stretch
) -> Iterator[Job]:
    """The matches in a bounded stretch of the source."""
    prefilter, values = _prefilter(where)
    query = f"SELECT s, ({prefilter}) FROM ({source.query}) WHERE s < ? ORDER BY s DESC LIMIT ?"  # noqa: S608  # constant parts
    parameters = (*values, *source.parameters, stretch.last, MAX_ROWS_PER_PAGE)
    number = 0
    for sequence, size in connection.execute(query, parameters):
        stretch.visited, stretch.last = stretch.visited + 1, sequence
        if size == TOO_OLD:
            stretch.is_over = True
            return
        stretch.searched += abs(size or 0) if where.searches else 0
        row = connection.execute(LOAD_JOB_BY_SEQUENCE, (sequence,)).fetchone() if size and size > 0 else None
        if row is not None and _matches(where, row) and where.matches(row[13], row[6]):
            number += 1
            yield decode_job(connection, row, whole=False)
        if number == limit or stretch.is_at_bound:
            return
    stretch.is_over = True


def _prefilter(where: Filter) -> tuple[str, tuple[Any, ...]]:
    """Return a subquery on the row of job `s`, and its parameters.

    Its value is the size of the payload, negative if the job does not match; TOO_OLD; or NULL if there is no such job.
    Loading a whole job costs twenty times as much, so only jobs that pass this are loaded.
    """
    conditions: list[tuple[str, Any]] = []
    for column, value in (("queue", where.queue), ("group_name", where.group), ("kind", where.kind)):
        if value is not None:
            conditions.append((f"j.{column} = ?", value))
    if where.created_after is not None:
        conditions.append(("j.created_at >= ?", clamped(where.created_after)))
    if where.created_before is not None:
        conditions.append(("j.created_at < ?", clamped(where.created_before)))
    if where.states is not None:
        conditions.append((STATE_IN, json_list(where.states)))
    if where.needle():
        # Compared as bytes, because lower() folds only the letters of ASCII.
        conditions.append(("instr(CAST(lower(CAST(j.payload AS TEXT)) AS BLOB), ?)", where.needle()))
    matches = " AND ".join(condition for condition, _ in conditions) or "1"
    past = 0 if where.created_after is None else clamped(where.created_after - CLOCK_SET_BACK)
    prefilter = (
        f"SELECT CASE WHEN j.created_at < ? THEN {TOO_OLD} WHEN {matches} THEN length(j.payload) + 1"  # noqa: S608
        " ELSE -length(j.payload) END FROM jobyard_job j WHERE j.sequence = s"
    )
    return prefilter, (past, *(value for _, value in conditions))


def _matches(where: Filter, row: tuple[Any, ...]) -> bool:
    state = row[22] or ("RUNNING" if row[17] is not None else "PENDING")
    return (
        (where.queue is None or row[3] == where.queue)
        and (where.group is None or row[4] == where.group)
        and (where.kind is None or row[2] == where.kind)
        and (where.states is None or state in where.states)
        and (where.unique_key is None or row[14] == where.unique_key)
        and (where.ids is None or row[1] in where.ids)
        and (where.tag is None or (row[15] is not None and where.tag in msgspec.json.decode(row[15])))
    )
