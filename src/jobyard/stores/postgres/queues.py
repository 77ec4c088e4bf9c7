"""The verbs of people: read, change, limit, prune, audit."""

from __future__ import annotations

from collections.abc import Sequence

from jobyard.domain.explain import Standing
from jobyard.domain.job import QueueSettings
from jobyard.ports.admin_store import MAX_HEADS_SCANNED, Action, Changed, Filter, GroupInfo, Page, QueueAges, QueueInfo
from jobyard.stores.postgres.audit import audit
from jobyard.stores.postgres.columns import checked_priority
from jobyard.stores.postgres.finding import find
from jobyard.stores.postgres.pool import COMMAND_SECONDS, Connection
from jobyard.stores.postgres.standing import standing
from jobyard.stores.postgres.statements import Statements
from jobyard.stores.postgres.trips import storable
from jobyard.stores.postgres.waiting import WaitingVerbs

GROUPS_PER_ROUND = 1000


class PeopleVerbs(WaitingVerbs):
    _swept = ""  # the queue whose idle groups were looked for last

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        now = self._now()
        return await self._run(
            lambda connection, statements: find(connection, statements, now, where, limit, cursor),
            pooled_seconds=COMMAND_SECONDS,
        )

    async def change(self, action: Action, job_ids: Sequence[str], *, reason: str = "", priority: int = 0) -> Changed:
        why = storable(reason or ("cancelled" if action is Action.CANCEL else ""))
        rows = await self._rows("change", self._now(), str(action), list(job_ids), why, checked_priority(priority))
        changed = tuple(row[0] for row in rows if row[1])
        if changed:
            self._arrived()
            if action is Action.CANCEL:
                self._asked_to_stop()
            if action in (Action.CANCEL, Action.DELETE):
                self._family.ends.bell.wake_all()
                self._some_ended()
        return Changed(changed, tuple(row[0] for row in rows if not row[1]))

    async def configure(self, queue: str, settings: QueueSettings) -> None:
        s = settings
        limits = (s.max_running, s.max_per_group, s.max_waiting, s.max_waiting_per_group)
        keeps = (s.keep_completed, s.keep_failed, float(s.keep_seconds))
        await self._value("configure", self._now(), queue, *limits, *keeps)
        self._arrived()

    async def set_paused(self, queue: str, group: str | None, paused: bool) -> None:
        if group is None:
            await self._value("pause_queue", queue, paused)
        else:
            await self._value("set_group", self._now(), queue, group, paused, False, None)
        if not paused:
            self._arrived()

    async def set_limit(self, queue: str, group: str, limit: int | None) -> None:
        await self._value("set_group", self._now(), queue, group, None, True, limit)
        self._arrived()

    async def queues(self) -> list[QueueInfo]:
        await self._value("tidy", self._now(), [])
        return [
            QueueInfo(
                name=row[0],
                settings=QueueSettings(
                    max_running=row[1],
                    max_per_group=row[2],
                    max_waiting=row[3],
                    max_waiting_per_group=row[4],
                    keep_completed=row[5],
                    keep_failed=row[6],
                    keep_seconds=row[7],
                ),
                paused=row[8],
                waiting=row[10],
                delayed=row[11],
                running=row[12],
                completed=row[13],
                failed=row[14],
                cancelled=row[15],
            )
            for row in await self._rows("list_queues")
        ]

    async def ages(self) -> list[QueueAges]:
        await self._value("tidy", self._now(), [])
        return [
            QueueAges(queue=name, waiting_since=waiting, running_since=running)
            for name, waiting, running in await self._rows("ages", MAX_HEADS_SCANNED)
        ]

    async def groups(self, queue: str, limit: int = 1000, after: str | None = None) -> list[GroupInfo]:
        await self._value("tidy", self._now(), [queue])

        async def read(connection: Connection, statements: Statements) -> list[GroupInfo]:
            row = await connection.fetchrow(statements["load_queue"], queue)
            if row is None:
                return []
            usual = row[2]
            return [
                GroupInfo(
                    queue=queue,
                    name=name or None,
                    limit=own,
                    effective_limit=own if own is not None else usual if name else None,
                    paused=paused,
                    waiting=waiting,
                    delayed=delayed,
                    running=running,
                )
                for name, own, paused, waiting, delayed, running in await connection.fetch(
                    statements["list_groups"], queue, after, limit
                )
            ]

        return await self._run_snapshot(read)

    async def standing(self, job_id: str) -> Standing:
        now = self._now()
        job = await self.get(job_id)
        if job is not None:
            await self._value("tidy", now, [job.queue])
        return await self._run_snapshot(lambda connection, statements: standing(connection, statements, now, job_id))

    async def prune(self, limit: int = 1000) -> int:
        now, removed = self._now(), 0
        await self._value("sweep", now, limit)
        await self._value("tidy", now, [])
        # One queue after the other, each in a transaction of its own: none waits for another.
        for (name,) in await self._rows("prunable_queues"):
            if removed < limit:
                count = await self._value("prune_queue", now, name, limit - removed)
                assert isinstance(count, int)
                removed += count
        name = await self._value("next_queue", self._swept) or await self._value("next_queue", "")
        if isinstance(name, str) and not await self._value("forget_groups", name, GROUPS_PER_ROUND):
            self._swept = name
        return removed

    async def audit(self) -> list[str]:
        return await self._run_snapshot(audit)
