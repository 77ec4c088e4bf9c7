"""The verbs of the hot path that answer at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from jobyard.domain.job import Job, NewJob
from jobyard.domain.lease import UNACKNOWLEDGED_SECONDS, ExpiredLease, Lease, LeaseKey, adopted
from jobyard.domain.state import Settlement, judge_expired
from jobyard.errors import LeaseLost, NotPossible, StoreError
from jobyard.ports.job_store import Exchange, Extended, Report
from jobyard.stores.postgres.arriving import InsertVerbs, new_token
from jobyard.stores.postgres.columns import (
    checked_priority,
    milliseconds,
    stored_backoff,
    stored_tags,
    stored_unique,
)
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.seeing import see
from jobyard.stores.postgres.standing import not_found
from jobyard.stores.postgres.statements import Statements
from jobyard.stores.postgres.trips import Cargo, received, storable, transition_arguments
from jobyard.stores.postgres.words import NOT_HELD, state_of

T = TypeVar("T")

# About a second of naps; after that, what an application's open transaction is settling is refused.
BUSY_ATTEMPTS = 12
BUSY = "55P03"


class HotPathVerbs(InsertVerbs):
    # The caller's own transaction

    async def settle(self, settlement: Settlement, transaction: Any) -> None:
        async def work(connection: Connection, statements: Statements) -> bool:
            arguments = transition_arguments(settlement)
            return bool(await connection.fetchval(statements["apply"], self._now(), *arguments))

        if not await self._beside(transaction, work):
            raise LeaseLost(f"Job {settlement.key.job_id}: the lease was lost; roll back what this attempt has done.")

    # Exchange

    async def _exchange_now(
        self, worker: str, settlements: Sequence[Settlement], queues: Sequence[str], wanted: int, lease_seconds: float
    ) -> Exchange:
        unheard = await self._unheard(worker)
        cargo, token = Cargo([*settlements, *unheard], self._family.ends.awaited), new_token()
        now, lease = self._now(), milliseconds(lease_seconds)
        arguments = [now, worker, token, list(dict.fromkeys(queues)), max(0, wanted), lease, *cargo.arguments(), None]
        try:
            rows = await self._settle_and_claim(cargo, arguments)
        except BaseException:
            self._lost.note(worker, token)
            raise
        answer = self._received(rows, cargo, token)
        if unheard and answer.refused:
            ours = {settlement.key for settlement in unheard}
            answer = msgspec.structs.replace(answer, refused=tuple(key for key in answer.refused if key not in ours))
        if settlements:
            self._some_ended()
            if len(answer.leases) == wanted or cargo.brings_back:
                # Slots came free and this worker may not have taken all: others should look.
                self._arrived()
        if self._parts is not None:
            self._parts.broom.count(len(settlements) + len(answer.leases))
        return answer

    async def _unheard(self, worker: str) -> list[Settlement]:
        """What answers that were lost gave this worker ends now as when its leases run out: slots come free."""
        tokens = self._lost.of(worker)
        if not tokens:
            return []
        rows = await self._rows("lost_leases", worker, tokens)
        return [
            Settlement(
                LeaseKey(job_id, sequence, token),
                judge_expired(attempt=attempt, deaths=deaths, worker=worker, cancel_requested=cancel),
            )
            for job_id, sequence, token, attempt, deaths, cancel in rows
        ]

    async def _settle_and_claim(self, cargo: Cargo, arguments: list[Any]) -> list[Any]:
        origin = self._origins.of(cargo.tokens())
        try:
            return await self._trip(cargo, [*arguments, False, origin], BUSY_ATTEMPTS)
        except StoreError as error:
            state = "" if error.__cause__ is None else state_of(error.__cause__)
            if state not in (BUSY, NOT_HELD):
                raise
        return await self._trip(cargo, [*arguments, state == BUSY, None], BUSY_ATTEMPTS)

    async def _trip(self, cargo: Cargo, arguments: list[Any], attempts: int) -> list[Any]:
        parts = self._open_parts()
        statement = parts.statements["exchange"]
        if not cargo.awaited:
            return await parts.pool.run(lambda connection: connection.fetch(statement, *arguments), attempts)
        # Somebody here waits for these: they are shown before retention may take them away.
        ids = [one.key.job_id for one in cargo.awaited]

        async def work(connection: Connection) -> tuple[list[Any], dict[str, Job]]:
            async with connection.transaction():
                rows = await connection.fetch(statement, *arguments)
                return rows, await see(connection, parts.statements, arguments[0], ids)

        ends = self._family.ends
        ends.settling(ids)
        try:
            rows, jobs = await parts.pool.run(work, attempts)
            ends.ended(jobs.values())
        finally:
            ends.settled(ids)
        return rows

    # Leases

    async def extend(
        self, worker: str, keys: Sequence[LeaseKey], lease_seconds: float, *, unacknowledged: bool = False
    ) -> Extended:
        sequences, tokens = [key.sequence for key in keys], [key.token for key in keys]
        now, lease = self._now(), milliseconds(lease_seconds)
        window = milliseconds(UNACKNOWLEDGED_SECONDS) if unacknowledged else None

        async def work(connection: Connection, statements: Statements) -> Extended:
            rows = await connection.fetch(statements["extend"], now, worker, sequences, tokens, lease, window)
            asked = await connection.fetch(statements["cancelled_leases"], worker)
            return Extended(
                lost=tuple(keys[row[0] - 1] for row in rows),
                cancelled=tuple((LeaseKey(row[0], row[1], row[2]), row[3]) for row in asked),
            )

        return await self._run(work)

    async def report(self, reports: Sequence[Report]) -> tuple[LeaseKey, ...]:
        now = self._now()

        async def work(connection: Connection, statements: Statements) -> tuple[LeaseKey, ...]:
            async with connection.transaction():
                held = [await connection.fetchval(statements["report"], now, *report_arguments(one)) for one in reports]
            return tuple(one.key for one, holds in zip(reports, held, strict=True) if not holds)

        return await self._run(work)

    async def reclaim(self, limit: int = 1000) -> list[ExpiredLease]:
        rows = await self._rows("expired_leases", self._now(), limit)
        if not rows:
            return []
        asked_at = rows[0][9]
        settlements: list[Settlement] = []
        ended: list[ExpiredLease] = []
        for sequence, token, worker, attempt, queue, group, cancel, job_id, deaths, _ in rows:
            transition = judge_expired(attempt=attempt, deaths=deaths, worker=worker, cancel_requested=cancel)
            assert transition.error is not None
            settlements.append(Settlement(LeaseKey(job_id, sequence, token), transition))
            error = msgspec.structs.replace(transition.error, at=asked_at)
            ended.append(
                ExpiredLease(job_id=job_id, queue=queue, group=group or None, token=token, worker=worker, error=error)
            )
        cargo = Cargo(settlements, self._family.ends.awaited)
        # By the time at which it was asked for: who ran out later may yet renew.
        arguments = [asked_at, "", "", [], 0, 0, *cargo.arguments(), asked_at, True, None]
        answer = received(await self._trip(cargo, arguments, BUSY_ATTEMPTS), cargo, "")
        refused = {key.sequence for key in answer.refused}
        self._some_ended()
        self._arrived()
        return [
            one for one, settlement in zip(ended, settlements, strict=True) if settlement.key.sequence not in refused
        ]

    async def adopt(self, job: NewJob, worker: str, external_id: str) -> Lease:
        token = new_token()
        key, scope, period = stored_unique(job.unique)
        sequence = await self._value(
            "adopt",
            self._now(),
            job.id,
            job.kind,
            job.queue,
            job.group or "",
            checked_priority(job.priority),
            job.payload,
            job.private_payload,
            job.max_attempts,
            job.timeout_seconds,
            stored_backoff(job),
            key,
            scope,
            period,
            stored_tags(job),
            list(job.tags),
            worker,
            token,
            external_id,
        )
        assert isinstance(sequence, int)
        return adopted(job, sequence, token)

    async def signal(self, job_id: str, name: str, data: bytes = b"null") -> bool:
        rows = await self._rows("signal", self._now(), job_id, name, data)
        if not rows:
            raise not_found(job_id)
        woke, final = rows[0]
        if final is not None:
            raise NotPossible(f"Job {job_id} is {final}; only a job that has not ended can be signalled.")
        if woke:
            self._arrived()
        return bool(woke)


def report_arguments(report: Report) -> tuple[Any, ...]:
    encode = msgspec.json.encode
    step = report.step
    return (
        report.key.sequence,
        report.key.token,
        None if report.progress is None else encode(report.progress),
        [encode(line) for line in report.lines],
        None if step is None else storable(step.name),
        None if step is None else step.status == "running",
        None if step is None else encode(step),
    )
