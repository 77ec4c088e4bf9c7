"""Jobs: get, find, change and prune them.

`find` scans sequences downward by the best index for the filter, a bounded number of rows per call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobyard.domain.instant import Instant
from jobyard.domain.job import Job
from jobyard.ports.admin_store import Action, Changed, Filter, Page
from jobyard.stores._shared.cursor import decode_cursor
from jobyard.stores._shared.limits import DEFAULT_CANCEL_REASON
from jobyard.stores._shared.sequence_query import SequenceQuery
from jobyard.stores.postgres.codec import checked_priority, storable
from jobyard.stores.postgres.connection import PostgresConnection
from jobyard.stores.postgres.job_index import JobIndex, bounded
from jobyard.stores.postgres.job_rows import load_jobs
from jobyard.stores.postgres.notifier import PostgresNotifier
from jobyard.stores.postgres.pool import COMMAND_SECONDS, Connection
from jobyard.stores.postgres.statements import Statements

# Groups that one call of prune examines, so that its cost does not grow with the number of groups.
GROUPS_PER_PRUNE = 1000
# Queues in which it folds in jobs that are due; claims do that, too.
QUEUES_PER_PRUNE = 20

# Rows that one call scans; a filter that matches little gets short pages with a cursor.
MAX_SCANNED_ROWS = 20_000
# A text search reads payloads: fewer rows, and at most this many bytes.
MAX_SEARCHED_ROWS = 5_000
MAX_SEARCHED_BYTES = 16 << 20
# Up to this many jobs of the states or the queue are sorted at once, and up to that many when the newest jobs hold few
# matches.
FEW_ROWS, MAX_SORTED_ROWS = 50_000, 2_000_000
STATE = (
    "CASE WHEN d.state IS NOT NULL THEN d.state"
    " WHEN EXISTS (SELECT FROM {schema}.jobyard_lease l WHERE l.sequence = j.sequence) THEN 'RUNNING'"
    " ELSE 'PENDING' END"
)
LATIN1 = "convert_from({}, 'LATIN1') COLLATE \"C\""
SEARCH = f"strpos(lower({LATIN1.format('j.payload')}), {LATIN1}) > 0"


class PostgresJobs:
    def __init__(self, connection: PostgresConnection, notifier: PostgresNotifier) -> None:
        self._connection = connection
        self._notifier = notifier
        self._last_queue = ""  # the last one whose idle groups were all examined

    async def get(self, job_id: str) -> Job | None:
        return await self._connection.load_job(job_id)

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        now = self._connection.now()
        return await self._connection.run(
            lambda connection, statements: find_jobs(connection, statements, now, where, limit, cursor),
            pooled_seconds=COMMAND_SECONDS,
        )

    async def change(
        self,
        action: Action,
        job_ids: Sequence[str],
        *,
        reason: str = "",
        priority: int = 0,
        unless_requested: bool = False,
    ) -> Changed:
        stored_reason = storable(reason or (DEFAULT_CANCEL_REASON if action is Action.CANCEL else ""))
        now, checked = self._connection.now(), checked_priority(priority)
        word = "cancel_unless_requested" if action is Action.CANCEL and unless_requested else str(action)
        rows = await self._connection.fetch("change", now, word, list(job_ids), stored_reason, checked)
        changed = tuple(row[0] for row in rows if row[1])
        if changed:
            self._notifier.announce_work()
            if action is Action.CANCEL:
                self._notifier.announce_cancel()
            if action in (Action.CANCEL, Action.DELETE):
                self._notifier.announce_changes()
        return Changed(changed, tuple(row[0] for row in rows if not row[1]))

    async def prune(self, limit: int = 1000) -> int:
        connection, now, removed = self._connection, self._connection.now(), 0
        await connection.fetch_value("delete_expired", now, limit)
        # One queue per transaction, so that no queue is locked while another is folded or pruned.
        for (queue,) in await connection.fetch("foldable_queues", now, QUEUES_PER_PRUNE):
            await connection.fetch_value("fold_in", now, [queue])
        for (queue,) in await connection.fetch("prunable_queues", now):
            if removed < limit:
                removed += await connection.fetch_value("prune_queue", now, queue, limit - removed)
        queue = await connection.fetch_value("next_queue", self._last_queue)
        queue = queue or await connection.fetch_value("next_queue", "")
        if queue is not None and not await connection.fetch_value("delete_idle_groups", queue, GROUPS_PER_PRUNE):
            self._last_queue = queue
        return removed


async def find_jobs(
    connection: Connection, statements: Statements, now: Instant | None, where: Filter, limit: int, cursor: str | None
) -> Page:
    before = 1 << 62 if cursor is None else decode_cursor(cursor)
    index = JobIndex(connection, statements)
    before = await index.first_sequence(where, before)
    found: tuple[Job, ...] = ()
    cursor = None
    for source in await index.choose(where, MAX_SCANNED_ROWS, FEW_ROWS, MAX_SORTED_ROWS):
        page = await _scan(connection, statements, now, where, source, limit - len(found), before)
        found, cursor = (*found, *page.jobs), page.cursor
        if cursor is None or len(found) >= limit:
            break
        before = decode_cursor(cursor)
    return Page(found, cursor)


async def _scan(
    connection: Connection,
    statements: Statements,
    now: Instant | None,
    where: Filter,
    source: SequenceQuery,
    limit: int,
    before: int,
) -> Page:
    """The matches in a bounded stretch of the source."""
    conditions, parameters = conditions_of(where, source.parameters)
    scan, is_limited = scan_of(source.query, where)
    # OFFSET 0 keeps each lookup a lookup by key, one scanned row after the other until the page is full. Without it a
    # plan may read and sort all jobs for a page of fifty.
    job, done = (
        f"SELECT * FROM {{schema}}.{table} WHERE sequence = scanned.s OFFSET 0"  # noqa: S608
        for table in ("jobyard_job", "jobyard_done")
    )
    query = f"""
        SELECT j.id, j.sequence FROM ({scan}) scanned CROSS JOIN LATERAL ({job}) j LEFT JOIN LATERAL ({done}) d ON true
        WHERE {conditions} ORDER BY scanned.s DESC LIMIT {max(0, int(limit))}"""  # noqa: S608  # our own fragments
    rows = await connection.fetch(statements.qualify(query), before, *parameters)
    jobs = await load_jobs(connection, statements, now, [row[0] for row in rows], whole=False)
    found = tuple(jobs[row[0]] for row in rows if row[0] in jobs)
    if where.payload:
        found = tuple(job for job in found if where.matches(job.created_at, bytes(job.payload)))
    if rows and len(rows) == limit:
        return Page(found, str(rows[-1][1]))
    # A short page: either there are no more rows, or the scan reached its limit.
    query = f"""
        SELECT e.last, e.limited, (SELECT j.created_at FROM {{schema}}.jobyard_job j WHERE j.sequence = e.last)
        FROM (SELECT min(s) AS last, {is_limited} AS limited FROM ({scan}) scanned) e"""  # noqa: S608
    row = await connection.fetchrow(statements.qualify(query), before, *source.parameters)
    assert row is not None
    last, limited, created_at = row
    is_over = not limited or (created_at is not None and where.ends_at(created_at))
    return Page(found, None if is_over else str(last))


def scan_of(source: str, where: Filter) -> tuple[str, str]:
    """The query of the rows that one call scans, and the condition that there may be more of them."""
    limit = MAX_SEARCHED_ROWS if where.searches else MAX_SCANNED_ROWS
    scan = f"SELECT DISTINCT s FROM ({source}) source WHERE s < $1 ORDER BY s DESC LIMIT {limit}"  # noqa: S608
    if not where.searches:
        return scan, f"count(*) >= {limit}"
    sized = f"""
        SELECT w.s, octet_length(p.payload) AS size, sum(octet_length(p.payload)) OVER (ORDER BY w.s DESC) AS searched
        FROM ({scan}) w JOIN {{schema}}.jobyard_job p ON p.sequence = w.s"""  # noqa: S608
    within = f"SELECT s, searched FROM ({sized}) sized WHERE searched - size < {MAX_SEARCHED_BYTES}"  # noqa: S608
    return within, f"count(*) >= {limit} OR max(searched) >= {MAX_SEARCHED_BYTES}"


def conditions_of(where: Filter, parameters: Sequence[Any]) -> tuple[str, list[Any]]:
    """The conditions of the filter, checked row by row."""
    conditions = ["true"]
    values = list(parameters)

    def add(condition: str, value: Any, as_type: str = "text[]") -> None:
        values.append(value)
        conditions.append(condition.format(f"${len(values) + 1}::{as_type}"))

    equal = {"queue": where.queue, "group_name": where.group, "kind": where.kind, "unique_key": where.unique_key}
    for column, value in equal.items():
        if value is not None:
            add(f"j.{column} = ANY ({{}})", [value])
    if where.ids is not None:
        add("j.id = ANY ({})", list(where.ids))
    if where.states is not None:
        add(f"({STATE.replace('{', '{{').replace('}', '}}')}) = ANY ({{}})", [str(state) for state in where.states])
    if where.tag is not None:
        tagged = "EXISTS (SELECT FROM {{schema}}.jobyard_tag t WHERE t.sequence = j.sequence AND t.tag = ANY ({}))"
        add(tagged, [where.tag])
    if where.created_after is not None:
        add("j.created_at >= {}", bounded(where.created_after), "bigint")
    if where.created_before is not None:
        add("j.created_at < {}", bounded(where.created_before), "bigint")
    if where.searches:
        needle = where.needle()
        # As LATIN1 each byte is a character, and lower() with collation C changes ASCII letters only. Text has no NUL.
        add(SEARCH if b"\0" not in needle else "{} IS NULL", needle, "bytea")
    return " AND ".join(conditions), values
