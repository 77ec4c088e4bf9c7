"""Exchange, and what else goes by leases: renewing, reporting, clearing away what has run out."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any

import msgspec

from jobyard.domain.job import State
from jobyard.domain.lease import UNACKNOWLEDGED_SECONDS, ExpiredLease, Lease, LeaseKey
from jobyard.domain.state import Settlement, Transition, judge_expired
from jobyard.errors import StoreUnavailable
from jobyard.ports.job_store import Exchange, Extended, Report
from jobyard.stores.redis.link import AnswerLost
from jobyard.stores.redis.packing import (
    CODES,
    NEW,
    Past,
    lease,
    milliseconds,
    queue_from,
    queue_name,
    text,
    unpack,
    unpack_past,
)
from jobyard.stores.redis.scripts import command
from jobyard.stores.redis.server import Server
from jobyard.stores.redis.viewing import held, wish

EXCHANGE, EXTEND, REPORT, EXPIRED = command("exchange"), command("extend"), command("report"), command("expired")
KEPT_LINES = 1000
KNOWN_AT_MOST = 100_000
ASK_AGAIN_SECONDS = 4.0
FIRST_PAUSE_SECONDS = 0.02


def new_token() -> str:
    """One per exchange: no job is claimed twice in one, so it is one per attempt."""
    return secrets.token_hex(8)


class Homes:
    """Which queue the leases given here belong to; for others the server asks its queues."""

    def __init__(self) -> None:
        self._queues: dict[int, str] = {}
        self._slots: dict[str, set[int]] = {}

    def note(self, sequences: Sequence[int], names: Sequence[bytes]) -> None:
        for sequence, name in zip(sequences, names, strict=True):
            self._queues[sequence] = name.decode()
        # Leases that nobody settled here must not pile up.
        while len(self._queues) > KNOWN_AT_MOST:
            self._queues.pop(next(iter(self._queues)), None)

    def of(self, sequence: int) -> str | bool:
        return self._queues.get(sequence, False)

    def leave(self, sequence: int) -> str | bool:
        return self._queues.pop(sequence, False)

    def take_slot(self, worker: str) -> int:
        """A worker's exchanges on their way are told apart by small numbers."""
        taken = self._slots.setdefault(worker, set())
        slot = next(number for number in itertools.count() if number not in taken)
        taken.add(slot)
        return slot

    def free_slot(self, worker: str, slot: int) -> None:
        taken = self._slots.get(worker, set())
        taken.discard(slot)
        if not taken:
            self._slots.pop(worker, None)


async def exchange(
    server: Server,
    homes: Homes,
    worker: str,
    settlements: Sequence[Settlement],
    queues: Sequence[str],
    wanted: int,
    lease_seconds: float,
) -> Exchange:
    token, slot = new_token(), homes.take_slot(worker)
    question: dict[str, Any] = {
        "worker": worker,
        "token": token,
        "lease": milliseconds(lease_seconds),
        "wanted": wanted,
        "queues": [queue_name(queue) for queue in dict.fromkeys(queues)],
        "settled": settled(homes, settlements),
        "slot": slot,
    }
    try:
        reply = await _until_answered(server, question)
    finally:
        homes.free_slot(worker, slot)
    return read(homes, token, settlements, reply)


def read(homes: Homes, token: str, settlements: Sequence[Settlement], reply: list[Any]) -> Exchange:
    """The answer of an exchange, as `exchange.lua` gives it."""
    refused, names, sequences, records, more, stops, due, revision, now = reply
    return Exchange(
        refused=tuple([settlements[place - 1].key for place in refused]),
        leases=given(homes, token, names, sequences, records, more),
        cancelled=asked_to_stop(stops),
        next_due_at=None if due < 0 else due,
        revision=revision,
        now=now,
    )


async def _until_answered(server: Server, question: dict[str, Any]) -> Any:
    """Jobs given in an answer that is lost would only come back when their leases run out, as if a worker had died.

    So the same exchange is asked again for a moment, as long as a server needs that was restarted: it knows the token.
    """
    try:
        return await server.run(EXCHANGE, question)
    except AnswerLost as error:
        lost = error
    deadline, pause = time.monotonic() + ASK_AGAIN_SECONDS, FIRST_PAUSE_SECONDS
    while time.monotonic() < deadline:
        await asyncio.sleep(pause)
        pause *= 2
        with suppress(StoreUnavailable):
            return await server.run(EXCHANGE, question)
    raise lost


def given(
    homes: Homes, token: str, names: list[bytes], sequences: list[bytes], records: list[bytes], more: list[Any]
) -> tuple[Lease, ...]:
    if not sequences:
        return ()
    numbers = list(map(int, sequences))
    if len(names) == 1:
        names = names * len(numbers)
    homes.note(numbers, names)
    # What only some have is put in its place; most have none of it.
    pasts: list[Past] = [NEW] * len(numbers)
    privates: list[bytes | None] = [None] * len(numbers)
    for place, past, private in more:
        pasts[place] = unpack_past(past)
        privates[place] = private or None
    queues = map(queue_from, names)
    return tuple(map(lease, repeat(token), queues, numbers, records, pasts, privates))


def settled(homes: Homes, settlements: Sequence[Settlement]) -> list[Any]:
    """Flat, as `_settle.lua` reads it."""
    flat: list[Any] = []
    for settlement in settlements:
        key, transition = settlement.key, settlement.transition
        if transition.to is State.COMPLETED and transition.result is not None and transition.error is None:
            result = transition.result
            home = homes.leave(key.sequence)
            flat += (home, f"{key.sequence:015d}", key.job_id, key.token, result == b"null" or text(result))
        else:
            home = homes.of(key.sequence) if transition.to is State.RUNNING else homes.leave(key.sequence)
            flat += (home, f"{key.sequence:015d}", key.job_id, key.token, spelled(transition))
    return flat


def spelled(transition: Transition) -> dict[str, Any]:
    """A transition as the server reads it: what is not said does not apply."""
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
    if transition.external_id is not None:
        found["external"] = transition.external_id
    if transition.result is not None:
        found["result"] = text(transition.result)
    if transition.reason is not None:
        found["reason"] = transition.reason
    if transition.error is not None:
        found["error"] = text(msgspec.json.encode(transition.error))
    return found


def asked_to_stop(stops: list[list[bytes]]) -> tuple[tuple[LeaseKey, str], ...]:
    return tuple(
        (LeaseKey(job_id.decode(), int(sequence), token.decode()), reason.decode())
        for job_id, sequence, token, reason in stops
    )


def keyed(homes: Homes, key: LeaseKey) -> tuple[str | bool, str, str, str]:
    return (homes.of(key.sequence), f"{key.sequence:015d}", key.job_id, key.token)


async def extend(
    server: Server, homes: Homes, worker: str, keys: Sequence[LeaseKey], lease_seconds: float, *, unacknowledged: bool
) -> Extended:
    flat = [part for key in keys for part in keyed(homes, key)]
    question = {"worker": worker, "lease": milliseconds(lease_seconds), "keys": flat}
    question["unacknowledged"] = milliseconds(UNACKNOWLEDGED_SECONDS) if unacknowledged else False
    lost, stops = await server.run(EXTEND, question)
    return Extended(lost=tuple(keys[place - 1] for place in lost), cancelled=asked_to_stop(stops))


async def report(server: Server, homes: Homes, reports: Sequence[Report]) -> tuple[LeaseKey, ...]:
    rows: list[tuple[Any, ...]] = []
    for one in reports:
        progress = False if one.progress is None else text(msgspec.json.encode(one.progress))
        lines = [text(msgspec.json.encode(line)) for line in one.lines]
        row = (*keyed(homes, one.key), progress, lines)
        if one.step is None:
            rows.append((*row, False))
        else:
            step = text(msgspec.json.encode(one.step))
            rows.append((*row, one.step.name, step, one.step.status == "running"))
    refused = await server.run(REPORT, {"reports": rows, "kept": KEPT_LINES})
    return tuple(reports[place - 1].key for place in refused)


async def reclaim(server: Server, limit: int) -> list[ExpiredLease]:
    """Two trips: what has run out is judged here, and ended only if it is still so when the judgement arrives."""
    rows = await server.run(EXPIRED, {"limit": limit})
    if not rows:
        return []
    flat: list[Any] = []
    ended: list[ExpiredLease] = []
    for name, sequence, record, lease_record, past, stop in rows:
        hold, rest = held(lease_record), unpack(record)[4]
        transition = judge_expired(
            attempt=hold.attempt,
            deaths=unpack_past(past).deaths,
            worker=hold.worker,
            cancel_requested=wish(stop),
        )
        assert transition.error is not None
        flat += (name.decode(), sequence.decode(), rest.id, hold.token, spelled(transition))
        ended.append(
            ExpiredLease(
                job_id=rest.id,
                queue=queue_from(name),
                group=hold.group,
                token=hold.token,
                worker=hold.worker,
                error=transition.error,
            )
        )
    question = {"worker": "", "token": "", "lease": 0, "wanted": 0, "queues": [], "settled": flat, "expired_only": True}
    reply = await server.run(EXCHANGE, question)
    renewed, now = set(reply[0]), reply[8]
    return [
        msgspec.structs.replace(one, error=msgspec.structs.replace(one.error, at=now))
        for place, one in enumerate(ended, start=1)
        if place not in renewed
    ]
