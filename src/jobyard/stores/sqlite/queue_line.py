"""Queue line: jobs join it when they become due."""

from __future__ import annotations

import time

from jobyard.domain.instant import FOREVER, Instant
from jobyard.stores.sqlite.codec import IS_WORKFLOW
from jobyard.stores.sqlite.history_rows import forget_wake
from jobyard.stores.sqlite.queue_rows import GroupRow
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction

# Jobs promoted per transaction: with all of a million due at one instant, renewals would wait for seconds. The time
# counts too, because other processes wait for the write lock meanwhile: a step takes 3 ms, on a busy machine 30 ms.
MAX_PROMOTED = 1000
MAX_PROMOTION_SECONDS = 0.01
PROMOTED_PER_STEP = 250


def next_due(tx: Transaction) -> Instant | None:
    if not tx.due_known:
        row = tx.bare_cursor.execute(SQL["next_delayed"]).fetchone()
        tx.due, tx.due_known = (None if row is None or row[0] >= FOREVER else row[0]), True
    return tx.due


def promote(tx: Transaction) -> bool:
    """Move the first due jobs into line; return True if more may be left for another transaction."""
    due = next_due(tx)
    if due is None or due > tx.now:
        return False
    left, end = MAX_PROMOTED, time.monotonic() + MAX_PROMOTION_SECONDS
    while left > 0:
        step = min(PROMOTED_PER_STEP, left)
        promoted = _promote_step(tx, step)
        if promoted < step:
            return False
        left -= promoted
        if time.monotonic() > end:
            break
    return True


def _promote_step(tx: Transaction, limit: int) -> int:
    rows = tx.cursor.execute(SQL["list_due"], (tx.now, limit)).fetchall()
    if not rows:
        return 0
    for _, _, queue, group_name, *_ in rows:
        group = tx.group(queue, group_name)
        tx.add_delayed(group, -1)
        tx.add_due(group)
    tx.cursor.executemany(SQL["delete_delayed"], [(run_at, sequence) for run_at, sequence, *_ in rows])
    tx.cursor.executemany(SQL["insert_ready"], [(queue, name, -prio, seq) for _, seq, queue, name, prio, *_ in rows])
    parked = [(row[1], row[6]) for row in rows if row[5] is not None]
    if parked:
        tx.cursor.executemany(SQL["clear_waiting_for"], [(sequence,) for sequence, _ in parked])
        for sequence in (sequence for sequence, flags in parked if flags & IS_WORKFLOW):
            forget_wake(tx, sequence)
    tx.bump()
    return len(rows)


def enqueue(tx: Transaction, group: GroupRow, sequence: int, priority: int, run_at: Instant) -> None:
    """Put a PENDING job in line if it is due, else among the delayed."""
    if run_at <= tx.now:
        tx.cursor.execute(SQL["insert_ready"], (group.queue.name, group.name, -priority, sequence))
        tx.add_due(group)
    else:
        tx.cursor.execute(SQL["insert_delayed"], (run_at, sequence))
        tx.add_delayed(group)
        tx.has_work = True  # waiting claims must learn the new earliest time
