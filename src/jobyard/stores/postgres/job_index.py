"""Which index a search uses: the narrowest set of sequences that one gives, and where in it the page begins."""

from __future__ import annotations

from jobyard.domain.instant import Instant
from jobyard.domain.job import State
from jobyard.ports.admin_store import CLOCK_SET_BACK, Filter
from jobyard.stores._shared.sequence_query import SequenceQuery
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.statements import Statements

JOB = "SELECT j.sequence AS s FROM {schema}.jobyard_job j WHERE j.sequence < $1"
ENDED = (
    "SELECT d.sequence AS s FROM {schema}.jobyard_done d"
    " WHERE d.bucket = 1 AND d.sequence < $1 AND d.state = ANY ($2::text[])"
)
ALL_ENDED = "SELECT d.sequence AS s FROM {schema}.jobyard_done d WHERE d.sequence < $1"
# The tables that hold the jobs of each state; where a queue is given, its index is used.
PENDING = (
    "SELECT r.ord & 4398046511103 AS s FROM {schema}.jobyard_ready r WHERE {queue}",
    "SELECT d.sequence AS s FROM {schema}.jobyard_delayed d WHERE {queue}",
)
RUNNING = ("SELECT l.sequence AS s FROM {schema}.jobyard_lease l WHERE {queue}",)
DONE = "SELECT d.sequence AS s FROM {schema}.jobyard_done d WHERE {queue} AND d.bucket = "
COMPLETED, OTHERS = (f"{DONE}0",), (f"{DONE}1",)
TABLES = {State.PENDING: PENDING, State.RUNNING: RUNNING, State.COMPLETED: COMPLETED}
COUNTS = {State.PENDING: "waiting + delayed", State.RUNNING: "running", State.COMPLETED: "completed"}
OTHER_COUNTS = "failed + cancelled"


class JobIndex:
    def __init__(self, connection: Connection, statements: Statements) -> None:
        self._connection = connection
        self._statements = statements

    async def choose(self, where: Filter, most_scanned: int, few: int, most_sorted: int) -> list[SequenceQuery]:
        """Where to look for a page, and where to go on when many rows did not fill it.

        The other conditions are checked per row. Sets of up to `few` sequences are sorted at once. Larger ones, of up
        to `most_sorted`, only when the newest jobs hold few matches: then they are old, and a scan down to them would
        take many calls.
        """
        if where.ids is not None:
            return [SequenceQuery(f"{JOB} AND j.id = ANY ($2::text[])", [list(where.ids)])]
        if where.unique_key is not None:
            return [SequenceQuery(f"{JOB} AND j.unique_key = ANY ($2::text[])", [[where.unique_key]])]
        if where.tag is not None:
            tag = "SELECT t.sequence AS s FROM {schema}.jobyard_tag t WHERE t.tag = ($2::text[])[1] AND t.sequence < $1"
            return [SequenceQuery(tag, [[where.tag]])]
        ordered = in_order(where)
        for source in ordered:
            if await self._is_within(source, most_scanned):
                return [source]
        if where.states is not None and not where.states:
            return [SequenceQuery(f"{JOB} AND false", [])]
        scan = ordered[0] if ordered else SequenceQuery(JOB, [])
        if where.queue is None and where.states is None:
            return [scan]
        tables = tables_of(where)
        if await self._is_within(tables, few):
            return [tables]
        return [scan] if where.searches or await self._count(where) > most_sorted else [scan, tables]

    async def _count(self, where: Filter) -> int:
        """About how many jobs the tables of the filter hold; what their inboxes hold is not counted yet."""
        states = list(State) if where.states is None else where.states
        counts = " + ".join(dict.fromkeys(COUNTS.get(state, OTHER_COUNTS) for state in states))
        query = f"SELECT coalesce(sum({counts}), 0) FROM {{schema}}.jobyard_queue WHERE name = $1 OR $1::text IS NULL"  # noqa: S608
        return int(await self._connection.fetchval(self._statements.qualify(query), where.queue))

    async def _is_within(self, source: SequenceQuery, most: int) -> bool:
        query = f"SELECT count(*) FROM (SELECT s FROM ({source.query}) u WHERE s < $1 LIMIT {most + 1}) c"  # noqa: S608
        found = await self._connection.fetchval(self._statements.qualify(query), 1 << 62, *source.parameters)
        return int(found) <= most

    async def first_sequence(self, where: Filter, before: int) -> int:
        """Skip jobs that are too new, by bisection: creation times ascend with the sequences, up to CLOCK_SET_BACK."""
        if where.created_before is None:
            return before
        newest = bounded(where.created_before + CLOCK_SET_BACK)
        statement = self._statements["job_at_or_before"]
        last = await self._connection.fetchrow(statement, before)
        low, high = 0, 0 if last is None else min(before, last[0] + 1)
        while low < high:
            middle = (low + high) // 2
            row = await self._connection.fetchrow(statement, middle)
            if row is None or row[1] < newest:
                low = middle + 1
            else:
                high = row[0]
        return min(before, low)


def in_order(where: Filter) -> list[SequenceQuery]:
    """Indexes that give the sequences in order."""
    found = []
    if where.group:
        found.append(SequenceQuery(f"{JOB} AND j.group_name = ($2::text[])[1] AND j.group_name <> ''", [[where.group]]))
    if where.kind is not None:
        found.append(SequenceQuery(f"{JOB} AND j.kind = ($2::text[])[1]", [[where.kind]]))
    if where.states and not any(state in TABLES for state in where.states):
        found.append(SequenceQuery(ENDED, [[str(state) for state in where.states]]))
    elif where.states and all(state.is_final for state in where.states):
        found.append(SequenceQuery(ALL_ENDED, []))
    return found


def tables_of(where: Filter) -> SequenceQuery:
    states = list(State) if where.states is None else where.states
    tables = dict.fromkeys(table for state in states for table in TABLES.get(state, OTHERS))
    condition = "queue = ($2::text[])[1]" if where.queue is not None else "true"
    query = " UNION ALL ".join(tables).replace("{queue}", condition)
    return SequenceQuery(query, [] if where.queue is None else [[where.queue]])


def bounded(instant: Instant) -> Instant:
    return max(-(1 << 62), min(1 << 62, instant))
