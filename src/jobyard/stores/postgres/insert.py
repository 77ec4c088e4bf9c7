"""Jobs come in: alone, together, in bulk, or with the claim of a worker that waits for them."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob
from jobyard.errors import BadInput, NotPossible
from jobyard.ports.job_store import Exchange, Inserted
from jobyard.stores.postgres.bulk import can_copy, copy
from jobyard.stores.postgres.columns import (
    columns,
    is_plain_job,
    milliseconds,
    plain_arguments,
)
from jobyard.stores.postgres.desk import Desk
from jobyard.stores.postgres.inserting import Coach
from jobyard.stores.postgres.lost import Lost
from jobyard.stores.postgres.ordering import Order, Orders
from jobyard.stores.postgres.own import driver_connection, fingerprint
from jobyard.stores.postgres.pool import COMMAND_SECONDS, Connection
from jobyard.stores.postgres.statements import Statements
from jobyard.stores.postgres.trips import NO_OTHERS, NOTHING, PLACE, Cargo, received
from jobyard.stores.postgres.words import TRY_AGAIN, plain_words, state_of

T = TypeVar("T")

# An exchange is remembered until so many others have come: its jobs have then mostly ended.
REMEMBERED_TOKENS = 4096


def new_token() -> str:
    """One per exchange: no job is claimed twice in one, so it is one per attempt."""
    return secrets.token_hex(8)


NOTHING_TO_SETTLE = Cargo((), ())


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


class InsertVerbs(Desk):
    _coach: Coach | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._origins = Origins()
        self._orders = Orders()
        self._lost = Lost()

    async def insert(self, jobs: Sequence[NewJob], transaction: Any = None) -> list[Inserted]:
        if not jobs:
            return []
        if transaction is not None:
            await self._rows("make_queues", list({job.queue for job in jobs}))
            return await self._beside(transaction, partial(self._insert_beside, jobs))
        self._open_parts()
        if self._parts is None:
            return await self._insert_all(jobs)
        if self._coach is None:
            self._coach = Coach(self._insert_all)
        return await self._coach.insert(jobs)

    async def _insert_all(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        order = self._orders.take(jobs)
        answers = None if order is None else await self._insert_for(order, jobs)
        if answers is not None:
            return answers
        if len(jobs) == 1 and is_plain_job(jobs[0]):
            answers = await self._insert_one(jobs[0])
        elif can_copy(jobs):
            answers = await self._copy(jobs)
        if answers is None:
            answers = inserted(jobs, await self._rows("insert", self._now(), *columns(jobs)))
        if any(answer.created for answer in answers):
            self._arrived()
        return answers

    async def _insert_for(self, order: Order, jobs: Sequence[NewJob]) -> list[Inserted] | None:
        """With the claim of a worker that waits for them: one transaction. None: somebody is in the way."""
        token = new_token()
        now, queues, lease = self._now(), list(dict.fromkeys(order.queues)), milliseconds(order.lease_seconds)
        claim = (order.worker, token, queues, order.wanted, lease)
        try:
            answers = None
            if len(jobs) == 1 and is_plain_job(jobs[0]):
                answers = await self._insert_one_for(order, jobs[0], now, claim)
            if answers is None:
                answers, rows = await self._insert_and_claim(jobs, now, claim)
                order.give(self._received(rows, NOTHING_TO_SETTLE, token))
        except BaseException as error:
            if error.__cause__ is not None and state_of(error.__cause__) in TRY_AGAIN:
                # Nothing happened. Neither the worker nor the queue should wait for whoever is in the way.
                return None
            if not order.answer.done():
                self._lost.note(order.worker, token)
            raise
        finally:
            order.give(None)
        claimed = order.answer.result() if order.answer.done() and not order.answer.cancelled() else None
        if sum(answer.created for answer in answers) > (0 if claimed is None else len(claimed.leases)):
            self._arrived()
        return answers

    async def _insert_one_for(
        self, order: Order, job: NewJob, now: Instant | None, claim: tuple[Any, ...]
    ) -> list[Inserted] | None:
        """The most common case in one trip; no answer when the queue is unknown or limited."""
        arguments = (now, *plain_arguments(job), *claim)

        async def work(connection: Connection, statements: Statements) -> list[Any]:
            rows: list[Any] = await connection.fetch(statements["insert_for"], *arguments)
            if rows and not connection.is_in_transaction():
                # Committed: the worker should not wait until we are done here.
                order.give(self._received(rows[1:], NOTHING_TO_SETTLE, claim[1]))
            return rows

        rows = await self._run(work, attempts=1)
        if not rows:
            return None
        if not order.answer.done():
            order.give(self._received(rows[1:], NOTHING_TO_SETTLE, claim[1]))
        if rows[0][PLACE]:
            # The worker has begun; whoever handed the job in hears of it when the disk has it.
            await self._rows("flush")
        return [Inserted(job.id, True, rows[0][0])]

    async def _insert_and_claim(
        self, jobs: Sequence[NewJob], now: Instant | None, claim: tuple[Any, ...]
    ) -> tuple[list[Inserted], Sequence[Any]]:
        given = columns(jobs)
        arguments = [now, *claim, *NOTHING, *NO_OTHERS, None, False, None]

        async def work(connection: Connection, statements: Statements) -> tuple[list[Any], list[Any]]:
            async with connection.transaction():
                rows = await connection.fetch(statements["insert"], now, *given)
                return rows, await connection.fetch(statements["exchange"], *arguments)

        rows, leases = await self._run(work, attempts=1)
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

    async def close(self) -> None:
        if self._coach is not None and self._parts is not None:
            await self._coach.finish()
            self._coach = None
        await super().close()

    def _received(self, rows: Sequence[Any], cargo: Cargo, token: str) -> Exchange:
        answer = received(rows, cargo, token)
        if answer.leases:
            self._origins.remember(token, {lease.queue for lease in answer.leases})
        return answer


def inserted(jobs: Sequence[NewJob], rows: Sequence[Any]) -> list[Inserted]:
    if len(rows) != len(jobs):
        raise BadInput("The server answered for another number of jobs than were handed in.")
    return [
        Inserted(job.id, True, row[0]) if row[0] else Inserted(row[1], False, 0)
        for job, row in zip(jobs, rows, strict=True)
    ]
