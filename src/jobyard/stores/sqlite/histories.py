"""Histories of workflows: checkpoints, deliveries, and ends to deliver."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

import msgspec

from jobyard.domain.history import Delivery, EndedJob, HistoryEntry, signal_scope
from jobyard.domain.job import Parent, State
from jobyard.ports.workflow_store import Checkpoint, Restart
from jobyard.stores.sqlite.change import JobStatus, load_status, make_due
from jobyard.stores.sqlite.codec import HAS_HISTORY, IS_WORKFLOW, json_list
from jobyard.stores.sqlite.connection import SqliteConnection
from jobyard.stores.sqlite.history_rows import add_flag, any_holds, entry_of, load_wake, write_entries
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction


class SqliteHistories:
    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[tuple[HistoryEntry, ...] | None]:
        return await self._connection.write(lambda tx: checkpoint(tx, checkpoints))

    async def history(self, job_id: str, scope: str = "", *, after: int = 0, limit: int = 1000) -> list[HistoryEntry]:
        page = (job_id, scope, after, limit)
        return await self._connection.read(
            lambda reader: list(map(entry_of, reader.execute(SQL["list_entries"], page)))
        )

    async def histories(self, wanted: Sequence[tuple[str, str]], limit: int = 1000) -> list[list[HistoryEntry]]:
        def read(reader: sqlite3.Connection) -> list[list[HistoryEntry]]:
            pages = (reader.execute(SQL["list_entries"], (job_id, scope, 0, limit)) for job_id, scope in wanted)
            return [list(map(entry_of, page)) for page in pages]

        return await self._connection.read(read)

    async def deliver(self, deliveries: Sequence[Delivery], ended: Sequence[str] = ()) -> None:
        def write(tx: Transaction) -> None:
            deliver(tx, deliveries)
            if ended:
                tx.bare_cursor.execute(SQL["delete_ended"], (json_list(list(ended)),))

        await self._connection.write(write)

    async def ended_jobs(self, limit: int = 1000) -> list[EndedJob]:
        return await self._connection.read(lambda reader: _list_ended(reader, limit))

    async def forget_ended(self, job_ids: Sequence[str]) -> None:
        # Not durable: an end that comes back is delivered again, which changes nothing.
        ids = json_list(list(job_ids))
        await self._connection.write(
            lambda tx: tx.bare_cursor.execute(SQL["delete_ended"], (ids,)).rowcount, durable=False
        )


def checkpoint(tx: Transaction, checkpoints: Sequence[Checkpoint]) -> list[tuple[HistoryEntry, ...] | None]:
    sequences = json_list([each.key.sequence for each in checkpoints])
    leases = {row[0]: row for row in tx.bare_cursor.execute(SQL["load_leases"], (sequences,)).fetchall()}
    tokens = {sequence: row[1] for sequence, row in leases.items()}
    held = [each for each in checkpoints if tokens.get(each.key.sequence) == each.key.token]
    tx.bare_cursor.execute(SQL["reset_deaths"], (json_list([each.key.sequence for each in held]),))
    for sequence in {each.key.sequence for each in held}:
        add_flag(tx, sequence, leases[sequence][7], IS_WORKFLOW)
    recorded: list[HistoryEntry] = []
    for batch in _restarting_first(held):
        first = batch[0]
        if first.restart is not None:
            _restart(tx, first.key.sequence, first.restart)
        recorded += write_entries(tx, [(each.key.sequence, entry) for each in batch for entry in each.entries])
    rest = iter(recorded)
    return [
        tuple(next(rest) for _ in each.entries) if tokens.get(each.key.sequence) == each.key.token else None
        for each in checkpoints
    ]


def _restarting_first(checkpoints: Sequence[Checkpoint]) -> Iterator[list[Checkpoint]]:
    """Split into batches that are written at once: only the first of each may restart its job."""
    batch: list[Checkpoint] = []
    for each in checkpoints:
        if each.restart is not None and batch:
            yield batch
            batch = []
        batch.append(each)
    if batch:
        yield batch


def _restart(tx: Transaction, sequence: int, restart: Restart) -> None:
    tx.bare_cursor.execute(SQL["delete_entries_except"], {"sequence": sequence, "prefix": signal_scope("")})
    tx.bare_cursor.executemany(SQL["delete_entry"], [(sequence, scope, key) for scope, key in restart.taken])
    tx.bare_cursor.execute(SQL["replace_payload"], (restart.payload, sequence))


def deliver(tx: Transaction, deliveries: Sequence[Delivery]) -> None:
    known = {job_id: load_status(tx, job_id) for job_id in {each.job_id for each in deliveries}}
    statuses = {job_id: status for job_id, status in known.items() if status and status.state is not State.COMPLETED}
    entries = [
        (statuses[each.job_id].sequence, HistoryEntry(scope=each.scope, key=each.key, data=each.data))
        for each in deliveries
        if each.job_id in statuses
    ]
    write_entries(tx, entries)
    for job_id in dict.fromkeys(each.job_id for each in deliveries):
        if job_id in statuses:
            add_flag(tx, statuses[job_id].sequence, statuses[job_id].flags, HAS_HISTORY)
            wake(tx, statuses[job_id])


def wake(tx: Transaction, status: JobStatus) -> bool:
    """Make a parked workflow due if one of its conditions holds."""
    if status.state is not State.PENDING or status.waiting_for is None or not status.flags & IS_WORKFLOW:
        return False
    if not any_holds(tx, status.sequence, load_wake(tx, status.sequence)):
        return False
    make_due(tx, status)
    tx.bump()
    return True


def _list_ended(connection: sqlite3.Connection, limit: int) -> list[EndedJob]:
    return [
        EndedJob(
            job_id=job_id,
            state=None if state is None else State(state),
            parent=None if parent is None else msgspec.json.decode(parent, type=Parent),
            is_workflow=bool(is_workflow),
            result=result,
            reason=reason,
        )
        for job_id, state, parent, is_workflow, result, reason in connection.execute(SQL["list_ended_jobs"], (limit,))
    ]
