"""Retention: delete finished jobs beyond the limits of their queue, in bounded batches."""

from __future__ import annotations

import msgspec

from jobyard.stores.sqlite.codec import HAS_TAGS, json_list
from jobyard.stores.sqlite.queue_rows import QueueRow
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction


def prune(tx: Transaction, limit: int) -> int:
    removed = 0
    for name in [row[0] for row in tx.cursor.execute(SQL["load_queues"]).fetchall()]:
        if removed < limit:
            removed += prune_queue(tx, tx.queue(name), limit - removed)
    tx.cursor.execute(SQL["delete_expired_keys"], (tx.now, limit))
    tx.cursor.execute(SQL["delete_expired_records"], (tx.now, limit))
    tx.cursor.execute(SQL["delete_expired_workers"], (tx.now,))
    return removed


def prune_queue(tx: Transaction, queue: QueueRow, limit: int, slack: int = 0) -> int:
    """Delete the oldest finished jobs beyond the limits, once there are more than `slack` of them."""
    settings = queue.settings
    buckets = (
        (0, queue.completed - settings.keep_completed),
        (1, queue.failed + queue.cancelled - settings.keep_failed),
    )
    removed = 0
    for bucket, beyond in buckets:
        count = min(beyond, limit - removed)
        if beyond > slack and count > 0:
            oldest = tx.now - round(settings.keep_seconds * 1000)
            parameters = {"queue": queue.name, "bucket": bucket, "limit": count, "finished_until": oldest}
            rows = tx.cursor.execute(SQL["list_prunable"], parameters).fetchall()
            _delete_finished(tx, queue, rows)
            removed += len(rows)
    return removed


def _delete_finished(tx: Transaction, queue: QueueRow, rows: list[tuple[int, str, int]]) -> None:
    for sequence, state, flags in rows:
        queue.tally(state, -1)
        if flags & HAS_TAGS:
            delete_tags(tx, sequence)
    sequences = [sequence for sequence, _, _ in rows]
    tx.cursor.execute(SQL["delete_all_done"], (json_list(sequences),))
    delete_jobs(tx, sequences)


def delete_jobs(tx: Transaction, sequences: list[int]) -> None:
    parameters = (json_list(sequences),)
    tx.cursor.execute(SQL["delete_extras"], parameters)
    tx.cursor.execute(SQL["delete_jobs"], parameters)


def delete_tags(tx: Transaction, sequence: int) -> None:
    (tags,) = tx.cursor.execute(SQL["load_tags"], (sequence,)).fetchone()
    names = msgspec.json.decode(tags, type=list[str])
    tx.cursor.executemany(SQL["delete_tag"], [(tag, sequence) for tag in names])
