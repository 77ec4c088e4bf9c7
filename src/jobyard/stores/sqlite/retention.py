"""Retention: delete finished jobs beyond the limits of their queue, in bounded batches."""

from __future__ import annotations

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import SOON_AT_MOST, SOON_SECONDS
from jobyard.stores._shared.awaited_jobs import registered_until
from jobyard.stores.sqlite.codec import HAS_HISTORY, HAS_TAGS, IS_WORKFLOW, json_list
from jobyard.stores.sqlite.queue_rows import StoredQueue
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction

FinishedRow = tuple[int, str, int]  # sequence, state, flags
SOON = {"seconds": SOON_SECONDS, "at_most": SOON_AT_MOST}


def prune(tx: Transaction, limit: int) -> int:
    removed = 0
    for name in [row[0] for row in tx.cursor.execute(SQL["load_queues"]).fetchall()]:
        if removed < limit:
            removed += prune_queue(tx, tx.queue(name), limit - removed)
    tx.cursor.execute(SQL["delete_expired_keys"], (tx.now, limit))
    tx.cursor.execute(SQL["delete_expired_records"], (tx.now, limit))
    tx.cursor.execute(SQL["delete_expired_workers"], (tx.now,))
    tx.cursor.execute(SQL["delete_expired_awaited"], (tx.now,))
    return removed


def prune_queue(tx: Transaction, queue: StoredQueue, limit: int, slack: int = 0) -> int:
    """Delete the oldest finished jobs beyond retention, once there are more than `slack` of them."""
    settings, removed = queue.settings, 0
    for bucket, beyond, keep_seconds in (
        (0, queue.completed - settings.keep_completed, settings.keep_completed_seconds),
        (1, queue.failed + queue.cancelled - settings.keep_failed, settings.keep_failed_seconds),
    ):
        count = min(beyond, limit - removed)
        if beyond > slack and count > 0:
            excess = queue.completed + queue.failed + queue.cancelled - settings.keep_at_most
            old_until = tx.now - round(keep_seconds * 1000)
            rows, by_cap = _removable(tx, queue, bucket, count, old_until, excess if excess > slack else 0)
            if by_cap:
                queue.removed_by_cap += by_cap
                queue.removed_by_cap_at = tx.now
            if rows:
                _delete_finished(tx, queue, rows)
            removed += len(rows)
    return removed


def undelivered(tx: Transaction, sequences: list[int]) -> set[int]:
    """Return those of workflows whose end has yet to be delivered to their child jobs."""
    if not sequences:
        return set()
    return {row[0] for row in tx.cursor.execute(SQL["list_undelivered"], (json_list(sequences),))}


def _removable(
    tx: Transaction, queue: StoredQueue, bucket: int, count: int, old_until: Instant, excess: int
) -> tuple[list[FinishedRow], int]:
    """The oldest rows up to the first that its age keeps, and how many of them only the cap removes.

    Reads no more rows than it returns, and one: most calls find that the oldest job is young.
    """
    rows: list[FinishedRow] = []
    by_cap: set[int] = set()
    for sequence, state, flags, finished_at in tx.cursor.execute(
        SQL["list_oldest"], {"queue": queue.name, "bucket": bucket, "limit": count}
    ):
        if finished_at > old_until:
            if len(rows) >= excess:
                break
            by_cap.add(sequence)
        rows.append((sequence, state, flags))
    staying = undelivered(tx, [sequence for sequence, _, flags in rows if flags & IS_WORKFLOW])
    if rows and queue.settings.removes_soon:
        staying |= awaited_of(tx, [row[0] for row in rows])
    if staying:
        rows, by_cap = [row for row in rows if row[0] not in staying], by_cap - staying
    return rows, len(by_cap)


def awaited_of(tx: Transaction, sequences: list[int]) -> set[int]:
    """Those of the jobs for whose end a caller waits."""
    return {row[0] for row in tx.cursor.execute(SQL["list_awaited"], (json_list(sequences), tx.now))}


def register_awaited(tx: Transaction, job_id: str, timeout_seconds: float) -> None:
    until = registered_until(tx.now, timeout_seconds)
    tx.cursor.execute(SQL["register_awaited"], {"id": job_id, "until": until} | SOON)


def _delete_finished(tx: Transaction, queue: StoredQueue, rows: list[FinishedRow]) -> None:
    histories: list[int] = []
    for sequence, state, flags in rows:
        queue.tally(state, -1)
        if flags & HAS_TAGS:
            delete_tags(tx, sequence)
        if flags & (IS_WORKFLOW | HAS_HISTORY):
            histories.append(sequence)
    if histories:
        delete_histories(tx, histories)
    sequences = [sequence for sequence, _, _ in rows]
    tx.cursor.execute(SQL["delete_all_done"], (json_list(sequences),))
    delete_jobs(tx, sequences)


def delete_jobs(tx: Transaction, sequences: list[int]) -> None:
    parameters = (json_list(sequences),)
    tx.cursor.execute(SQL["delete_extras"], parameters)
    tx.cursor.execute(SQL["delete_jobs"], parameters)


def delete_histories(tx: Transaction, sequences: list[int]) -> None:
    tx.bare_cursor.execute(SQL["delete_histories"], (json_list(sequences),))


def delete_tags(tx: Transaction, sequence: int) -> None:
    (tags,) = tx.cursor.execute(SQL["load_tags"], (sequence,)).fetchone()
    names = msgspec.json.decode(tags, type=list[str])
    tx.cursor.executemany(SQL["delete_tag"], [(tag, sequence) for tag in names])
