"""What an exchange sends and receives."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from jobyard.domain.job import State
from jobyard.domain.lease import Lease, LeaseKey
from jobyard.domain.retry import DEFAULT_BACKOFF
from jobyard.domain.state import Settlement, Transition
from jobyard.ports.job_store import Exchange
from jobyard.stores._shared.job_rows import decode_backoff
from jobyard.stores.postgres.columns import milliseconds

# Columns of the answer.
QUEUE, PLACE = 3, 14
NOTHING: list[Any] = [[], [], [], []]
NO_OTHERS: list[Any] = [[] for _ in range(12)]


class Rest(msgspec.Struct, frozen=True):
    """What is seldom there: settlements that were refused, jobs that were asked to stop."""

    refused: list[int] = []
    cancelled: list[tuple[str, int, str, str]] = []


NO_REST = Rest()
_rest = msgspec.json.Decoder(Rest)


class Cargo:
    """The settlements of one trip: plain completions in one batch, the others in their order."""

    __slots__ = ("_common", "_others", "awaited", "settlements")

    def __init__(self, settlements: Sequence[Settlement], awaited: Collection[str]) -> None:
        self.settlements = settlements
        self._common: list[Settlement] = []
        self._others: list[Settlement] = []
        # Where one job is settled twice in a trip the order counts, so all go one by one.
        distinct = len({settlement.key.sequence for settlement in settlements}) == len(settlements)
        for settlement in settlements:
            (self._common if distinct and is_plain(settlement.transition) else self._others).append(settlement)
        self.awaited = [one for one in settlements if one.key.job_id in awaited] if awaited else []

    @property
    def brings_back(self) -> bool:
        """Whether some of the jobs go back to waiting, so that others may take them."""
        return bool(self._others)

    def arguments(self) -> list[Any]:
        common, others = self._common, self._others
        if not common and not others:
            return NOTHING + NO_OTHERS
        results = [None if one.transition.result == b"null" else one.transition.result for one in common]
        return [
            [one.key.sequence for one in common],
            [one.key.token for one in common],
            results if any(result is not None for result in results) else [],
            [one.key.sequence for one in self.awaited],
            *(other_arguments(others) if others else NO_OTHERS),
        ]

    def tokens(self) -> set[str]:
        """Those of the plain completions."""
        return {one.key.token for one in self._common}

    def refused(self, marks: list[int]) -> tuple[LeaseKey, ...]:
        """The server names plain completions by sequence, the others by minus their place."""
        if not marks:
            return ()
        refused = set(marks)
        places = {id(one): -place for place, one in enumerate(self._others, 1)}
        return tuple(one.key for one in self.settlements if places.get(id(one), one.key.sequence) in refused)


def is_plain(transition: Transition) -> bool:
    return (
        transition.to is State.COMPLETED
        and transition.counted
        and transition.error is None
        and transition.reason is None
        and transition.result is not None
        and not transition.died
    )


def transition_arguments(settlement: Settlement) -> tuple[Any, ...]:
    """From the sequence on, as jobyard_apply takes them."""
    key, transition = settlement.key, settlement.transition
    return (
        key.sequence,
        key.token,
        str(transition.to),
        transition.counted,
        transition.died,
        milliseconds(transition.delay_seconds),
        transition.signal,
        None if transition.park_seconds is None else milliseconds(transition.park_seconds),
        transition.external_id,
        transition.result,
        storable(transition.reason),
        None if transition.error is None else msgspec.json.encode(transition.error),
    )


def other_arguments(settlements: Sequence[Settlement]) -> list[Any]:
    return [list(column) for column in zip(*map(transition_arguments, settlements), strict=True)]


def storable(text: str | None) -> str | None:
    """A reason may quote anything; PostgreSQL's text takes all but the NUL.

    >>> storable("a\\0b")
    'a␀b'
    """
    return text if text is None or "\0" not in text else text.replace("\0", "␀")


def in_turn(rows: Sequence[Any]) -> Sequence[Any]:
    """From group after group to the order of single claims: one round after the other, each in line order.

    Where several queues take turns, they do so in the same way; their groups stand queue after queue.

    >>> rows = [[name, *"..q", *range(10), place] for name, place in (("a1", 7), ("a2", 7), ("b1", 9))]
    >>> [row[0] for row in in_turn(rows)]
    ['a1', 'b1', 'a2']
    """
    if len(rows) < 2:
        return rows
    ordered = _rounds(rows, PLACE)
    # Places grow from queue to queue, so that each round of the queues is in their order, too.
    return _rounds(ordered, QUEUE) if len({row[QUEUE] for row in rows}) > 1 else ordered


def _rounds(rows: Sequence[Any], column: int) -> list[Any]:
    """First the first of each, then the second of each."""
    counts: dict[Any, int] = {}
    turns: list[tuple[int, int, Any]] = []
    for row in rows:
        count = counts.get(row[column], 0)
        counts[row[column]] = count + 1
        turns.append((count, row[PLACE], row))
    turns.sort(key=itemgetter(0, 1))
    return [row for _, _, row in turns]


def received(rows: Sequence[Any], cargo: Cargo, token: str) -> Exchange:
    last = rows[-1]
    rest = NO_REST if last[9] is None else _rest.decode(last[9])
    leases = tuple(
        [
            Lease(
                job_id,
                sequence,
                token,
                kind,
                queue,
                group or None,
                priority,
                attempt,
                most,
                deaths,
                payload,
                private,
                timeout,
                DEFAULT_BACKOFF if backoff is None else decode_backoff(backoff),
                signal,
            )
            for (
                sequence,
                job_id,
                kind,
                queue,
                group,
                priority,
                attempt,
                most,
                deaths,
                payload,
                private,
                timeout,
                backoff,
                signal,
                *_,
            ) in in_turn(rows[:-1])
        ]
    )
    return Exchange(
        refused=cargo.refused(rest.refused),
        leases=leases,
        cancelled=tuple(
            (LeaseKey(job_id, sequence, held), reason) for job_id, sequence, held, reason in rest.cancelled
        ),
        next_due_at=last[17],
        revision=last[16],
        now=last[15],
    )
