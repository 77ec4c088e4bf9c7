"""One exchange without waiting: settle and claim in one command, repeated when its reply is lost."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count, repeat
from typing import Any

from jobyard.domain.job import Parent
from jobyard.domain.lease import Lease, LeaseKey
from jobyard.domain.state import Settlement
from jobyard.errors import StoreUnavailable
from jobyard.ports.job_store import Exchange
from jobyard.stores.redis.client import RedisClient
from jobyard.stores.redis.codec import (
    UNCHANGED,
    JobChanges,
    decode_parent,
    decode_queue,
    encode_queue,
    milliseconds,
    unpack_changes,
    unpack_lease,
)
from jobyard.stores.redis.errors import ReplyLost, set_aside
from jobyard.stores.redis.settle import LeaseQueues, encode_settlements

log = logging.getLogger("jobyard.store")

# As long as a restarted server needs to come back. Giving up earlier loses leases whose grant was not received.
RETRY_SECONDS = 4.0
FIRST_PAUSE_SECONDS = 0.02  # doubled after each attempt, so that a server that restarts is not flooded


def new_token() -> str:
    """One per exchange: an exchange claims a job at most once, so it is also one per attempt."""
    return secrets.token_hex(8)


class ExchangeSlots:
    """Small numbers that distinguish the exchanges of one worker in flight: the server keeps one response per slot."""

    def __init__(self) -> None:
        self._taken: dict[str, set[int]] = {}

    def take(self, worker: str) -> int:
        taken = self._taken.setdefault(worker, set())
        slot = next(number for number in count() if number not in taken)
        taken.add(slot)
        return slot

    def free(self, worker: str, slot: int) -> None:
        taken = self._taken.get(worker, set())
        taken.discard(slot)
        if not taken:
            self._taken.pop(worker, None)


class RedisExchange:
    def __init__(self, client: RedisClient, lease_queues: LeaseQueues) -> None:
        self.client = client
        self.slots = ExchangeSlots()
        self._lease_queues = lease_queues

    async def run(
        self, worker: str, settlements: Sequence[Settlement], queues: Sequence[str], wanted: int, lease_seconds: float
    ) -> Exchange:
        token, slot = new_token(), self.slots.take(worker)
        request: dict[str, Any] = {
            "worker": worker,
            "token": token,
            "lease": milliseconds(lease_seconds),
            "wanted": wanted,
            "queues": [encode_queue(queue) for queue in dict.fromkeys(queues)],
            "settled": encode_settlements(self._lease_queues, settlements),
            "slot": slot,
        }
        try:
            reply = await call_until_answered(self.client, "exchange", request)
        finally:
            self.slots.free(worker, slot)
        return self.decode(token, settlements, reply)

    def decode(self, token: str, settlements: Sequence[Settlement], reply: list[Any]) -> Exchange:
        """The reply of `exchange.lua`."""
        refused, queues, sequences, records, options, cancels, due, revision, now, damaged, children = reply
        for name, reason in damaged:
            log.error("claims go on without one queue: %s", set_aside(name, reason))
        return Exchange(
            refused=tuple([settlements[position - 1].key for position in refused]),
            leases=self.decode_leases(token, queues, sequences, records, options, children),
            cancelled=decode_cancels(cancels),
            next_due_at=None if due < 0 else due,
            revision=revision,
            now=now,
        )

    def decode_leases(
        self,
        token: str,
        queues: list[bytes],
        sequences: list[bytes],
        records: list[bytes],
        options: list[Any],
        children: list[Any],
    ) -> tuple[Lease, ...]:
        if not sequences:
            return ()
        numbers = list(map(int, sequences))
        if len(queues) == 1:
            queues = queues * len(numbers)
        self._lease_queues.add(numbers, queues)
        # Few jobs have changes, a private payload or a parent, so the reply names only those, by position.
        changes: list[JobChanges] = [UNCHANGED] * len(numbers)
        privates: list[bytes | None] = [None] * len(numbers)
        for position, packed, private in options:
            changes[position] = unpack_changes(packed)
            privates[position] = private or None
        parents: list[Parent | None] = [None] * len(numbers)
        for position, parent in zip(children[::2], children[1::2], strict=True):
            parents[int(position)] = decode_parent(parent)
        names = map(decode_queue, queues)
        return tuple(map(unpack_lease, repeat(token), names, numbers, records, changes, privates, parents))


async def call_until_answered(client: RedisClient, command: str, request: dict[str, Any]) -> Any:
    """Repeat a command that may be executed twice for some seconds when its reply is lost.

    The server replays an exchange by its token. Without that, jobs granted in a lost reply would return only when their
    leases expire, as after a dead worker.
    """
    try:
        return await client.call(command, request)
    except ReplyLost as error:
        lost = error
    deadline, pause = time.monotonic() + RETRY_SECONDS, FIRST_PAUSE_SECONDS
    while time.monotonic() < deadline:
        await asyncio.sleep(pause)
        pause *= 2
        with suppress(StoreUnavailable):
            return await client.call(command, request)
    raise lost


def decode_cancels(cancels: list[list[bytes]]) -> tuple[tuple[LeaseKey, str], ...]:
    return tuple(
        (LeaseKey(job_id.decode(), int(sequence), token.decode()), reason.decode())
        for job_id, sequence, token, reason in cancels
    )
