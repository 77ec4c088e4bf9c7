"""Joining the line: jobs whose time has come, and jobs that go back to waiting."""

from __future__ import annotations

from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.stores.sqlite.statements import sql
from jobyard.stores.sqlite.transaction import GroupRow, Transaction

INSERT_READY, INSERT_DELAYED, DELETE_DELAYED = sql("insert_ready"), sql("insert_delayed"), sql("delete_delayed")
NEXT_DELAYED, DUE_DELAYED = sql("next_delayed"), sql("due_delayed")
CLEAR_WAITING_FOR = sql("clear_waiting_for")

# Jobs promoted per transaction: a million jobs due at one instant must not hold the write lock for seconds.
PROMOTE_AT_ONCE = 5000


def next_due(tx: Transaction) -> Instant | None:
    if not tx.due_known:
        row = tx.bare_cursor.execute(NEXT_DELAYED).fetchone()
        tx.due, tx.due_known = (None if row is None or row[0] >= FOREVER else row[0]), True
    return tx.due


def promote(tx: Transaction) -> bool:
    """Let jobs whose time has come join; True when there are more than one transaction should take."""
    due = next_due(tx)
    if due is None or due > tx.now:
        return False
    rows = tx.cursor.execute(DUE_DELAYED, (tx.now, PROMOTE_AT_ONCE)).fetchall()
    for _, _, queue, group_name, _, _ in rows:
        group = tx.group(queue, group_name)
        tx.delay(group, -1)
        tx.arrive(group)
    tx.cursor.executemany(DELETE_DELAYED, [(run_at, sequence) for run_at, sequence, *_ in rows])
    tx.cursor.executemany(INSERT_READY, [(queue, name, -prio, seq) for _, seq, queue, name, prio, _ in rows])
    parked = [(sequence,) for _, sequence, _, _, _, waiting_for in rows if waiting_for is not None]
    if parked:
        tx.cursor.executemany(CLEAR_WAITING_FOR, parked)
    tx.bump()
    return len(rows) == PROMOTE_AT_ONCE


def enter(tx: Transaction, group: GroupRow, sequence: int, priority: int, run_at: Instant) -> None:
    """A PENDING job takes its place: in line if it is due, else among the delayed."""
    if run_at <= tx.now:
        tx.cursor.execute(INSERT_READY, (group.queue.name, group.name, -priority, sequence))
        tx.arrive(group)
    else:
        tx.cursor.execute(INSERT_DELAYED, (run_at, sequence))
        tx.delay(group)
        tx.arrived = True  # sleepers must learn of the new earliest time


def due_at(now: Instant, delay_seconds: float, run_at: Instant | None) -> Instant:
    return after(now, delay_seconds) if run_at is None else run_at
