"""Schedules: due instants, each decided once; and worker heartbeats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.schedule import Verdict
from jobyard.ports.schedule_store import ArmedSchedule, Decided, Decision, Tick, TickInfo, WorkerInfo, is_alive
from jobyard.stores.redis.client import RedisClient
from jobyard.stores.redis.codec import as_string, milliseconds
from jobyard.stores.redis.insert import JOBS_PER_SECOND, EncodedJobs, rejection

TWO = Struct(">dd")
TICK = Struct(">ddB")  # instant, decided at, verdict
# The order is that of the codes in decide.lua.
DECISIONS = (Decision.MADE, Decision.KNOWN, Decision.STALE, Decision.HELD, Decision.FULL)
VERDICTS = (Verdict.FIRED, Verdict.LATE, Verdict.MISSED, Verdict.SKIPPED)
SEVERAL = 16  # added to the verdict of a tick that stands for several instants


class RedisSchedules:
    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def now(self) -> Instant:
        if self._client.clock is not None:
            return self._client.clock.now()
        seconds, microseconds = await self._client.execute("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def arm(self, schedule: str, revision: int, since: Instant | None = None) -> bool:
        return bool(await self._client.call("arm", {"schedule": schedule, "revision": revision, "since": since}))

    async def disarm(self, schedule: str, revision: int | None = None) -> bool:
        return bool(await self._client.call("disarm", {"schedule": schedule, "revision": revision}))

    async def armed(self, limit: int = 1000, after: str | None = None) -> list[ArmedSchedule]:
        flat = await self._client.call("armed", {"limit": limit, "after": after})
        rows = ((name, TWO.unpack_from(row)) for name, row in zip(flat[::2], flat[1::2], strict=True))
        return [ArmedSchedule(name.decode(), int(revision), int(until)) for name, (revision, until) in rows]

    async def decide(self, ticks: Sequence[Tick]) -> list[Decided]:
        if not ticks:
            return []
        jobs = EncodedJobs([tick.job for tick in ticks if tick.job is not None])
        queues: dict[str, int] = {}
        schedules: dict[str, int] = {}
        request = jobs.request(queues) | {"ticks": _encode_ticks(ticks, schedules)}
        request |= {"names": list(queues), "schedules": list(schedules)}
        outcomes = await self._client.call("decide", request, *jobs.records, extra_seconds=len(ticks) / JOBS_PER_SECOND)
        if isinstance(outcomes[0], list):
            raise rejection(outcomes[0])
        return [_decode_decision(tick, outcome) for tick, outcome in zip(ticks, outcomes, strict=True)]

    async def ticks(self, schedule: str, limit: int = 50, before: Instant | None = None) -> list[TickInfo]:
        key, start = f"{self._client.prefix}:ticks:{schedule}", "+inf" if before is None else f"({before}"
        rows = await self._client.execute("ZRANGE", key, start, "-inf", "BYSCORE", "REV", "LIMIT", 0, limit)
        return [_decode_tick(schedule, row) for row in rows]

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        data = as_string(msgspec.json.encode(worker))
        await self._client.call("heartbeat", {"id": worker.id, "data": data, "ttl": milliseconds(seconds)})

    async def workers(self) -> list[WorkerInfo]:
        now, beats = await self._client.call("workers", {})
        return live_workers(beats, now)


def live_workers(beats: Iterable[bytes], now: Instant) -> list[WorkerInfo]:
    found: list[WorkerInfo] = []
    for beat in beats:
        until, seen_at = TWO.unpack_from(beat)
        if is_alive(seen_at, until, now):
            worker = msgspec.json.decode(beat[TWO.size :], type=WorkerInfo)
            found.append(msgspec.structs.replace(worker, seen_at=int(seen_at)))
    return sorted(found, key=lambda worker: worker.id)


def _encode_ticks(ticks: Sequence[Tick], schedules: dict[str, int]) -> list[int]:
    """Numbers the schedules in `schedules`; jobs are numbered in the order of their ticks."""
    flat: list[int] = []
    jobs = 0
    for tick in ticks:
        number = schedules.setdefault(tick.schedule, len(schedules) + 1)
        jobs += tick.job is not None
        job = 0 if tick.job is None else jobs
        verdict, skips = VERDICTS.index(tick.verdict), int(tick.skip_if_held)
        flat += (number, tick.revision, tick.at, verdict, skips, tick.since, tick.count, job)
    return flat


def _decode_decision(tick: Tick, outcome: int | bytes) -> Decided:
    if isinstance(outcome, bytes):
        return Decided(Decision.MADE, Verdict.SKIPPED, outcome.decode())
    decision = DECISIONS[outcome]
    if decision is not Decision.MADE:
        return Decided(decision)
    return Decided(decision, tick.verdict, None if tick.job is None else tick.job.id)


def _decode_tick(schedule: str, row: bytes) -> TickInfo:
    at, decided_at, code = TICK.unpack_from(row)
    first, count, end = at, 1.0, TICK.size
    if code >= SEVERAL:
        first, count = TWO.unpack_from(row, end)
        end += TWO.size
    return TickInfo(
        schedule=schedule,
        at=int(at),
        verdict=VERDICTS[code % SEVERAL],
        job_id=row[end:].decode() or None,
        first=int(first),
        count=int(count),
        decided_at=int(decided_at),
    )
