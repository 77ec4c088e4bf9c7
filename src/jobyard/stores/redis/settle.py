"""Settlements as the server reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from jobyard.domain.job import State
from jobyard.domain.lease import LeaseKey
from jobyard.domain.state import Settlement, Transition
from jobyard.stores._shared.errors import settle_without_transaction
from jobyard.stores.redis.codec import CODES, as_string, milliseconds

# Leases that are never settled here, such as those of handed-off jobs, must not pile up.
MAX_KNOWN = 100_000


class LeaseQueues:
    """The queue of each lease granted to this process. For an unknown lease, the server searches its queues."""

    def __init__(self) -> None:
        self._queues: dict[int, str] = {}

    def add(self, sequences: Sequence[int], queues: Sequence[bytes]) -> None:
        for sequence, queue in zip(sequences, queues, strict=True):
            self._queues[sequence] = queue.decode()
        while len(self._queues) > MAX_KNOWN:
            self._queues.pop(next(iter(self._queues)), None)

    def get(self, sequence: int) -> str | bool:
        return self._queues.get(sequence, False)

    def encode_key(self, key: LeaseKey) -> tuple[str | bool, str, str, str]:
        return (self.get(key.sequence), f"{key.sequence:015d}", key.job_id, key.token)

    def pop(self, sequence: int) -> str | bool:
        return self._queues.pop(sequence, False)


class RedisSettle:
    async def settle(self, settlement: Settlement, transaction: Any) -> None:
        raise settle_without_transaction("Redis")


def encode_settlements(lease_queues: LeaseQueues, settlements: Sequence[Settlement]) -> list[Any]:
    """A flat list, five items each, as `_settle.lua` reads it."""
    flat: list[Any] = []
    for settlement in settlements:
        key, transition = settlement.key, settlement.transition
        if transition.to is State.COMPLETED and transition.result is not None and transition.error is None:
            result = transition.result
            queue = lease_queues.pop(key.sequence)
            flat += (queue, f"{key.sequence:015d}", key.job_id, key.token, result == b"null" or as_string(result))
        else:
            lookup = lease_queues.get if transition.to is State.RUNNING else lease_queues.pop
            flat += (lookup(key.sequence), f"{key.sequence:015d}", key.job_id, key.token, encode_transition(transition))
    return flat


def encode_transition(transition: Transition) -> dict[str, Any]:
    """Only the fields that apply."""
    found: dict[str, Any] = {"to": CODES[transition.to]}
    if not transition.counted:
        found["uncounted"] = True
    if transition.died:
        found["died"] = True
    if transition.delay_seconds > 0:
        found["delay"] = milliseconds(transition.delay_seconds)
    if transition.signal is not None:
        found["signal"] = transition.signal
    if transition.park_seconds is not None:
        found["park"] = milliseconds(transition.park_seconds)
    if transition.wake:
        found["wake"] = [(wake.scope, wake.count) for wake in transition.wake]
    if transition.external_id is not None:
        found["external"] = transition.external_id
    if transition.result is not None:
        found["result"] = as_string(transition.result)
    if transition.reason is not None:
        found["reason"] = transition.reason
    if transition.error is not None:
        found["error"] = as_string(msgspec.json.encode(transition.error))
    return found
