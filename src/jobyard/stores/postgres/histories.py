"""Histories of workflows: checkpoints, deliveries, and ends to deliver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from jobyard.domain.history import Delivery, EndedJob, HistoryEntry
from jobyard.domain.instant import Instant
from jobyard.domain.job import Parent, State
from jobyard.ports.workflow_store import Checkpoint
from jobyard.stores.postgres.connection import PostgresConnection
from jobyard.stores.postgres.notifier import PostgresNotifier
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.statements import Statements


class CheckpointColumns(NamedTuple):
    """Named exactly as the parameters of jobyard_checkpoint: p_* are checkpoints, e_* entries, t_* taken signals."""

    p_sequence: list[int]
    p_token: list[str]
    p_payload: Sequence[bytes | None]  # empty: none restarts its job
    e_of: list[int]  # 1-based position of the checkpoint
    e_key: list[str]
    e_data: list[bytes]
    t_of: list[int]
    t_scope: list[str]
    t_key: list[str]


def checkpoint_columns(checkpoints: Sequence[Checkpoint]) -> CheckpointColumns:
    entries = [(of, entry) for of, each in enumerate(checkpoints, 1) for entry in each.entries]
    restarts = [(of, each.restart) for of, each in enumerate(checkpoints, 1) if each.restart is not None]
    taken = [(of, scope, key) for of, restart in restarts for scope, key in restart.taken]
    return CheckpointColumns(
        [each.key.sequence for each in checkpoints],
        [each.key.token for each in checkpoints],
        [None if each.restart is None else each.restart.payload for each in checkpoints] if restarts else (),
        [of for of, _ in entries],
        [entry.key for _, entry in entries],
        [entry.data for _, entry in entries],
        [of for of, _, _ in taken],
        [scope for _, scope, _ in taken],
        [key for _, _, key in taken],
    )


class PostgresHistories:
    def __init__(self, connection: PostgresConnection, notifier: PostgresNotifier) -> None:
        self._connection = connection
        self._notifier = notifier

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[tuple[HistoryEntry, ...] | None]:
        if not checkpoints:
            return []
        now = self._connection.now()
        # A restart is applied before all entries of a call, so a job that is named twice needs a call for each.
        restarts = any(each.restart is not None for each in checkpoints)
        one_by_one = restarts and len({each.key.sequence for each in checkpoints}) < len(checkpoints)

        async def record(connection: Connection, statements: Statements) -> list[tuple[HistoryEntry, ...] | None]:
            if not one_by_one:
                return await record_batch(connection, statements, now, checkpoints)
            async with connection.transaction():
                return [(await record_batch(connection, statements, now, [each]))[0] for each in checkpoints]

        return await self._connection.run(record)

    async def history(self, job_id: str, scope: str = "", *, after: int = 0, limit: int = 1000) -> list[HistoryEntry]:
        rows = await self._connection.fetch("list_history", job_id, scope, after, limit)
        return [HistoryEntry(scope=scope, key=key, data=data, number=number, at=at) for key, data, number, at in rows]

    async def histories(self, wanted: Sequence[tuple[str, str]], limit: int = 1000) -> list[list[HistoryEntry]]:
        scopes = [scope for _, scope in wanted]
        found: list[list[HistoryEntry]] = [[] for _ in wanted]
        for place, key, data, number, at in await self._connection.fetch(
            "list_histories", [job_id for job_id, _ in wanted], scopes, limit
        ):
            found[place - 1].append(HistoryEntry(scope=scopes[place - 1], key=key, data=data, number=number, at=at))
        return found

    async def deliver(self, deliveries: Sequence[Delivery], ended: Sequence[str] = ()) -> None:
        if not deliveries:
            if ended:
                await self.forget_ended(ended)
            return
        columns = (
            [each.job_id for each in deliveries],
            [each.scope for each in deliveries],
            [each.key for each in deliveries],
            [each.data for each in deliveries],
            list(ended),
        )
        if await self._connection.fetch_value("deliver", self._connection.now(), *columns):
            self._notifier.announce_work()

    async def ended_jobs(self, limit: int = 1000) -> list[EndedJob]:
        return [_ended(*row) for row in await self._connection.fetch("list_ended", limit)]

    async def forget_ended(self, job_ids: Sequence[str]) -> None:
        await self._connection.fetch("delete_ended", list(job_ids))


async def record_batch(
    connection: Connection, statements: Statements, now: Instant | None, checkpoints: Sequence[Checkpoint]
) -> list[tuple[HistoryEntry, ...] | None]:
    rows = await connection.fetch(statements["checkpoint"], now, *checkpoint_columns(checkpoints))
    stored: dict[int, Any] = {row[0]: row for row in rows}
    results: list[tuple[HistoryEntry, ...] | None] = []
    first = 1
    for position, checkpoint in enumerate(checkpoints, 1):
        entries = enumerate(checkpoint.entries, first)
        recorded = None if -position in stored else tuple(_stored(entry, stored[place]) for place, entry in entries)
        results.append(recorded)
        first += len(checkpoint.entries)
    return results


def _stored(entry: HistoryEntry, row: Sequence[Any]) -> HistoryEntry:
    _, number, at, data = row
    return HistoryEntry(
        scope=entry.scope, key=entry.key, data=entry.data if data is None else data, number=number, at=at
    )


def _ended(
    job_id: str, state: str | None, parent: str | None, is_workflow: bool, result: bytes | None, reason: str | None
) -> EndedJob:
    return EndedJob(
        job_id=job_id,
        state=None if state is None else State(state),
        parent=None if parent is None else msgspec.json.decode(parent, type=Parent),
        is_workflow=is_workflow,
        result=result,
        reason=reason,
    )
