"""What people read: one job, pages of jobs, queues, groups, the facts behind an explanation, an audit."""

from __future__ import annotations

import sqlite3
from typing import Any, TypeAlias

import msgspec

from jobyard.domain.admission import UNLIMITED, Group, Queue
from jobyard.domain.explain import Standing
from jobyard.domain.instant import Instant
from jobyard.domain.job import AttemptError, Job, LogLine, Progress, State, Step
from jobyard.errors import BadInput, JobNotFound
from jobyard.ports.admin_store import CLOCK_SET_BACK, Filter, GroupInfo, Page, QueueInfo
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.stores._shared.job_rows import JobExtras, job_from_row
from jobyard.stores.sqlite.statements import as_list, sql
from jobyard.stores.sqlite.transaction import QueueRow

Connection: TypeAlias = sqlite3.Connection

SEE_JOB, LIST_EXTRA = sql("see_job"), sql("list_extra")
SEE_BY_SEQUENCE = SEE_JOB.removesuffix("j.id = ?") + "j.sequence = ?"
LOAD_QUEUE, LOAD_QUEUES, LIST_GROUPS, LOAD_GROUP = (
    sql("load_queue"),
    sql("load_queues"),
    sql("list_groups"),
    sql("load_group"),
)
STANDING_AHEAD, STANDING_GROUPS = sql("standing_ahead"), sql("standing_groups")
RUNNING_IN_GROUP, RUNNING_IN_QUEUE, LIST_WORKERS = (
    sql("running_in_group"),
    sql("running_in_queue"),
    sql("list_workers"),
)

COUNTED_AT_MOST = 1000
# A page looks at no more rows than this; a filter that matches little answers short pages with a cursor.
LOOKED_AT_MOST = 20_000
# And a search reads no more payload than this.
SEARCHED_AT_MOST = 16 << 20
TOO_OLD = -(1 << 50)


def get(connection: Connection, job_id: str) -> Job | None:
    row = connection.execute(SEE_JOB, (job_id,)).fetchone()
    return None if row is None else seen(connection, row, whole=True)


def end_of(connection: Connection, job_id: str) -> tuple[bool, Job | None]:
    job = get(connection, job_id)
    if job is None:
        raise JobNotFound.of(job_id)
    return job.state.is_final, job


def seen(connection: Connection, row: tuple[Any, ...], *, whole: bool) -> Job:
    return job_from_row(row, extras_of(connection.execute(LIST_EXTRA, (row[0],)), whole))


def extras_of(rows: sqlite3.Cursor, whole: bool) -> JobExtras:
    """A list of jobs shows them without the long parts."""
    extras = JobExtras()
    for what, _, data in rows:
        if what == "error":
            error = msgspec.json.decode(data, type=AttemptError)
            extras.errors.append(error if whole else msgspec.structs.replace(error, traceback=None))
        elif what == "progress":
            extras.progress = msgspec.json.decode(data, type=Progress)
        elif whole and what == "log":
            extras.log.append(msgspec.json.decode(data, type=LogLine))
        elif whole and what == "step":
            extras.steps.append(msgspec.json.decode(data, type=Step))
    return extras


def find(connection: Connection, where: Filter, limit: int, cursor: str | None) -> Page:
    """Walk down the sequences from an index that the filter can use, looking at a bounded number of rows."""
    source, parameters = driver(connection, where)
    sieve, values = sieve_of(where)
    before = position(cursor)
    query = f"SELECT s, ({sieve}) FROM ({source}) WHERE s < ? ORDER BY s DESC LIMIT ?"  # noqa: S608  # our own fragments
    jobs: list[Job] = []
    looked, searched, last = 0, 0, before
    for sequence, size in connection.execute(query, (*values, *parameters, before, LOOKED_AT_MOST)):
        looked, last = looked + 1, sequence
        if size == TOO_OLD:
            return Page(tuple(jobs), None)
        searched += abs(size or 0) if where.text is not None else 0
        row = connection.execute(SEE_BY_SEQUENCE, (sequence,)).fetchone() if size and size > 0 else None
        if row is not None and matches(where, row) and where.matches(row[13], row[6]):
            jobs.append(seen(connection, row, whole=False))
        if len(jobs) == limit or searched >= SEARCHED_AT_MOST:
            break
    exhausted = len(jobs) < limit and looked < LOOKED_AT_MOST and searched < SEARCHED_AT_MOST
    return Page(tuple(jobs), None if exhausted else str(last))


def sieve_of(where: Filter) -> tuple[str, tuple[Any, ...]]:
    """What the job's own row says of `s`: the size of its payload, negative if it does not fit; TOO_OLD; NULL if gone.

    Looking at a whole job costs twenty times as much, so only those that come through are looked at.
    """
    conditions: list[tuple[str, Any]] = []
    for column, value in (("queue", where.queue), ("group_name", where.group), ("kind", where.kind)):
        if value is not None:
            conditions.append((f"j.{column} = ?", value))
    if where.created_after is not None:
        conditions.append(("j.created_at >= ?", storable(where.created_after)))
    if where.created_before is not None:
        conditions.append(("j.created_at < ?", storable(where.created_before)))
    if where.text:
        # As bytes, in which only the letters of ASCII have two cases.
        conditions.append(("instr(CAST(lower(CAST(j.payload AS TEXT)) AS BLOB), ?)", where.text_bytes()))
    fits = " AND ".join(condition for condition, _ in conditions) or "1"
    past = 0 if where.created_after is None else storable(where.created_after - CLOCK_SET_BACK)
    sieve = (
        f"SELECT CASE WHEN j.created_at < ? THEN {TOO_OLD} WHEN {fits} THEN length(j.payload) + 1"  # noqa: S608
        " ELSE -length(j.payload) END FROM jobyard_job j WHERE j.sequence = s"
    )
    return sieve, (past, *(value for _, value in conditions))


def storable(instant: Instant) -> Instant:
    return max(-(1 << 62), min(1 << 62, instant))


def position(cursor: str | None) -> int:
    if cursor is None:
        return 1 << 62
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise BadInput(f"{cursor!r} is not a cursor; use the one that the page before answered.")
    return int(cursor)


def driver(connection: Connection, where: Filter) -> tuple[str, tuple[Any, ...]]:
    """The narrowest set of sequences that an index gives; the other conditions are checked row by row."""
    if where.ids is not None:
        return "SELECT sequence AS s FROM jobyard_job WHERE id IN (SELECT value FROM json_each(?))", (
            as_list(where.ids),
        )
    if where.unique_key is not None:
        return "SELECT sequence AS s FROM jobyard_job WHERE unique_key = ?", (where.unique_key,)
    if where.tag is not None:
        return "SELECT sequence AS s FROM jobyard_tag WHERE tag = ?", (where.tag,)
    if where.states is not None:
        shelves = {SHELVES[state] for state in where.states}
        counts = connection.execute(
            "SELECT total(waiting + delayed), total(running), total(completed), total(failed + cancelled)"
            " FROM jobyard_queue"
        ).fetchone()
        # Sorting a short shelf beats walking all jobs; a long one is walked, where matches are near.
        if sum(counts[shelf] for shelf in shelves) <= LOOKED_AT_MOST:
            return " UNION ALL ".join(SHELF_SOURCES[shelf] for shelf in sorted(shelves)), ()
    if where.kind is not None:
        return "SELECT sequence AS s FROM jobyard_job WHERE kind = ?", (where.kind,)
    return "SELECT sequence AS s FROM jobyard_job", ()


SHELVES = dict.fromkeys(State, 3) | {State.PENDING: 0, State.RUNNING: 1, State.COMPLETED: 2}
SHELF_SOURCES = (
    "SELECT sequence AS s FROM jobyard_ready UNION ALL SELECT sequence AS s FROM jobyard_delayed",
    "SELECT sequence AS s FROM jobyard_lease",
    "SELECT sequence AS s FROM jobyard_done WHERE bucket = 0",
    "SELECT sequence AS s FROM jobyard_done WHERE bucket = 1",
)


def matches(where: Filter, row: tuple[Any, ...]) -> bool:
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


def queues(connection: Connection) -> list[QueueInfo]:
    found = (QueueRow.load(row) for row in connection.execute(LOAD_QUEUES))
    return [
        QueueInfo(
            name=queue.name,
            settings=queue.settings,
            paused=bool(queue.paused),
            waiting=queue.waiting,
            delayed=queue.delayed,
            running=queue.running,
            completed=queue.completed,
            failed=queue.failed,
            cancelled=queue.cancelled,
        )
        for queue in found
    ]


def groups(connection: Connection, queue: str, limit: int, after: str | None) -> list[GroupInfo]:
    row = connection.execute(LOAD_QUEUE, (queue,)).fetchone()
    if row is None:
        return []
    usual = QueueRow.load(row).settings.max_per_group
    first = connection.execute(LOAD_GROUP, (queue, "")).fetchall() if after is None else []
    rows = [("", limit_, paused, waiting, delayed, running) for limit_, paused, _, waiting, delayed, running in first]
    rows += connection.execute(LIST_GROUPS, (queue, after or "", max(0, limit - len(rows)))).fetchall()
    return [
        GroupInfo(
            queue=queue,
            name=name or None,
            limit=own,
            effective_limit=own if own is not None else usual if name else None,
            paused=bool(paused),
            waiting=waiting,
            delayed=delayed,
            running=running,
        )
        for name, own, paused, waiting, delayed, running in rows
    ]


def workers(connection: Connection, now: Instant) -> list[WorkerInfo]:
    return [msgspec.json.decode(data, type=WorkerInfo) for (data,) in connection.execute(LIST_WORKERS, (now,))]


def standing(connection: Connection, job_id: str, now: Instant) -> Standing:
    job = get(connection, job_id)
    if job is None:
        raise JobNotFound.of(job_id)
    row = QueueRow.load(connection.execute(LOAD_QUEUE, (job.queue,)).fetchone())
    name = job.group or ""
    found = connection.execute(LOAD_GROUP, (job.queue, name)).fetchone()
    own, paused, turn, waiting, _, running = found or (None, 0, 0, 0, 0, 0)
    cap = COUNTED_AT_MOST
    ahead_of = (job.queue, name, -job.priority, job.sequence, cap + 1)
    ahead = connection.execute(STANDING_AHEAD, ahead_of).fetchone()[0]
    line = connection.execute(STANDING_GROUPS, (job.queue, turn if waiting else UNLIMITED, name, cap + 1)).fetchone()[0]
    queue = Queue(
        job.queue, row.settings.max_running, row.settings.max_per_group, bool(row.paused), row.running, row.turn
    )
    group = Group(job.group, own, bool(paused), running, waiting, turn)
    limit = own if own is not None else row.max_per_group if name else UNLIMITED
    holders = connection.execute(RUNNING_IN_GROUP, (job.queue, name))
    if running < limit and row.running >= row.max_running:
        holders = connection.execute(RUNNING_IN_QUEUE, (job.queue,))
    return Standing(
        job=job,
        now=now,
        queue=queue,
        group=group,
        ahead_in_group=min(cap, ahead),
        groups_ahead=min(cap, line),
        counts_capped=max(ahead, line) > cap,
        running_ids=tuple(job_id for (job_id,) in holders),
        workers=sum(worker.takes(job.queue) for worker in workers(connection, now)),
    )
