"""Leases of running jobs: renewal, reports, reclaiming of expired ones, adoption and signals."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from jobyard.domain.history import MAX_SIGNALS
from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob
from jobyard.domain.lease import UNACKNOWLEDGED_SECONDS, ExpiredLease, Lease, LeaseKey, adopted
from jobyard.domain.state import CancelRequest, judge_expired
from jobyard.errors import BadInput, JobNotFound, duplicate_job_id
from jobyard.ports.job_store import Extended, Report
from jobyard.stores._shared.errors import cannot_signal, too_many_signals
from jobyard.stores._shared.limits import MAX_LOG_LINES
from jobyard.stores.redis.client import RedisClient
from jobyard.stores.redis.codec import (
    STATES,
    as_string,
    decode_queue,
    encode_queue,
    job_options,
    milliseconds,
    pack_job,
    unpack_changes,
    unpack_job,
)
from jobyard.stores.redis.exchange import decode_cancels, new_token
from jobyard.stores.redis.job_view import cancel_reason, unpack_lease_record
from jobyard.stores.redis.settle import LeaseQueues, encode_transition

TOO_MANY = -2  # the answer of `signal.lua`


class RedisLeases:
    def __init__(self, client: RedisClient, lease_queues: LeaseQueues) -> None:
        self._client = client
        self._lease_queues = lease_queues

    async def extend(
        self, worker: str, keys: Sequence[LeaseKey], lease_seconds: float, *, unacknowledged: bool = False
    ) -> Extended:
        request = {
            "worker": worker,
            "lease": milliseconds(lease_seconds),
            "keys": [part for key in keys for part in self._lease_queues.encode_key(key)],
            "unacknowledged": milliseconds(UNACKNOWLEDGED_SECONDS) if unacknowledged else False,
        }
        lost, cancels = await self._client.call("extend", request)
        return Extended(lost=tuple(keys[position - 1] for position in lost), cancelled=decode_cancels(cancels))

    async def report(self, reports: Sequence[Report]) -> tuple[LeaseKey, ...]:
        rows: list[tuple[Any, ...]] = []
        for one in reports:
            progress = False if one.progress is None else as_string(msgspec.json.encode(one.progress))
            lines = [as_string(msgspec.json.encode(line)) for line in one.lines]
            row = (*self._lease_queues.encode_key(one.key), progress, lines)
            if one.step is None:
                rows.append((*row, False))
            else:
                step = as_string(msgspec.json.encode(one.step))
                rows.append((*row, one.step.name, step, one.step.status == "running"))
        refused = await self._client.call("report", {"reports": rows, "kept": MAX_LOG_LINES})
        return tuple(reports[position - 1].key for position in refused)

    async def reclaim(
        self, limit: int = 1000, *, as_of: Instant | None = None, longest_seconds: float | None = None
    ) -> list[ExpiredLease]:
        # Two commands, because `judge_expired` decides here; the second settles only leases that are still expired.
        longest = None if longest_seconds is None else milliseconds(longest_seconds)
        judged: dict[str, Any] = {} if as_of is None else {"as_of": as_of}
        rows = await self._client.call("expired_leases", judged | {"limit": limit, "longest": longest})
        if not rows:
            return []
        flat: list[Any] = []
        ended: list[ExpiredLease] = []
        for name, sequence, record, lease_record, packed_changes, cancel, has_begun in rows:
            lease, body = unpack_lease_record(lease_record), unpack_job(record)[4]
            changes = unpack_changes(packed_changes)
            request = CancelRequest(cancel_reason(cancel), changes.cancel_requested, bool(has_begun))
            transition = judge_expired(
                attempt=lease.attempt,
                deaths=changes.deaths,
                worker=lease.worker,
                cancel_requested=request.ends_job,
                ends_itself=request.ends_itself,
            )
            assert transition.error is not None
            flat += (name.decode(), sequence.decode(), body.id, lease.token, encode_transition(transition))
            ended.append(
                ExpiredLease(
                    job_id=body.id,
                    queue=decode_queue(name),
                    group=lease.group,
                    token=lease.token,
                    worker=lease.worker,
                    error=transition.error,
                )
            )
        settle = {"worker": "", "token": "", "lease": 0, "wanted": 0, "queues": [], "settled": flat}
        reply = await self._client.call("exchange", settle | judged | {"expired_only": True})
        renewed, now = set(reply[0]), reply[8]
        return [
            msgspec.structs.replace(one, error=msgspec.structs.replace(one.error, at=now))
            for position, one in enumerate(ended, start=1)
            if position not in renewed
        ]

    async def adopt(self, job: NewJob, worker: str, external_id: str, token: str | None = None) -> Lease:
        try:
            record = pack_job(job)
        except UnicodeEncodeError as error:
            raise BadInput(f"Cannot store this text: {error}.") from error
        token = token or new_token()
        request = {
            "name": encode_queue(job.queue),
            "id": job.id,
            "group": job.group or "",
            "worker": worker,
            "external": external_id,
            "token": token,
            "flags": record[0],
            "options": job_options(job),
        }
        sequence = await self._client.call("adopt", request, record)
        if sequence < 0:
            raise duplicate_job_id(job.id)
        return adopted(job, sequence, token)

    async def signal(self, job_id: str, name: str, data: bytes = b"null", *, signal_id: str | None = None) -> bool:
        key = signal_id or secrets.token_hex(8)
        request = {"id": job_id, "name": name, "key": key, "data": as_string(data), "max": MAX_SIGNALS}
        answer = await self._client.call("signal", request)
        if answer == TOO_MANY:
            raise too_many_signals(job_id, name)
        if answer < 0:
            raise JobNotFound.of(job_id)
        if answer >= 10:
            raise cannot_signal(job_id, STATES[answer - 10])
        return bool(answer)
