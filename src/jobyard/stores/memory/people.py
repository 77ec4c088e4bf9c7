"""The verbs of people: read, change, limit, prune, audit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from jobyard.domain.admission import UNLIMITED, limit_of
from jobyard.domain.explain import Standing
from jobyard.domain.instant import after
from jobyard.domain.job import Job, QueueSettings, State
from jobyard.errors import BadInput
from jobyard.ports.admin_store import Action, Changed, Filter, GroupInfo, Page, QueueAges, QueueInfo
from jobyard.stores.memory.ages import ages_of
from jobyard.stores.memory.audit import disagreements
from jobyard.stores.memory.change import change
from jobyard.stores.memory.entry import Entry
from jobyard.stores.memory.line import GroupLine, QueueLine
from jobyard.stores.memory.standing import standing
from jobyard.stores.memory.timekeeping import TimekeepingVerbs

ROWS_PER_FIND = 10_000
# A search reads no more payload than this per page.
BYTES_PER_FIND = 16 << 20


class PeopleVerbs(TimekeepingVerbs):
    async def get(self, job_id: str) -> Job | None:
        with self._looking():
            entry = self._shelf.get(job_id)
            return None if entry is None else entry.job()

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        if cursor is not None and not cursor.isdecimal():
            raise BadInput(f'"{cursor}" is no cursor of this list. Use the cursor of the page before, or none.')
        with self._looking():
            rows = self._shelf.newest_first()
            if cursor is not None:
                rows = (entry for entry in rows if entry.sequence < int(cursor))
            jobs: list[Job] = []
            searched = 0
            for looked_at, entry in enumerate(rows, start=1):
                if where.is_past(entry.created_at):
                    break
                if _matches(where, entry):
                    searched += len(entry.new.payload) if where.text is not None else 0
                    if where.fits(entry.created_at, entry.new.payload):
                        jobs.append(entry.row())
                if len(jobs) >= limit or looked_at >= ROWS_PER_FIND or searched >= BYTES_PER_FIND:
                    more = next(rows, None) is not None
                    return Page(tuple(jobs), str(entry.sequence) if more else None)
            return Page(tuple(jobs), None)

    async def change(self, action: Action, job_ids: Sequence[str], *, reason: str = "", priority: int = 0) -> Changed:
        with self._changing() as now:
            changed: list[str] = []
            unchanged: list[str] = []
            for entry in filter(None, map(self._shelf.get, job_ids)):
                fits = change(self._shelf, action, entry, now, reason=reason, priority=priority)
                (changed if fits else unchanged).append(entry.id)
            if action is Action.CANCEL and changed:
                self._cancels_asked += 1
            return Changed(tuple(changed), tuple(unchanged))

    async def configure(self, queue: str, settings: QueueSettings) -> None:
        with self._changing():
            self._shelf.lines.of(queue).apply(settings)

    async def set_paused(self, queue: str, group: str | None, paused: bool) -> None:
        with self._changing():
            line = self._shelf.lines.of(queue)
            if group is None:
                line.queue.paused = paused
            else:
                line.group(group).group.paused = paused
                line.forget_if_idle(group)

    async def set_limit(self, queue: str, group: str, limit: int | None) -> None:
        with self._changing():
            line = self._shelf.lines.of(queue)
            line.group(group).group.limit = limit
            line.forget_if_idle(group)

    async def queues(self) -> list[QueueInfo]:
        with self._looking():
            return [_queue_info(line) for line in self._shelf.lines]

    async def ages(self) -> list[QueueAges]:
        with self._looking():
            return [ages_of(self._shelf, line) for line in self._shelf.lines]

    async def groups(self, queue: str, limit: int = 1000, after: str | None = None) -> list[GroupInfo]:
        with self._looking():
            line = self._shelf.lines.get(queue)
            if line is None:
                return []
            # The jobs without a group come first.
            ordered = sorted(line.groups.items(), key=lambda item: (item[0] is not None, item[0] or ""))
            infos = (_group_info(line, group) for name, group in ordered if after is None or (name and name > after))
            return list(islice(infos, limit))

    async def standing(self, job_id: str) -> Standing:
        with self._looking() as now:
            return standing(self._shelf, self._require(job_id), now, self._live_workers(now))

    async def prune(self, limit: int = 1000) -> int:
        with self._changing() as now:
            old: list[int] = []
            for line in self._shelf.lines:
                last = after(now, -line.settings.keep_seconds)
                for bucket, keep in (
                    (line.completed, line.settings.keep_completed),
                    (line.failed, line.settings.keep_failed),
                ):
                    beyond = islice(bucket, max(0, len(bucket) - keep))
                    old += [sequence for sequence in beyond if (self._shelf.at(sequence).finished_at or 0) <= last]
            for sequence in old[:limit]:
                self._shelf.remove(self._shelf.at(sequence))
            return len(old[:limit])

    async def audit(self) -> list[str]:
        with self._looking() as now:
            return disagreements(self._shelf, now)


def _matches(where: Filter, entry: Entry) -> bool:
    new = entry.new
    return (
        (where.ids is None or entry.id in where.ids)
        and (where.queue is None or new.queue == where.queue)
        and (where.group is None or new.group == where.group)
        and (where.kind is None or new.kind == where.kind)
        and (where.states is None or entry.state in where.states)
        and (where.tag is None or where.tag in new.tags)
        and (where.unique_key is None or (new.unique is not None and new.unique.key == where.unique_key))
    )


def _queue_info(line: QueueLine) -> QueueInfo:
    return QueueInfo(
        name=line.queue.name,
        settings=line.settings,
        paused=line.queue.paused,
        waiting=line.due,
        delayed=line.delayed,
        running=line.queue.running,
        completed=line.ended.get(State.COMPLETED, 0),
        failed=line.ended.get(State.FAILED, 0) + line.ended.get(State.TIMEOUT, 0),
        cancelled=line.ended.get(State.CANCELLED, 0),
    )


def _group_info(line: QueueLine, group: GroupLine) -> GroupInfo:
    limit = limit_of(line.queue, group.group)
    return GroupInfo(
        queue=line.queue.name,
        name=group.group.name,
        limit=group.group.limit,
        effective_limit=None if limit == UNLIMITED else limit,
        paused=group.group.paused,
        waiting=group.group.due,
        delayed=group.delayed,
        running=group.group.running,
    )
