"""Jobs: get, find, change and prune them."""

from __future__ import annotations

from collections.abc import Sequence

from jobyard.domain.job import Job
from jobyard.ports.admin_store import Action, Changed, Filter, Page
from jobyard.stores._shared.limits import DEFAULT_CANCEL_REASON
from jobyard.stores.postgres.codec import checked_priority, storable
from jobyard.stores.postgres.connection import PostgresConnection
from jobyard.stores.postgres.find import find
from jobyard.stores.postgres.notifier import PostgresNotifier
from jobyard.stores.postgres.pool import COMMAND_SECONDS

# Groups that one call of prune examines, so that its cost does not grow with the number of groups.
GROUPS_PER_PRUNE = 1000


class PostgresJobs:
    def __init__(self, connection: PostgresConnection, notifier: PostgresNotifier) -> None:
        self._connection = connection
        self._notifier = notifier
        self._last_queue = ""  # the last one whose idle groups were all examined

    async def get(self, job_id: str) -> Job | None:
        return await self._connection.load_job(job_id)

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        now = self._connection.now()
        return await self._connection.run(
            lambda connection, statements: find(connection, statements, now, where, limit, cursor),
            pooled_seconds=COMMAND_SECONDS,
        )

    async def change(self, action: Action, job_ids: Sequence[str], *, reason: str = "", priority: int = 0) -> Changed:
        stored_reason = storable(reason or (DEFAULT_CANCEL_REASON if action is Action.CANCEL else ""))
        now, checked = self._connection.now(), checked_priority(priority)
        rows = await self._connection.fetch("change", now, str(action), list(job_ids), stored_reason, checked)
        changed = tuple(row[0] for row in rows if row[1])
        if changed:
            self._notifier.announce_work()
            if action is Action.CANCEL:
                self._notifier.announce_cancel()
            if action in (Action.CANCEL, Action.DELETE):
                self._notifier.announce_changes()
        return Changed(changed, tuple(row[0] for row in rows if not row[1]))

    async def prune(self, limit: int = 1000) -> int:
        connection, now, removed = self._connection, self._connection.now(), 0
        await connection.fetch_value("delete_expired", now, limit)
        await connection.fetch_value("fold_inbox", now, [])
        # One queue per transaction, so that no queue is locked while another is pruned.
        for (queue,) in await connection.fetch("prunable_queues"):
            if removed < limit:
                removed += await connection.fetch_value("prune_queue", now, queue, limit - removed)
        queue = await connection.fetch_value("next_queue", self._last_queue)
        queue = queue or await connection.fetch_value("next_queue", "")
        if queue is not None and not await connection.fetch_value("delete_idle_groups", queue, GROUPS_PER_PRUNE):
            self._last_queue = queue
        return removed
