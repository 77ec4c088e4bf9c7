"""Retention: keep the last so many finished jobs, and younger ones beyond that, in bounded batches."""

from __future__ import annotations

import msgspec

from jobyard.stores.sqlite.insert import HAS_TAGS
from jobyard.stores.sqlite.statements import as_list, sql
from jobyard.stores.sqlite.transaction import QueueRow, Transaction

PRUNABLE, DELETE_DONES = sql("prunable"), sql("delete_dones")
DELETE_JOBS, DELETE_EXTRAS = sql("delete_jobs"), sql("delete_extras")
JOB_TAGS, DELETE_TAG = sql("job_tags"), sql("delete_tag")
TRIM_UNIQUE, TRIM_RECORDS, TRIM_WORKERS = sql("trim_unique"), sql("trim_records"), sql("trim_workers")
LOAD_QUEUES = sql("load_queues")


def prune(tx: Transaction, limit: int) -> int:
    removed = 0
    for name in [row[0] for row in tx.cursor.execute(LOAD_QUEUES).fetchall()]:
        if removed < limit:
            removed += prune_queue(tx, tx.queue(name), limit - removed)
    tx.cursor.execute(TRIM_UNIQUE, (tx.now, limit))
    tx.cursor.execute(TRIM_RECORDS, (tx.now, limit))
    tx.cursor.execute(TRIM_WORKERS, (tx.now,))
    return removed


def prune_queue(tx: Transaction, queue: QueueRow, limit: int, slack: int = 0) -> int:
    """Remove the oldest finished jobs beyond the counts, once there are more than `slack` of them."""
    settings = queue.settings
    buckets = (
        (0, queue.completed - settings.keep_completed),
        (1, queue.failed + queue.cancelled - settings.keep_failed),
    )
    removed = 0
    for bucket, beyond in buckets:
        many = min(beyond, limit - removed)
        if beyond > slack and many > 0:
            oldest = tx.now - round(settings.keep_seconds * 1000)
            rows = tx.cursor.execute(PRUNABLE, (queue.name, bucket, many, oldest)).fetchall()
            remove(tx, queue, rows)
            removed += len(rows)
    return removed


def remove(tx: Transaction, queue: QueueRow, rows: list[tuple[int, str, int]]) -> None:
    """Finished jobs leave with everything that hangs on them."""
    for sequence, state, flags in rows:
        queue.tally(state, -1)
        if flags & HAS_TAGS:
            drop_tags(tx, sequence)
    sequences = [sequence for sequence, _, _ in rows]
    tx.cursor.execute(DELETE_DONES, (as_list(sequences),))
    drop(tx, sequences)


def drop(tx: Transaction, sequences: list[int]) -> None:
    listed = (as_list(sequences),)
    tx.cursor.execute(DELETE_EXTRAS, listed)
    tx.cursor.execute(DELETE_JOBS, listed)


def drop_tags(tx: Transaction, sequence: int) -> None:
    (tags,) = tx.cursor.execute(JOB_TAGS, (sequence,)).fetchone()
    names = msgspec.json.decode(tags, type=list[str])
    tx.cursor.executemany(DELETE_TAG, [(tag, sequence) for tag in names])
