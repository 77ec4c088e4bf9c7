"""Pages of jobs: walk down the sequences from an index that the filter can use, a bounded number of rows per call."""

from __future__ import annotations

from typing import Any

from jobyard.domain.instant import Instant
from jobyard.domain.job import State
from jobyard.errors import BadInput
from jobyard.ports.admin_store import Filter, Page
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.seeing import see
from jobyard.stores.postgres.statements import Statements

# A page looks at no more rows than this; a filter that matches little answers short pages with a cursor.
LOOKED_AT_MOST = 20_000
# Looking for a text reads payloads: fewer rows, and no more bytes than this.
SEARCHED_ROWS = 5_000
SEARCHED_BYTES = 16 << 20
# Sorting a short shelf beats walking all jobs; a long one is walked, where matches are near.
SHORT_SHELF = 5_000
STATE = (
    "CASE WHEN d.state IS NOT NULL THEN d.state"
    " WHEN EXISTS (SELECT FROM {schema}.jobyard_lease l WHERE l.sequence = j.sequence) THEN 'RUNNING'"
    " ELSE 'PENDING' END"
)
SHELVES = {
    State.PENDING: "SELECT r.ord & 4398046511103 AS s FROM {schema}.jobyard_ready r"
    " UNION ALL SELECT d.sequence FROM {schema}.jobyard_delayed d",
    State.RUNNING: "SELECT l.sequence AS s FROM {schema}.jobyard_lease l",
    State.COMPLETED: "SELECT d.sequence AS s FROM {schema}.jobyard_done d WHERE d.bucket = 0",
    State.FAILED: "SELECT d.sequence AS s FROM {schema}.jobyard_done d WHERE d.bucket = 1",
    State.TIMEOUT: "SELECT d.sequence AS s FROM {schema}.jobyard_done d WHERE d.bucket = 1",
    State.CANCELLED: "SELECT d.sequence AS s FROM {schema}.jobyard_done d WHERE d.bucket = 1",
}
PLAIN = "convert_from({}, 'LATIN1') COLLATE \"C\""
SEARCH = f"strpos(lower({PLAIN.format('j.payload')}), {PLAIN}) > 0"
ALL = "SELECT j.sequence AS s FROM {schema}.jobyard_job j WHERE j.sequence < $1"


async def find(
    connection: Connection, statements: Statements, now: Instant | None, where: Filter, limit: int, cursor: str | None
) -> Page:
    before = position(cursor)
    source, narrow = await driver(connection, statements, where)
    conditions, parameters = conditions_of(where, narrow)
    walk, enough = walk_of(source, where)
    query = f"""
        SELECT j.id, j.sequence FROM ({walk}) walked JOIN {{schema}}.jobyard_job j ON j.sequence = walked.s
        LEFT JOIN {{schema}}.jobyard_done d ON d.sequence = j.sequence
        WHERE {conditions} ORDER BY walked.s DESC LIMIT {max(0, int(limit))}"""  # noqa: S608  # our own fragments
    rows = await connection.fetch(statements.qualify(query), before, *parameters)
    jobs = await see(connection, statements, now, [row[0] for row in rows], whole=False)
    found = tuple(jobs[row[0]] for row in rows if row[0] in jobs)
    if rows and len(rows) == limit:
        return Page(found, str(rows[-1][1]))
    # Not enough matched: is that all there is, or has the walk been long enough for one call?
    query = f"""
        SELECT far.last, far.enough, (SELECT j.created_at FROM {{schema}}.jobyard_job j WHERE j.sequence = far.last)
        FROM (SELECT min(s) AS last, {enough} AS enough FROM ({walk}) walked) far"""  # noqa: S608
    far = await connection.fetchrow(statements.qualify(query), before, *narrow)
    assert far is not None
    last, is_enough, created_at = far
    is_over = not is_enough or (created_at is not None and where.ends_at(created_at))
    return Page(found, None if is_over else str(last))


def walk_of(source: str, where: Filter) -> tuple[str, str]:
    """The rows that one call looks at, and what tells that there may be more of them."""
    most = LOOKED_AT_MOST if where.text is None else SEARCHED_ROWS
    walk = f"SELECT DISTINCT s FROM ({source}) driver WHERE s < $1 ORDER BY s DESC LIMIT {most}"  # noqa: S608
    if where.text is None:
        return walk, f"count(*) >= {most}"
    sized = f"""
        SELECT w.s, octet_length(p.payload) AS size, sum(octet_length(p.payload)) OVER (ORDER BY w.s DESC) AS searched
        FROM ({walk}) w JOIN {{schema}}.jobyard_job p ON p.sequence = w.s"""  # noqa: S608
    within = f"SELECT s, searched FROM ({sized}) sized WHERE searched - size < {SEARCHED_BYTES}"  # noqa: S608
    return within, f"count(*) >= {most} OR max(searched) >= {SEARCHED_BYTES}"


def position(cursor: str | None) -> int:
    if cursor is None:
        return 1 << 62
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise BadInput(f"{cursor!r} is not a cursor; use the one that the page before answered.")
    return int(cursor)


async def driver(connection: Connection, statements: Statements, where: Filter) -> tuple[str, list[Any]]:
    """The narrowest set of sequences that an index gives; its own parameter, if any, is $2."""
    job = "SELECT j.sequence AS s FROM {schema}.jobyard_job j WHERE "
    if where.ids is not None:
        return f"{job} j.id = ANY ($2::text[])", [list(where.ids)]
    if where.unique_key is not None:
        return f"{job} j.unique_key = ANY ($2::text[])", [[where.unique_key]]
    if where.tag is not None:
        tag = "SELECT t.sequence AS s FROM {schema}.jobyard_tag t WHERE t.tag = ($2::text[])[1] AND t.sequence < $1"
        return tag, [[where.tag]]
    if where.states is not None:
        sources = list(dict.fromkeys(SHELVES[state] for state in where.states))
        if not sources:
            return f"{ALL} AND false", []
        if await is_short(connection, statements, sources):
            return " UNION ALL ".join(sources), []
    if where.kind is not None:
        return f"{job} j.kind = ($2::text[])[1] AND j.sequence < $1", [[where.kind]]
    return ALL, []


async def is_short(connection: Connection, statements: Statements, sources: list[str]) -> bool:
    together = " UNION ALL ".join(sources)
    query = f"SELECT count(*) FROM (SELECT s FROM ({together}) u LIMIT {SHORT_SHELF + 1}) c"  # noqa: S608  # ours
    return int(await connection.fetchval(statements.qualify(query))) <= SHORT_SHELF


def conditions_of(where: Filter, parameters: list[Any]) -> tuple[str, list[Any]]:
    """The filter's other conditions, checked row by row."""
    conditions = ["true"]
    values = list(parameters)

    def add(condition: str, value: Any, as_type: str = "text[]") -> None:
        values.append(value)
        conditions.append(condition.format(f"${len(values) + 1}::{as_type}"))

    if where.ids is not None:
        add("j.id = ANY ({})", list(where.ids))
    if where.queue is not None:
        add("j.queue = ANY ({})", [where.queue])
    if where.group is not None:
        add("j.group_name = ANY ({})", [where.group])
    if where.kind is not None:
        add("j.kind = ANY ({})", [where.kind])
    if where.unique_key is not None:
        add("j.unique_key = ANY ({})", [where.unique_key])
    if where.states is not None:
        add(f"({STATE.replace('{', '{{').replace('}', '}}')}) = ANY ({{}})", [str(state) for state in where.states])
    if where.tag is not None:
        add(
            "EXISTS (SELECT FROM {{schema}}.jobyard_tag t WHERE t.sequence = j.sequence AND t.tag = ANY ({}))",
            [where.tag],
        )
    if where.created_after is not None:
        add("j.created_at >= {}", bounded(where.created_after), "bigint")
    if where.created_before is not None:
        add("j.created_at < {}", bounded(where.created_before), "bigint")
    if where.text is not None:
        needle = where.text_bytes()
        # One byte, one character, whatever the bytes: so that only ASCII letters have two cases. No text holds a NUL.
        add(SEARCH if b"\0" not in needle else "{} IS NULL", needle, "bytea")
    return " AND ".join(conditions), values


def bounded(instant: Instant) -> Instant:
    return max(-(1 << 62), min(1 << 62, instant))
