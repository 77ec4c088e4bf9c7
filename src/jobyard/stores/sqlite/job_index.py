"""Which index a search uses: the narrowest set of sequences that one gives, and where in it the page begins."""

from __future__ import annotations

import sqlite3
from typing import Any

from jobyard.domain.instant import Instant
from jobyard.domain.job import State
from jobyard.ports.admin_store import CLOCK_SET_BACK, Filter
from jobyard.stores._shared.sequence_query import SequenceQuery
from jobyard.stores.sqlite.codec import json_list

ALL = "SELECT sequence AS s FROM jobyard_job"
IDS = "SELECT sequence AS s FROM jobyard_job WHERE id IN (SELECT value FROM json_each(?))"
GROUP = f"{ALL} WHERE group_name = ? AND group_name <> ''"
KIND = f"{ALL} WHERE kind = ?"
ENDED = "SELECT sequence AS s FROM jobyard_done WHERE bucket = 1 AND state = ?"
ALL_ENDED = "SELECT sequence AS s FROM jobyard_done"
# The tables that hold the jobs of each state, whole and of one queue, with the counts of the queues.
WAITING, DELAYED, RUNNING, COMPLETED, OTHER_FINISHED, OWN_DELAYED = range(6)
OF_STATE = {State.PENDING: (WAITING, DELAYED), State.RUNNING: (RUNNING,), State.COMPLETED: (COMPLETED,)}
TABLES = ("jobyard_ready", "jobyard_delayed", "jobyard_lease", "jobyard_done", "jobyard_done")
CONDITIONS = ("", "", "", "bucket = 0", "bucket = 1")
COUNTS = (
    "SELECT total(waiting), total(delayed), total(running), total(completed), total(failed + cancelled),"
    " total(delayed)"
    " FROM jobyard_queue"
)
LAST = "SELECT coalesce(max(sequence), 0) + 1 FROM jobyard_job"
AT_OR_BEFORE = "SELECT sequence, created_at FROM jobyard_job WHERE sequence <= ? ORDER BY sequence DESC LIMIT 1"


def choose_sources(
    connection: sqlite3.Connection, where: Filter, most_visited: int, few: int, most_sorted: int
) -> list[SequenceQuery]:
    """Where to look for a page, and where to go on when many rows did not fill it.

    The other conditions are checked per row. Sets of up to `few` sequences are sorted at once. Larger ones, of up to
    `most_sorted`, only when the newest jobs hold few matches: then they are old, and a walk down to them would take
    many calls. Not to search in payloads: reading those takes longer than the walk.
    """
    if where.ids is not None:
        return [SequenceQuery(IDS, (json_list(where.ids),))]
    if where.unique_key is not None:
        return [SequenceQuery(f"{ALL} WHERE unique_key = ?", (where.unique_key,))]
    if where.tag is not None:
        return [SequenceQuery("SELECT sequence AS s FROM jobyard_tag WHERE tag = ?", (where.tag,))]
    ordered = in_order(where)
    for source in ordered:
        if is_within(connection, source, most_visited):
            return [source]
    walk = ordered[0] if ordered else SequenceQuery(ALL)
    if where.queue is None and where.states is None:
        return [walk]
    tables = tables_of(where)
    counts = connection.execute(*counts_of(where)).fetchone()
    if not counts[OWN_DELAYED] and DELAYED in tables:
        tables.remove(DELAYED)
    number = sum(counts[table] for table in tables)
    found = union(tables, where.queue)
    return [found] if number <= few else [walk, found] if number <= most_sorted and not where.searches else [walk]


def in_order(where: Filter) -> list[SequenceQuery]:
    """Indexes that give the sequences in order."""
    found = []
    if where.group:
        found.append(SequenceQuery(GROUP, (where.group,)))
    if where.kind is not None:
        found.append(SequenceQuery(KIND, (where.kind,)))
    if where.states and OTHER_FINISHED in tables_of(where) and len(tables_of(where)) == 1:
        found.append(SequenceQuery(" UNION ALL ".join([ENDED] * len(where.states)), tuple(map(str, where.states))))
    elif where.states and all(state.is_final for state in where.states):
        found.append(SequenceQuery(ALL_ENDED))
    return found


def is_within(connection: sqlite3.Connection, source: SequenceQuery, most: int) -> bool:
    """Whether the index has few enough sequences for one page to visit all."""
    query = f"SELECT count(*) FROM (SELECT 1 FROM ({source.query}) LIMIT ?)"  # noqa: S608  # constant parts
    return int(connection.execute(query, (*source.parameters, most + 1)).fetchone()[0]) <= most


def tables_of(where: Filter) -> list[int]:
    """The tables that can hold a match, by the states."""
    if where.states is None:
        return list(range(len(TABLES)))
    return sorted({table for state in where.states for table in OF_STATE.get(state, (OTHER_FINISHED,))})


def counts_of(where: Filter) -> tuple[str, tuple[Any, ...]]:
    """Delayed jobs are not stored by queue, so those of all queues are read if the queue has any."""
    if where.queue is None:
        return COUNTS, ()
    of_queue = COUNTS.replace("total(delayed)", "(SELECT total(delayed) FROM jobyard_queue)", 1)
    return f"{of_queue} WHERE name = ?", (where.queue,)


def union(tables: list[int], queue: str | None) -> SequenceQuery:
    parts: list[str] = []
    parameters: list[Any] = []
    for table in tables:
        conditions = [CONDITIONS[table]] if CONDITIONS[table] else []
        if queue is not None and table == DELAYED:
            conditions.append("(SELECT j.queue FROM jobyard_job j WHERE j.sequence = jobyard_delayed.sequence) = ?")
            parameters.append(queue)
        elif queue is not None:
            conditions.insert(0, "queue = ?")
            parameters.append(queue)
        elif table in (COMPLETED, OTHER_FINISHED):
            # So that the index of the finished jobs is used, which begins with the queue.
            conditions.insert(0, "queue IN (SELECT name FROM jobyard_queue)")
        suffix = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        parts.append(f"SELECT sequence AS s FROM {TABLES[table]}{suffix}")  # noqa: S608  # constant parts
    return SequenceQuery(" UNION ALL ".join(parts) or f"{ALL} WHERE 0", tuple(parameters))


def first_sequence(connection: sqlite3.Connection, where: Filter, before: int) -> int:
    """Skip jobs that are too new, by bisection: creation times ascend with the sequences, up to CLOCK_SET_BACK."""
    if where.created_before is None:
        return before
    newest = clamped(where.created_before + CLOCK_SET_BACK)
    low, high = 0, min(before, int(connection.execute(LAST).fetchone()[0]))
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(AT_OR_BEFORE, (middle,)).fetchone()
        if row is None or row[1] < newest:
            low = middle + 1
        else:
            high = row[0]
    return min(before, low)


def clamped(instant: Instant) -> Instant:
    """Bring the instant into the range of SQLite's integers."""
    return max(-(1 << 62), min(1 << 62, instant))
