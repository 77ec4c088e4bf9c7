"""Insert: one job, several, many by COPY, or together with a waiting claim."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob
from jobyard.errors import BadInput, StoreError
from jobyard.ports.job_store import Inserted
from jobyard.stores.postgres.bulk_copy import can_copy, copy
from jobyard.stores.postgres.claim import PostgresClaim, new_token
from jobyard.stores.postgres.codec import (
    PLACE,
    ClaimRequest,
    ExchangeArguments,
    is_plain_job,
    job_columns,
    milliseconds,
    plain_job,
)
from jobyard.stores.postgres.connection import PostgresConnection
from jobyard.stores.postgres.errors import RETRYABLE, UNIQUE_VIOLATION, state_of
from jobyard.stores.postgres.insert_batcher import InsertBatcher
from jobyard.stores.postgres.notifier import PostgresNotifier
from jobyard.stores.postgres.pool import COMMAND_SECONDS, Connection
from jobyard.stores.postgres.settle import SettlementBatch
from jobyard.stores.postgres.statements import Statements
from jobyard.stores.postgres.waiting_claims import PostgresWaitingClaim

NO_SETTLEMENTS = SettlementBatch()


class PostgresInsert:
    def __init__(self, connection: PostgresConnection, notifier: PostgresNotifier, claim: PostgresClaim) -> None:
        self._connection = connection
        self._notifier = notifier
        self._claim = claim
        self._batcher: InsertBatcher | None = None

    async def insert(self, jobs: Sequence[NewJob], transaction: Any = None) -> list[Inserted]:
        if not jobs:
            return []
        if transaction is not None:
            # In a transaction of its own: a new queue's row must not stay locked until the caller commits.
            await self._connection.fetch("create_queues", list({job.queue for job in jobs}))
            insert = partial(self._connection.run_in, transaction, partial(self._insert_in_transaction, jobs))
            return await _insert_children_once(jobs, insert)
        self._connection.resources()
        if self._connection.opened is None:
            return await self._insert(jobs)
        if self._batcher is None:
            self._batcher = InsertBatcher(self._insert)
        return await self._batcher.insert(jobs)

    async def finish(self) -> None:
        """Send all pending inserts, before the connection is closed."""
        if self._batcher is not None and self._connection.opened is not None:
            await self._batcher.finish()
            self._batcher = None

    async def _insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        return await _insert_children_once(jobs, partial(self._insert_once, jobs))

    async def _insert_once(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        claim = self._claim.waiting.take(jobs)
        answers = None if claim is None else await self._insert_for(claim, jobs)
        if answers is not None:
            return answers
        if len(jobs) == 1 and is_plain_job(jobs[0]):
            sequence = await self._connection.fetch_value("insert_one", self._connection.now(), *plain_job(jobs[0]))
            # None when the queue is unknown or limited.
            answers = [Inserted(jobs[0].id, True, sequence)] if sequence else None
        elif can_copy(jobs):
            bulk = partial(copy, self._connection.now(), jobs)
            answers = await self._connection.run(bulk, pooled_seconds=COMMAND_SECONDS)
        if answers is None:
            columns = job_columns(jobs)
            rows = await self._connection.fetch("insert", self._connection.now(), columns.queues, True, *columns)
            answers = inserted(jobs, rows)
        if any(answer.created for answer in answers):
            self._notifier.announce_work()
        return answers

    async def _insert_for(self, claim: PostgresWaitingClaim, jobs: Sequence[NewJob]) -> list[Inserted] | None:
        """Insert the jobs and serve the claim in one transaction. None when a lock is held by another one."""
        token = new_token()
        now = self._connection.now()
        queues, lease = list(dict.fromkeys(claim.queues)), milliseconds(claim.lease_seconds)
        request = ClaimRequest(claim.worker, token, queues, claim.wanted, lease)
        try:
            answers = None
            if len(jobs) == 1 and is_plain_job(jobs[0]):
                answers = await self._insert_one_for(claim, jobs[0], now, request)
            if answers is None:
                answers, rows = await self._insert_and_claim(jobs, now, request)
                claim.give(self._claim.decode(rows, NO_SETTLEMENTS, token))
        except BaseException as error:
            if state_of(error.__cause__) in RETRYABLE:
                # Nothing was written. Neither the worker nor the queue should wait for the other transaction.
                return None
            if not claim.answer.done():
                self._claim.unacknowledged.add(claim.worker, token)
            raise
        finally:
            claim.give(None)
        given = claim.answer.result() if claim.answer.done() and not claim.answer.cancelled() else None
        if sum(answer.created for answer in answers) > (0 if given is None else len(given.leases)):
            self._notifier.announce_work()
        return answers

    async def _insert_one_for(
        self, claim: PostgresWaitingClaim, job: NewJob, now: Instant | None, request: ClaimRequest
    ) -> list[Inserted] | None:
        """The most common case in one trip. None when the queue is unknown or limited."""
        arguments = (now, *plain_job(job), *request)

        async def insert_for(connection: Connection, statements: Statements) -> list[Any]:
            rows: list[Any] = await connection.fetch(statements["insert_for"], *arguments)
            if rows and not connection.is_in_transaction():
                # Committed: serve the claim before the connection goes back to the pool.
                claim.give(self._claim.decode(rows[1:], NO_SETTLEMENTS, request.token))
            return rows

        rows = await self._connection.run(insert_for, attempts=1)
        if not rows:
            return None
        if not claim.answer.done():
            claim.give(self._claim.decode(rows[1:], NO_SETTLEMENTS, request.token))
        if rows[0][PLACE]:
            # The commit did not wait for the disk, so that the worker can start; the caller of insert must wait.
            await self._connection.fetch("flush")
        return [Inserted(job.id, True, rows[0][0])]

    async def _insert_and_claim(
        self, jobs: Sequence[NewJob], now: Instant | None, request: ClaimRequest
    ) -> tuple[list[Inserted], Sequence[Any]]:
        columns = job_columns(jobs)
        arguments = ExchangeArguments(now, *request)

        async def insert_and_exchange(connection: Connection, statements: Statements) -> tuple[list[Any], list[Any]]:
            async with connection.transaction():
                rows = await connection.fetch(statements["insert"], now, columns.queues, True, *columns)
                return rows, await connection.fetch(statements["exchange"], *arguments)

        rows, leases = await self._connection.run(insert_and_exchange, attempts=1)
        return inserted(jobs, rows), leases

    async def _insert_in_transaction(
        self, jobs: Sequence[NewJob], connection: Connection, statements: Statements
    ) -> list[Inserted]:
        columns = job_columns(jobs)
        # Not strict: the queue's row must not stay locked until the caller commits.
        rows = await connection.fetch(statements["insert"], self._connection.now(), columns.queues, False, *columns)
        return inserted(jobs, rows)


async def _insert_children_once(
    jobs: Sequence[NewJob], insert: Callable[[], Awaitable[list[Inserted]]]
) -> list[Inserted]:
    """Repeat when a concurrent transaction has inserted one of the child jobs, which then exists."""
    try:
        return await insert()
    except BadInput as error:
        if state_of(error.__cause__) != UNIQUE_VIOLATION or all(job.parent is None for job in jobs):
            raise
    return await insert()


def inserted(jobs: Sequence[NewJob], rows: Sequence[Any]) -> list[Inserted]:
    if len(rows) != len(jobs):
        raise StoreError(f"The server returned {len(rows)} rows for {len(jobs)} inserted jobs.")
    return [
        Inserted(job.id, True, row[0]) if row[0] else Inserted(row[1], False, 0)
        for job, row in zip(jobs, rows, strict=True)
    ]
