"""Claim: the `exchange` verb. The admission rule runs in the server: `functions/claim.sql`, `claim_one.sql`."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import Job
from jobyard.domain.lease import UNACKNOWLEDGED_SECONDS, LeaseKey
from jobyard.domain.state import Settlement, judge_expired
from jobyard.errors import StoreError
from jobyard.ports.job_store import Exchange
from jobyard.stores._shared.limits import MIN_WAIT_SECONDS
from jobyard.stores._shared.polling_claim import POLL_SECONDS
from jobyard.stores.postgres.codec import ClaimRequest, ExchangeArguments, milliseconds
from jobyard.stores.postgres.connection import PostgresConnection
from jobyard.stores.postgres.errors import LOCK_NOT_AVAILABLE, QUEUE_NOT_LOCKED, state_of
from jobyard.stores.postgres.job_rows import load_jobs
from jobyard.stores.postgres.notifier import PollInterval, PostgresNotifier
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.settle import SettlementBatch, exchange_from_rows
from jobyard.stores.postgres.waiting_claims import PostgresWaitingClaim, PostgresWaitingClaims

# Retries for about a second; then a job that a caller's open transaction is settling is refused.
LOCKED_ATTEMPTS = 12
# By the time this many newer exchanges have come, the jobs of an older one have mostly ended.
REMEMBERED_TOKENS = 4096


def new_token() -> str:
    """One per exchange, which claims a job at most once: so also one per attempt."""
    return secrets.token_hex(8)


class ClaimedQueues:
    """The queues of the jobs that recent exchanges claimed, so that settling them needs no lookup."""

    def __init__(self) -> None:
        self._queues: dict[str, set[str]] = {}

    def remember(self, token: str, queues: set[str]) -> None:
        self._queues[token] = queues
        if len(self._queues) > REMEMBERED_TOKENS:
            self._queues.pop(next(iter(self._queues)))

    def of(self, tokens: set[str]) -> list[str] | None:
        """None when one of the tokens is not remembered."""
        found: set[str] = set()
        for token in tokens:
            queues = self._queues.get(token)
            if queues is None:
                return None
            found |= queues
        return list(found)


class UnacknowledgedTokens:
    """Exchanges whose response was lost, by worker: their leases are ended soon, not held until they expire.

    Kept for as long as such leases are renewed: a commit may arrive late.
    """

    def __init__(self) -> None:
        self._tokens: dict[str, dict[str, float]] = {}

    def add(self, worker: str, token: str) -> None:
        self._tokens.setdefault(worker, {})[token] = time.monotonic()

    def of(self, worker: str) -> list[str]:
        tokens = self._tokens.get(worker)
        if not tokens:
            return []
        now = time.monotonic()
        recent = {token: since for token, since in tokens.items() if now - since < UNACKNOWLEDGED_SECONDS}
        if recent:
            self._tokens[worker] = recent
        else:
            del self._tokens[worker]
        return list(recent)


class PostgresClaim:
    def __init__(self, connection: PostgresConnection, notifier: PostgresNotifier) -> None:
        self.waiting = PostgresWaitingClaims()
        self.unacknowledged = UnacknowledgedTokens()
        self._connection = connection
        self._notifier = notifier
        self._waiters = connection.waiters
        self._claimed_queues = ClaimedQueues()

    async def exchange(
        self,
        worker: str,
        settlements: Sequence[Settlement],
        queues: Sequence[str],
        wanted: int,
        lease_seconds: float,
        until: asyncio.Future[None] | None = None,
    ) -> Exchange:
        if until is None or settlements:
            return await self._exchange(worker, settlements, queues, wanted, lease_seconds)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + POLL_SECONDS
        interval = PollInterval(await self._notifier.listening())
        while True:
            changed = self._waiters.work.add()
            try:
                answer = await self._exchange(worker, (), queues, wanted, lease_seconds)
                remaining = deadline - loop.time()
                if answer.leases or answer.cancelled or until.done() or remaining <= 0:
                    return answer
                sleep = min(remaining, interval.next(), self._seconds_until_due(answer))
                claim = PostgresWaitingClaim(worker, queues, wanted, lease_seconds)
                given = await self._wait(claim, changed, until, sleep)
                if given is not None or until.done():
                    return given or answer
            finally:
                self._waiters.work.discard(changed)

    async def _wait(
        self, claim: PostgresWaitingClaim, changed: asyncio.Future[None], until: asyncio.Future[None], seconds: float
    ) -> Exchange | None:
        """Wait until an insert of this process serves the claim, or one of the other events withdraws it."""
        self.waiting.add(claim)
        for event in (changed, until):
            event.add_done_callback(claim.withdraw)
        timer = asyncio.get_running_loop().call_later(seconds, claim.withdraw)
        try:
            return await claim.answer
        finally:
            timer.cancel()
            for event in (changed, until):
                event.remove_done_callback(claim.withdraw)
            self.waiting.discard(claim)

    def _seconds_until_due(self, answer: Exchange) -> float:
        if answer.next_due_at is None or self._connection.has_adjustable_clock:
            return POLL_SECONDS
        return max(MIN_WAIT_SECONDS, (answer.next_due_at - answer.now) / 1000)

    async def _exchange(
        self, worker: str, settlements: Sequence[Settlement], queues: Sequence[str], wanted: int, lease_seconds: float
    ) -> Exchange:
        returned = await self._return_unacknowledged(worker)
        batch = SettlementBatch([*settlements, *returned], self._waiters.ends.awaited)
        token = new_token()
        request = ClaimRequest(worker, token, list(dict.fromkeys(queues)), max(0, wanted), milliseconds(lease_seconds))
        try:
            rows = await self._settle_and_claim(batch, self._connection.now(), request)
        except BaseException:
            self.unacknowledged.add(worker, token)
            raise
        answer = self.decode(rows, batch, token)
        if returned and answer.refused:
            ours = {settlement.key for settlement in returned}
            answer = msgspec.structs.replace(answer, refused=tuple(key for key in answer.refused if key not in ours))
        if settlements:
            self._notifier.announce_ends()
            if len(answer.leases) == wanted or batch.may_requeue:
                # Slots came free that this worker may not have used up.
                self._notifier.announce_work()
        if self._connection.opened is not None:
            self._connection.opened.vacuum.count(len(settlements) + len(answer.leases))
        return answer

    async def _return_unacknowledged(self, worker: str) -> list[Settlement]:
        """End the leases of lost responses as if they had expired, so that their slots come free."""
        tokens = self.unacknowledged.of(worker)
        if not tokens:
            return []
        rows = await self._connection.fetch("unacknowledged_leases", worker, tokens)
        return [
            Settlement(
                LeaseKey(job_id, sequence, token),
                judge_expired(
                    attempt=attempt, deaths=deaths, worker=worker, cancel_requested=cancel, ends_itself=begun
                ),
            )
            for job_id, sequence, token, attempt, deaths, cancel, begun in rows
        ]

    async def _settle_and_claim(
        self, batch: SettlementBatch, now: Instant | None, request: ClaimRequest
    ) -> Sequence[Any]:
        queues = self._claimed_queues.of(batch.tokens())
        arguments = ExchangeArguments(now, *request, **batch.columns(), p_from=queues)
        try:
            return await self.send(batch, arguments)
        except StoreError as error:
            state = state_of(error.__cause__)
            if state not in (LOCK_NOT_AVAILABLE, QUEUE_NOT_LOCKED):
                raise
        return await self.send(batch, arguments._replace(p_impatient=state == LOCK_NOT_AVAILABLE, p_from=None))

    async def send(self, batch: SettlementBatch, arguments: ExchangeArguments) -> Sequence[Any]:
        resources = self._connection.resources()
        statement = resources.statements["exchange"]
        if not batch.awaited:
            return await resources.pool.run(lambda connection: connection.fetch(statement, *arguments), LOCKED_ATTEMPTS)
        # Callers in this process wait for these jobs: load them before retention may remove them.
        ids = [one.key.job_id for one in batch.awaited]

        async def exchange_and_load(connection: Connection) -> tuple[list[Any], dict[str, Job]]:
            async with connection.transaction():
                rows = await connection.fetch(statement, *arguments)
                return rows, await load_jobs(connection, resources.statements, arguments.p_now, ids)

        ends = self._waiters.ends
        ends.begin_settling(ids)
        try:
            rows, jobs = await resources.pool.run(exchange_and_load, LOCKED_ATTEMPTS)
            ends.resolve(jobs.values())
        finally:
            ends.end_settling(ids)
        return rows

    def decode(self, rows: Sequence[Any], batch: SettlementBatch, token: str) -> Exchange:
        answer = exchange_from_rows(rows, batch, token)
        if answer.leases:
            self._claimed_queues.remember(token, {lease.queue for lease in answer.leases})
        return answer
