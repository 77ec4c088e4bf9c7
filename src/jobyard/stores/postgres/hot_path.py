"""The verbs of the hot path that answer at once."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from jobyard.domain.job import Job, NewJob
from jobyard.domain.lease import UNSEEN_SECONDS, Ended, Lease, LeaseKey
from jobyard.domain.state import Settlement, bury
from jobyard.errors import BadInput, LeaseLost, NotPossible, StoreError
from jobyard.ports.store import Exchange, Extended, Inserted, Report
from jobyard.stores.postgres.bulk import can_copy, copy
from jobyard.stores.postgres.columns import (
    checked_priority,
    columns,
    is_plain_job,
    milliseconds,
    plain_arguments,
    stored_backoff,
    stored_tags,
    stored_unique,
)
from jobyard.stores.postgres.desk import Desk
from jobyard.stores.postgres.inserting import Coach
from jobyard.stores.postgres.ordering import Order, Orders
from jobyard.stores.postgres.own import driver_connection, fingerprint
from jobyard.stores.postgres.pool import COMMAND_SECONDS, Connection
from jobyard.stores.postgres.seeing import see
from jobyard.stores.postgres.standing import not_found
from jobyard.stores.postgres.statements import Statements
from jobyard.stores.postgres.trips import NO_OTHERS, NOTHING, Cargo, received, storable, transition_arguments
from jobyard.stores.postgres.words import NOT_HELD, plain_words, state_of

T = TypeVar("T")

# About a second of naps; after that, what an application's open transaction is settling is refused.
BUSY_ATTEMPTS = 12
BUSY = "55P03"
# An exchange is remembered until so many others have come: its jobs have then mostly ended.
REMEMBERED_TOKENS = 4096


def new_token() -> str:
    """One per exchange: no job is claimed twice in one, so it is one per attempt."""
    return secrets.token_hex(8)


class Origins:
    """Which queues an exchange gave jobs of: whoever settles them need not look that up."""

    def __init__(self) -> None:
        self._queues: dict[str, set[str]] = {}

    def remember(self, token: str, queues: set[str]) -> None:
        self._queues[token] = queues
        if len(self._queues) > REMEMBERED_TOKENS:
            self._queues.pop(next(iter(self._queues)))

    def of(self, tokens: set[str]) -> list[str] | None:
        """None as soon as one is not remembered."""
        found: set[str] = set()
        for token in tokens:
            queues = self._queues.get(token)
            if queues is None:
                return None
            found |= queues
        return list(found)


class HotPathVerbs(Desk):
    _coach: Coach | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._origins = Origins()
        self._orders = Orders()

    # Insert

    async def insert(self, jobs: Sequence[NewJob], transaction: Any = None) -> list[Inserted]:
        if not jobs:
            return []
        if transaction is not None:
            await self._rows("make_queues", list({job.queue for job in jobs}))
            return await self._beside(transaction, partial(self._insert_beside, jobs))
        if self._parts is None:
            return await self._insert_all(jobs)
        if self._coach is None:
            self._coach = Coach(self._insert_all)
        return await self._coach.insert(jobs)

    async def _insert_all(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        order = self._orders.take(jobs)
        if order is not None:
            return await self._insert_for(order, jobs)
        answers: list[Inserted] | None = None
        if len(jobs) == 1 and is_plain_job(jobs[0]):
            answers = await self._insert_one(jobs[0])
        elif can_copy(jobs):
            answers = await self._copy(jobs)
        if answers is None:
            answers = inserted(jobs, await self._rows("insert", self._now(), *columns(jobs)))
        if any(answer.created for answer in answers):
            self._arrived()
        return answers

    async def _insert_for(self, order: Order, jobs: Sequence[NewJob]) -> list[Inserted]:
        """With the claim of a worker that waits for them: one transaction, one sync."""
        cargo, token = Cargo((), ()), new_token()
        claimed: Exchange | None = None
        try:
            answers, leases = await self._insert_and_claim(order, jobs, token)
            claimed = self._received(leases, cargo, token)
        finally:
            order.give(claimed)
        if sum(answer.created for answer in answers) > len(claimed.leases):
            self._arrived()
        return answers

    async def _insert_and_claim(
        self, order: Order, jobs: Sequence[NewJob], token: str
    ) -> tuple[list[Inserted], Sequence[Any]]:
        now, queues, lease = self._now(), list(dict.fromkeys(order.queues)), milliseconds(order.lease_seconds)
        claim = (order.worker, token, queues, order.wanted, lease)
        if len(jobs) == 1 and is_plain_job(jobs[0]):
            # The most common case in one trip; no answer when the queue is unknown or limited.
            rows = await self._rows("insert_for", now, *plain_arguments(jobs[0]), *claim)
            if rows:
                return [Inserted(jobs[0].id, True, rows[0][0])], rows[1:]
        given = columns(jobs)
        arguments = [now, *claim, *NOTHING, *NO_OTHERS, None, False, None]

        async def work(connection: Connection, statements: Statements) -> tuple[list[Any], list[Any]]:
            async with connection.transaction():
                rows = await connection.fetch(statements["insert"], now, *given)
                return rows, await connection.fetch(statements["exchange"], *arguments)

        rows, leases = await self._run(work)
        return inserted(jobs, rows), leases

    async def _insert_one(self, job: NewJob) -> list[Inserted] | None:
        """None when the queue is unknown or limited."""
        sequence = await self._value("insert_one", self._now(), *plain_arguments(job))
        assert isinstance(sequence, int)
        return [Inserted(job.id, True, sequence)] if sequence else None

    async def _copy(self, jobs: Sequence[NewJob]) -> list[Inserted] | None:
        now = self._now()
        return await self._run(
            lambda connection, statements: copy(connection, statements, now, jobs), pooled_seconds=COMMAND_SECONDS
        )

    async def _insert_beside(
        self, jobs: Sequence[NewJob], connection: Connection, statements: Statements
    ) -> list[Inserted]:
        arguments = columns(jobs)
        arguments[1] = False  # the queue's row must not be held until the caller commits
        return inserted(jobs, await connection.fetch(statements["insert"], self._now(), *arguments))

    async def _finish(self, parts: Any) -> None:
        if self._coach is not None:
            await self._coach.finish()
            self._coach = None
        await super()._finish(parts)

    # The caller's own transaction

    async def settle(self, settlement: Settlement, transaction: Any) -> None:
        async def work(connection: Connection, statements: Statements) -> bool:
            arguments = transition_arguments(settlement)
            return bool(await connection.fetchval(statements["apply"], self._now(), *arguments))

        if not await self._beside(transaction, work):
            raise LeaseLost(f"Job {settlement.key.job_id}: the lease was lost; roll back what this attempt has done.")

    async def _beside(self, transaction: Any, work: Callable[[Connection, Statements], Awaitable[T]]) -> T:
        """It counts when, and only if, the caller commits."""
        parts = self._open_parts()
        with plain_words(self.url):
            connection = await driver_connection(transaction)
            if not connection.is_in_transaction():
                raise NotPossible("The connection has no open transaction: begin one first.")
            if await fingerprint(connection, f"{parts.statements.quoted}.jobyard_job") != self._fingerprint:
                raise NotPossible(f"The transaction belongs to another database; jobs live in {self.url}.")
            # A savepoint: a refusal must leave the caller's other work as it was.
            async with connection.transaction():
                answer = await work(connection, parts.statements)
            if self._parts is not None:
                self._parts.commits.watch(await connection.fetchval("SELECT pg_current_xact_id()::text"))
        return answer

    # Exchange

    async def _exchange_now(
        self, worker: str, settlements: Sequence[Settlement], queues: Sequence[str], wanted: int, lease_seconds: float
    ) -> Exchange:
        cargo, token = Cargo(settlements, self._family.ends.awaited), new_token()
        now, lease = self._now(), milliseconds(lease_seconds)
        arguments = [now, worker, token, list(dict.fromkeys(queues)), max(0, wanted), lease, *cargo.arguments(), None]
        rows = await self._settle_and_claim(cargo, arguments)
        answer = self._received(rows, cargo, token)
        if settlements:
            self._some_ended()
            if len(answer.leases) == wanted or cargo.brings_back:
                # Slots came free and this worker may not have taken all: others should look.
                self._arrived()
        if self._parts is not None:
            self._parts.broom.count(len(settlements) + len(answer.leases))
        return answer

    def _received(self, rows: Sequence[Any], cargo: Cargo, token: str) -> Exchange:
        answer = received(rows, cargo, token)
        if answer.leases:
            self._origins.remember(token, {lease.queue for lease in answer.leases})
        return answer

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
        self, worker: str, keys: Sequence[LeaseKey], lease_seconds: float, *, unseen: bool = False
    ) -> Extended:
        sequences, tokens = [key.sequence for key in keys], [key.token for key in keys]
        now, lease = self._now(), milliseconds(lease_seconds)
        window = milliseconds(UNSEEN_SECONDS) if unseen else None

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

    async def reclaim(self, limit: int = 1000) -> list[Ended]:
        rows = await self._rows("expired_leases", self._now(), limit)
        if not rows:
            return []
        asked_at = rows[0][9]
        settlements: list[Settlement] = []
        ended: list[Ended] = []
        for sequence, token, worker, attempt, queue, group, cancel, job_id, deaths, _ in rows:
            transition = bury(attempt=attempt, deaths=deaths, worker=worker, cancel_requested=cancel)
            assert transition.error is not None
            settlements.append(Settlement(LeaseKey(job_id, sequence, token), transition))
            error = msgspec.structs.replace(transition.error, at=asked_at)
            ended.append(
                Ended(job_id=job_id, queue=queue, group=group or None, token=token, worker=worker, error=error)
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
        return Lease(
            job_id=job.id,
            sequence=sequence,
            token=token,
            kind=job.kind,
            queue=job.queue,
            group=job.group,
            priority=job.priority,
            attempt=1,
            max_attempts=job.max_attempts,
            deaths=0,
            payload=job.payload,
            private_payload=job.private_payload,
            timeout_seconds=job.timeout_seconds,
            backoff=job.backoff,
        )

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


def inserted(jobs: Sequence[NewJob], rows: Sequence[Any]) -> list[Inserted]:
    if len(rows) != len(jobs):
        raise BadInput("The server answered for another number of jobs than were handed in.")
    return [
        Inserted(job.id, True, row[0]) if row[0] else Inserted(row[1], False, 0)
        for job, row in zip(jobs, rows, strict=True)
    ]


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
