"""The verbs of workers, each asked of the stores that it is about."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from jobyard.domain.job import Job, NewJob
from jobyard.domain.lease import ExpiredLease, Lease, LeaseKey
from jobyard.domain.state import Settlement
from jobyard.errors import LeaseLost, NotPossible, StoreError
from jobyard.ports.admin_store import Action
from jobyard.ports.job_store import Exchange, Extended, Inserted, Report
from jobyard.stores.sharded.claiming import Claiming
from jobyard.stores.sharded.parts import Part, bare, each


class HotPathVerbs(Claiming):
    async def insert(self, jobs: Sequence[NewJob], transaction: Any = None) -> list[Inserted]:
        """All or none of each store's jobs, one store after the other.

        When one refuses, what others took before is deleted again, unless it runs already; a note on the error says so.
        A transaction is of one database: jobs of several stores cannot share it.
        """
        of_part: dict[Part, list[NewJob]] = {}
        for job in jobs:
            of_part.setdefault(self._of_queue(job.queue), []).append(job)
        if transaction is not None and len(of_part) > 1:
            raise NotPossible("These jobs are of several stores; one transaction cannot hold them. Insert them apart.")
        answers: dict[Part, list[Inserted]] = {}
        try:
            for part, some in of_part.items():
                answers[part] = await part.store.insert(some, transaction)
        except Exception as error:
            for part, taken in answers.items():
                await _take_back(part, taken, error)
            raise
        return [answers[self._of_queue(job.queue)].pop(0) for job in jobs]

    async def exchange(
        self,
        worker: str,
        settlements: Sequence[Settlement],
        queues: Sequence[str],
        wanted: int,
        lease_seconds: float,
        until: asyncio.Future[None] | None = None,
    ) -> Exchange:
        """Settle in all stores at once, then claim in one after the other, each time beginning with the next."""
        settled, unknown = self._sorted(settlements)
        asked = self._asked(queues)
        if len(settled.keys() | asked.keys()) == 1:
            [part] = settled.keys() | asked.keys()
            answer = await part.store.exchange(
                worker, settled.get(part, ()), asked.get(part, ()), wanted, lease_seconds, until
            )
            return _joined([(part, answer)], unknown)
        answers = await self._settle_all(worker, settled, lease_seconds)
        try:
            if wanted > 0 or not answers:
                answers += await self._claim(worker, asked, wanted, lease_seconds)
        except Exception:
            # What was settled must be told; a store that is away will be away at the next claim, too.
            if not answers:
                raise
        if until is None or settlements or not asked or any(answer.leases for _, answer in answers):
            return _joined(answers, unknown)
        await self._first_work(asked, until)
        if until.done():
            return _joined(answers, unknown)
        return _joined(await self._claim(worker, asked, wanted, lease_seconds), unknown)

    async def settle(self, settlement: Settlement, transaction: Any) -> None:
        part = self._of_key(settlement.key)
        if part is None:
            raise LeaseLost(f"Job {settlement.key.job_id}: its lease is of a store that is not among these.")
        await part.store.settle(Settlement(bare(settlement.key), settlement.transition), transaction)

    async def extend(
        self, worker: str, keys: Sequence[LeaseKey], lease_seconds: float, *, unacknowledged: bool = False
    ) -> Extended:
        of_part: dict[Part, list[LeaseKey]] = {part: [] for part in self._parts} if unacknowledged or not keys else {}
        unknown: list[LeaseKey] = []
        for key in keys:
            part = self._of_key(key)
            (unknown if part is None else of_part.setdefault(part, [])).append(key)
        parts = list(of_part)
        answers = await each(
            parts,
            lambda part: part.store.extend(
                worker, list(map(bare, of_part[part])), lease_seconds, unacknowledged=unacknowledged
            ),
        )
        lost = {key for part, answer in zip(parts, answers, strict=True) for key in part.keys(answer.lost)} | {*unknown}
        wishes = (wish for part, answer in zip(parts, answers, strict=True) for wish in part.wishes(answer.cancelled))
        return Extended(lost=tuple(key for key in keys if key in lost), cancelled=tuple(wishes))

    async def report(self, reports: Sequence[Report]) -> tuple[LeaseKey, ...]:
        of_part: dict[Part, list[Report]] = {}
        unknown: list[LeaseKey] = []
        for report in reports:
            part = self._of_key(report.key)
            if part is None:
                unknown.append(report.key)
            else:
                of_part.setdefault(part, []).append(msgspec.structs.replace(report, key=bare(report.key)))
        parts = list(of_part)
        answers = await each(parts, lambda part: part.store.report(of_part[part])) if parts else []
        refused = (key for part, answer in zip(parts, answers, strict=True) for key in part.keys(answer))
        return (*refused, *unknown)

    async def reclaim(self, limit: int = 1000) -> list[ExpiredLease]:
        """A store that is away keeps nobody from clearing the others; it is told of when it is all there is to say."""
        found: list[ExpiredLease] = []
        trouble: Exception | None = None
        for part in self._parts:
            if len(found) < limit:
                try:
                    found += map(part.ended, await part.store.reclaim(limit - len(found)))
                except Exception as error:
                    trouble = error
        if trouble is not None and not found:
            raise trouble
        return found

    async def wait_for_work(self, queues: Sequence[str], timeout_seconds: float) -> bool:
        asked = self._asked(queues)
        return await self._any_work(asked, timeout_seconds)

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job | None:
        part = await self._of_job(job_id)
        return await part.store.wait_for_end(job_id, timeout_seconds)

    async def adopt(self, job: NewJob, worker: str, external_id: str) -> Lease:
        part = self._of_queue(job.queue)
        return part.lease(await part.store.adopt(job, worker, external_id))

    async def signal(self, job_id: str, name: str, data: bytes = b"null") -> bool:
        part = await self._of_job(job_id)
        return await part.store.signal(job_id, name, data)


async def _take_back(part: Part, taken: Sequence[Inserted], error: Exception) -> None:
    ids = [inserted.id for inserted in taken if inserted.created]
    gone: tuple[str, ...] = ()
    with contextlib.suppress(StoreError):
        gone = (await part.store.change(Action.DELETE, ids)).changed
    stay = [job_id for job_id in ids if job_id not in gone]
    if stay:
        error.add_note(f"In {part.store.url} these jobs were inserted before, and stay: {', '.join(stay[:10])}")


def _joined(answers: Sequence[tuple[Part, Exchange]], unknown: Iterable[LeaseKey]) -> Exchange:
    """One answer of several; a wish to stop that was heard twice is said once."""
    due = [answer.next_due_at for _, answer in answers if answer.next_due_at is not None]
    wishes = (wish for part, answer in answers for wish in part.wishes(answer.cancelled))
    return Exchange(
        refused=(*(key for part, answer in answers for key in part.keys(answer.refused)), *unknown),
        leases=tuple(part.lease(lease) for part, answer in answers for lease in answer.leases),
        cancelled=tuple(dict.fromkeys(wishes)),
        next_due_at=min(due) if due else None,
        revision=max((answer.revision for _, answer in answers), default=0),
        now=answers[0][1].now if answers else 0,
    )
