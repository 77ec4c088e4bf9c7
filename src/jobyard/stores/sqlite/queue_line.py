"""Queue line: jobs join it when they become due."""

from __future__ import annotations

from jobyard.domain.instant import FOREVER, Instant
from jobyard.stores.sqlite.queue_rows import GroupRow
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction

# Jobs promoted per transaction, about 20 ms: with all of a million due at one instant, renewals would wait for seconds.
MAX_PROMOTED = 1000


def next_due(tx: Transaction) -> Instant | None:
    if not tx.due_known:
        row = tx.bare_cursor.execute(SQL["next_delayed"]).fetchone()
        tx.due, tx.due_known = (None if row is None or row[0] >= FOREVER else row[0]), True
    return tx.due


def promote(tx: Transaction) -> bool:
    """Move the first due jobs into line; return True if more are left for another transaction."""
    due = next_due(tx)
    if due is None or due > tx.now:
        return False
    rows = tx.cursor.execute(SQL["list_due"], (tx.now, MAX_PROMOTED)).fetchall()
    for _, _, queue, group_name, _, _ in rows:
        group = tx.group(queue, group_name)
        tx.add_delayed(group, -1)
        tx.add_due(group)
    tx.cursor.executemany(SQL["delete_delayed"], [(run_at, sequence) for run_at, sequence, *_ in rows])
    tx.cursor.executemany(SQL["insert_ready"], [(queue, name, -prio, seq) for _, seq, queue, name, prio, _ in rows])
    parked = [(sequence,) for _, sequence, _, _, _, waiting_for in rows if waiting_for is not None]
    if parked:
        tx.cursor.executemany(SQL["clear_waiting_for"], parked)
    tx.bump()
    return len(rows) == MAX_PROMOTED


def enqueue(tx: Transaction, group: GroupRow, sequence: int, priority: int, run_at: Instant) -> None:
    """Put a PENDING job in line if it is due, else among the delayed."""
    if run_at <= tx.now:
        tx.cursor.execute(SQL["insert_ready"], (group.queue.name, group.name, -priority, sequence))
        tx.add_due(group)
    else:
        tx.cursor.execute(SQL["insert_delayed"], (run_at, sequence))
        tx.add_delayed(group)
        tx.has_work = True  # waiting claims must learn the new earliest time
