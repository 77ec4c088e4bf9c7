"""The verbs of people: what several stores say, as one."""

from __future__ import annotations

from collections.abc import Sequence

from jobyard.domain.explain import Standing
from jobyard.domain.job import Job, QueueSettings
from jobyard.ports.admin_store import Action, Changed, Filter, GroupInfo, Page, QueueAges, QueueInfo
from jobyard.stores.sharded.finding import decode, encode, merge
from jobyard.stores.sharded.parts import Part, Parts, each


class PeopleVerbs(Parts):
    async def get(self, job_id: str) -> Job | None:
        return (await self._look_up(job_id))[1]

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        """By the time of creation, newest first; jobs of one store keep their order."""
        if where.queue is not None:
            return await self._of_queue(where.queue).store.find(where, limit, cursor)
        marks = decode(cursor, self._by_label)
        parts = [part for part in self._parts if part.label in marks]

        async def page(part: Part) -> Page:
            found = await part.store.find(where, limit, marks[part.label].start)
            return Page(tuple(job for job in found.jobs if part.shows(job)), found.cursor)

        pages = await each(parts, page)
        jobs, left = merge({part.label: page for part, page in zip(parts, pages, strict=True)}, marks, limit)
        return Page(jobs, encode(left) if left else None)

    async def change(self, action: Action, job_ids: Sequence[str], *, reason: str = "", priority: int = 0) -> Changed:
        """In one step per store."""
        answers = await each(
            self._parts, lambda part: part.store.change(action, job_ids, reason=reason, priority=priority)
        )
        changed = {job_id for answer in answers for job_id in answer.changed}
        unchanged = {job_id for answer in answers for job_id in answer.unchanged} - changed
        return Changed(
            tuple(job_id for job_id in dict.fromkeys(job_ids) if job_id in changed),
            tuple(job_id for job_id in dict.fromkeys(job_ids) if job_id in unchanged),
        )

    async def configure(self, queue: str, settings: QueueSettings) -> None:
        await self._of_queue(queue).store.configure(queue, settings)

    async def set_paused(self, queue: str, group: str | None, paused: bool) -> None:
        await self._of_queue(queue).store.set_paused(queue, group, paused)

    async def set_limit(self, queue: str, group: str, limit: int | None) -> None:
        await self._of_queue(queue).store.set_limit(queue, group, limit)

    async def queues(self) -> list[QueueInfo]:
        """Each from its own store; what a queue left in the default store is told by `examine`."""
        answers = await each(self._parts, lambda part: part.store.queues())
        found = (
            info
            for part, infos in zip(self._parts, answers, strict=True)
            for info in infos
            if self._of_queue(info.name) is part
        )
        return sorted(found, key=lambda info: info.name)

    async def ages(self) -> list[QueueAges]:
        answers = await each(self._parts, lambda part: part.store.ages())
        found = (
            ages
            for part, of_part in zip(self._parts, answers, strict=True)
            for ages in of_part
            if self._of_queue(ages.queue) is part
        )
        return sorted(found, key=lambda ages: ages.queue)

    async def groups(self, queue: str, limit: int = 1000, after: str | None = None) -> list[GroupInfo]:
        return await self._of_queue(queue).store.groups(queue, limit, after)

    async def standing(self, job_id: str) -> Standing:
        return await (await self._of_job(job_id)).store.standing(job_id)

    async def prune(self, limit: int = 1000) -> int:
        removed = 0
        for part in self._parts:
            if removed < limit:
                removed += await part.store.prune(limit - removed)
        return removed

    async def audit(self) -> list[str]:
        answers = await each(self._parts, lambda part: part.store.audit())
        return [
            f"{part.store.url}: {sentence}"
            for part, sentences in zip(self._parts, answers, strict=True)
            for sentence in sentences
        ]
