"""Settlements: the batch that an exchange carries, and one in the caller's own transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from jobyard.domain.job import State
from jobyard.domain.lease import LeaseKey
from jobyard.domain.state import Settlement, Transition
from jobyard.ports.job_store import Exchange
from jobyard.stores._shared.errors import lease_lost
from jobyard.stores.postgres.codec import TransitionRow, leases_from_rows, transition_row
from jobyard.stores.postgres.connection import PostgresConnection
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.statements import Statements

OTHER_COLUMNS = tuple(f"o_{field}" for field in TransitionRow._fields)


class RareResults(msgspec.Struct, frozen=True):
    """What most exchanges do not return; as JSON in the payload column of the last row."""

    refused: list[int] = []
    cancelled: list[tuple[str, int, str, str]] = []


NO_RARE_RESULTS = RareResults()
_rare_results = msgspec.json.Decoder(RareResults)


class SettlementBatch:
    """The settlements of one exchange: plain completions as arrays, other transitions in their order."""

    __slots__ = ("_completions", "_others", "awaited", "settlements")

    def __init__(self, settlements: Sequence[Settlement] = (), awaited: Collection[str] = ()) -> None:
        self.settlements = settlements
        self._completions: list[Settlement] = []
        self._others: list[Settlement] = []
        # When a job is settled twice in one batch, the order matters, so none may be moved.
        distinct = len({settlement.key.sequence for settlement in settlements}) == len(settlements)
        for settlement in settlements:
            is_plain = distinct and is_plain_completion(settlement.transition)
            (self._completions if is_plain else self._others).append(settlement)
        self.awaited = [one for one in settlements if one.key.job_id in awaited] if awaited else []

    @property
    def may_requeue(self) -> bool:
        """Whether some of the jobs may become claimable again."""
        return bool(self._others)

    def columns(self) -> dict[str, Any]:
        """The fields of `ExchangeArguments` that carry the settlements."""
        completions, others = self._completions, self._others
        columns: dict[str, Any] = {}
        if completions:
            results = [None if one.transition.result == b"null" else one.transition.result for one in completions]
            columns["c_sequence"] = [one.key.sequence for one in completions]
            columns["c_token"] = [one.key.token for one in completions]
            columns["c_result"] = results if any(result is not None for result in results) else ()
        if self.awaited:
            columns["p_keep"] = [one.key.sequence for one in self.awaited]
        if others:
            rows = zip(*map(transition_row, others), strict=True)
            columns.update(zip(OTHER_COLUMNS, map(list, rows), strict=True))
        return columns

    def tokens(self) -> set[str]:
        return {one.key.token for one in self._completions}

    def refused(self, marks: list[int]) -> tuple[LeaseKey, ...]:
        """Keys of refused settlements. A mark is the sequence of a completion, or minus the position of another."""
        if not marks:
            return ()
        refused = set(marks)
        positions = {id(one): -position for position, one in enumerate(self._others, 1)}
        return tuple(one.key for one in self.settlements if positions.get(id(one), one.key.sequence) in refused)


def is_plain_completion(transition: Transition) -> bool:
    return (
        transition.to is State.COMPLETED
        and transition.counted
        and transition.error is None
        and transition.reason is None
        and transition.result is not None
        and not transition.died
    )


def exchange_from_rows(rows: Sequence[Any], batch: SettlementBatch, token: str) -> Exchange:
    last = rows[-1]
    rare = NO_RARE_RESULTS if last[9] is None else _rare_results.decode(last[9])
    return Exchange(
        refused=batch.refused(rare.refused),
        leases=leases_from_rows(rows[:-1], token),
        cancelled=tuple(
            (LeaseKey(job_id, sequence, held), reason) for job_id, sequence, held, reason in rare.cancelled
        ),
        next_due_at=last[17],
        revision=last[16],
        now=last[15],
    )


class PostgresSettle:
    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    async def settle(self, settlement: Settlement, transaction: Any) -> None:
        now, row = self._connection.now(), transition_row(settlement)

        async def apply(connection: Connection, statements: Statements) -> bool:
            return bool(await connection.fetchval(statements["apply"], now, *row))

        if not await self._connection.run_in(transaction, apply):
            raise lease_lost(settlement.key.job_id)
