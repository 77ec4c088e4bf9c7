"""Rows of a job's history, and what a workflow keeps beside it: its conditions while parked, a request to stop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from jobyard.domain.history import MAX_TAKEN_SIGNALS, HistoryEntry, Wake, is_signal_scope, signal_scope
from jobyard.domain.job import State
from jobyard.domain.state import CancelRequest
from jobyard.stores.sqlite.codec import HAS_HISTORY, IS_CHILD, IS_WORKFLOW
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction


def write_entries(tx: Transaction, entries: Sequence[tuple[int, HistoryEntry]]) -> list[HistoryEntry]:
    """Write entries of jobs, by sequence; return the one that is stored under each scope and key: the first."""
    stamped: list[HistoryEntry] = []
    rows: list[tuple[object, ...]] = []
    for sequence, entry in entries:
        tx.entry += 1
        stamped.append(msgspec.structs.replace(entry, number=tx.entry, at=tx.now))
        taken = 0 if is_signal_scope(entry.scope) else None
        rows.append((sequence, entry.scope, tx.entry, entry.key, tx.now, entry.data, taken))
    if not rows or tx.bare_cursor.executemany(SQL["insert_entry"], rows).rowcount == len(rows):
        return stamped
    return [_load_entry(tx, sequence, entry) for sequence, entry in entries]


def _load_entry(tx: Transaction, sequence: int, entry: HistoryEntry) -> HistoryEntry:
    return entry_of(tx.bare_cursor.execute(SQL["load_entry"], (sequence, entry.scope, entry.key)).fetchone())


def entry_of(row: tuple[str, str, bytes, int, int]) -> HistoryEntry:
    """Decode a row of `load_entry` or `list_entries`."""
    key, scope, data, number, at = row
    return HistoryEntry(key=key, scope=scope, data=data, number=number, at=at)


def add_flag(tx: Transaction, sequence: int, flags: int, flag: int) -> None:
    """Mark a job, and its lease, as a workflow or as one that has a history: it is then removed with the job."""
    if flags & flag or (flag == HAS_HISTORY and flags & IS_WORKFLOW):
        return
    tx.bare_cursor.execute(SQL["add_job_flag"], (flag, sequence))
    tx.bare_cursor.execute(SQL["add_lease_flag"], (flag, sequence))


def take_signal(tx: Transaction, sequence: int, name: str) -> bytes | None:
    """Return the data of the oldest signal of that name which was not taken, and mark it as taken."""
    scope = signal_scope(name)
    row: tuple[int, bytes] | None = tx.bare_cursor.execute(SQL["next_signal"], (sequence, scope)).fetchone()
    if row is None:
        return None
    tx.bare_cursor.execute(SQL["take_signal"], (b"null", sequence, scope, row[0]))
    parameters = {"sequence": sequence, "scope": scope, "kept": MAX_TAKEN_SIGNALS}
    tx.bare_cursor.execute(SQL["forget_taken"], parameters)
    return row[1]


def has_begun(tx: Transaction, sequence: int) -> bool:
    return _has_entries(tx, sequence, Wake("", 1))


def any_holds(tx: Transaction, sequence: int, wake: Iterable[Wake]) -> bool:
    return any(_has_entries(tx, sequence, each) for each in wake)


def _has_entries(tx: Transaction, sequence: int, wake: Wake) -> bool:
    counted = tx.bare_cursor.execute(SQL["count_entries"], (sequence, wake.scope, max(0, wake.count))).fetchone()[0]
    return bool(counted >= wake.count)


def put_wake(tx: Transaction, sequence: int, wake: tuple[Wake, ...]) -> None:
    tx.bare_cursor.execute(SQL["put_extra"], (sequence, "wake", 0, msgspec.json.encode(wake)))


def load_wake(tx: Transaction, sequence: int) -> tuple[Wake, ...]:
    row = tx.bare_cursor.execute(SQL["load_extra"], (sequence, "wake")).fetchone()
    return () if row is None else msgspec.json.decode(row[0], type=tuple[Wake, ...])


def forget_wake(tx: Transaction, sequence: int) -> None:
    tx.bare_cursor.execute(SQL["delete_extra"], (sequence, "wake"))


def carry_request(tx: Transaction, sequence: int, reason: str) -> None:
    """Keep a request to stop for the next attempt of a workflow."""
    tx.bare_cursor.execute(SQL["put_extra"], (sequence, "cancel", 0, reason.encode()))


def carried_request(tx: Transaction, sequence: int) -> str | None:
    row = tx.bare_cursor.execute(SQL["load_extra"], (sequence, "cancel")).fetchone()
    return None if row is None else row[0].decode()


def cancel_request(tx: Transaction, sequence: int, flags: int, requested: str) -> CancelRequest:
    """Return the request made during an attempt, with what decides whether it ends the job."""
    if not flags & IS_WORKFLOW:
        return CancelRequest(requested)
    return CancelRequest(requested, carried_request(tx, sequence), has_begun(tx, sequence))


def record_end(
    tx: Transaction,
    job_id: str,
    sequence: int,
    flags: int,
    state: State | None,
    result: bytes | None,
    reason: str | None,
) -> None:
    """Record the end of a child job, or of a workflow, if it must be delivered to other jobs; None: it is deleted."""
    is_workflow = bool(flags & IS_WORKFLOW)
    if is_workflow:
        forget_wake(tx, sequence)
        tx.bare_cursor.execute(SQL["delete_extra"], (sequence, "cancel"))
    if flags & IS_CHILD or (is_workflow and state is not State.COMPLETED and has_begun(tx, sequence)):
        end = (None if state is None else str(state), sequence, is_workflow, result, reason)
        tx.bare_cursor.execute(SQL["insert_ended"], (job_id, *end))
