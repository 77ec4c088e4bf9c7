"""Leases: renew, report on, reclaim, adopt and signal running jobs."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import msgspec

from jobyard.domain.history import MAX_SIGNALS
from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob
from jobyard.domain.lease import UNACKNOWLEDGED_SECONDS, ExpiredLease, Lease, LeaseKey, adopted
from jobyard.domain.state import Settlement, judge_expired
from jobyard.errors import JobNotFound
from jobyard.ports.job_store import Extended, Report
from jobyard.stores._shared.errors import cannot_signal, too_many_signals
from jobyard.stores.postgres.claim import PostgresClaim, new_token
from jobyard.stores.postgres.codec import ExchangeArguments, adoption, milliseconds, plain_job, report_row
from jobyard.stores.postgres.connection import PostgresConnection
from jobyard.stores.postgres.notifier import PostgresNotifier
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.settle import SettlementBatch, exchange_from_rows
from jobyard.stores.postgres.statements import Statements


class PostgresLeases:
    def __init__(self, connection: PostgresConnection, notifier: PostgresNotifier, claim: PostgresClaim) -> None:
        self._connection = connection
        self._notifier = notifier
        self._claim = claim

    async def extend(
        self, worker: str, keys: Sequence[LeaseKey], lease_seconds: float, *, unacknowledged: bool = False
    ) -> Extended:
        sequences, tokens = [key.sequence for key in keys], [key.token for key in keys]
        now, lease = self._connection.now(), milliseconds(lease_seconds)
        window = milliseconds(UNACKNOWLEDGED_SECONDS) if unacknowledged else None

        async def extend(connection: Connection, statements: Statements) -> Extended:
            rows = await connection.fetch(statements["extend"], now, worker, sequences, tokens, lease, window)
            cancelled = await connection.fetch(statements["cancelled_leases"], worker)
            return Extended(
                lost=tuple(keys[row[0] - 1] for row in rows),
                cancelled=tuple((LeaseKey(row[0], row[1], row[2]), row[3]) for row in cancelled),
            )

        return await self._connection.run(extend)

    async def report(self, reports: Sequence[Report]) -> tuple[LeaseKey, ...]:
        now = self._connection.now()

        async def report(connection: Connection, statements: Statements) -> tuple[LeaseKey, ...]:
            async with connection.transaction():
                held = [await connection.fetchval(statements["report"], now, *report_row(one)) for one in reports]
            return tuple(one.key for one, holds in zip(reports, held, strict=True) if not holds)

        return await self._connection.run(report)

    async def reclaim(
        self, limit: int = 1000, *, as_of: Instant | None = None, longest_seconds: float | None = None
    ) -> list[ExpiredLease]:
        longest = None if longest_seconds is None else milliseconds(longest_seconds)
        found = await self._connection.fetch("expired_leases", self._connection.now(), limit, as_of, longest)
        if too_long := [row[0] for row in found if row[11]]:
            await self._connection.fetch_value("shorten", self._connection.now(), longest, too_long)
        rows = [row for row in found if not row[11]]
        if not rows:
            return []
        read_at, judged_at = rows[0][9], rows[0][10]
        settlements: list[Settlement] = []
        ended: list[ExpiredLease] = []
        for sequence, token, worker, attempt, queue, group_name, cancel, job_id, deaths, _, _, _, begun in rows:
            transition = judge_expired(
                attempt=attempt, deaths=deaths, worker=worker, cancel_requested=cancel, ends_itself=begun
            )
            assert transition.error is not None
            settlements.append(Settlement(LeaseKey(job_id, sequence, token), transition))
            group, error = group_name or None, msgspec.structs.replace(transition.error, at=read_at)
            ended.append(ExpiredLease(job_id=job_id, queue=queue, group=group, token=token, worker=worker, error=error))
        batch = SettlementBatch(settlements, self._connection.waiters.ends.awaited)
        # Only what had expired by then: a lease that was renewed since is still held.
        columns = batch.columns() | {"p_expired_before": judged_at, "p_impatient": True}
        arguments = ExchangeArguments(read_at, "", "", [], 0, 0, **columns)
        answer = exchange_from_rows(await self._claim.send(batch, arguments), batch, "")
        refused = {key.sequence for key in answer.refused}
        self._notifier.announce_ends()
        self._notifier.announce_work()
        return [one for one, row in zip(ended, rows, strict=True) if row[0] not in refused]

    async def adopt(self, job: NewJob, worker: str, external_id: str, token: str | None = None) -> Lease:
        token = token or new_token()
        arguments = (*plain_job(job), *adoption(job, worker, token, external_id))
        sequence: int = await self._connection.fetch_value("adopt", self._connection.now(), *arguments)
        return adopted(job, sequence, token)

    async def signal(self, job_id: str, name: str, data: bytes = b"null", *, signal_id: str | None = None) -> bool:
        key = signal_id or secrets.token_hex(8)
        rows = await self._connection.fetch("signal", self._connection.now(), job_id, name, data, key, MAX_SIGNALS)
        if not rows:
            raise JobNotFound.of(job_id)
        woke, final, is_full = rows[0]
        if final is not None:
            raise cannot_signal(job_id, final)
        if is_full:
            raise too_many_signals(job_id, name)
        if woke:
            self._notifier.announce_work()
        return bool(woke)
