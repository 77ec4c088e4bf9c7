"""Due instants of schedules, each decided once, and worker beats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.schedule import Verdict
from jobyard.ports.schedule_store import Armed, Decided, Decision, Tick, TickInfo, WorkerInfo
from jobyard.stores.redis.insert import JOBS_PER_SECOND, Load, refusal
from jobyard.stores.redis.packing import milliseconds, text
from jobyard.stores.redis.scripts import command
from jobyard.stores.redis.server import Server

ARM, DISARM, ARMED, DECIDE = command("arm"), command("disarm"), command("armed"), command("decide")
BEAT, WORKERS = command("beat"), command("workers")
TWO = Struct(">dd")
TICK = Struct(">ddB")  # instant, decided at, verdict
# As decide.lua has them.
DECISIONS = (Decision.MADE, Decision.KNOWN, Decision.STALE, Decision.HELD, Decision.FULL)
VERDICTS = (Verdict.FIRED, Verdict.LATE, Verdict.MISSED, Verdict.SKIPPED)
SEVERAL = 16


async def arm(server: Server, schedule: str, revision: int, since: Instant | None) -> bool:
    question: dict[str, Any] = {"schedule": schedule, "revision": revision}
    if since is not None:
        question["since"] = since
    return bool(await server.run(ARM, question))


async def disarm(server: Server, schedule: str, revision: int | None) -> bool:
    question: dict[str, Any] = {"schedule": schedule}
    if revision is not None:
        question["revision"] = revision
    return bool(await server.run(DISARM, question))


async def armed(server: Server, limit: int, after: str | None) -> list[Armed]:
    question: dict[str, Any] = {"limit": limit}
    if after is not None:
        question["after"] = after
    flat = await server.run(ARMED, question)
    rows = ((name, TWO.unpack_from(row)) for name, row in zip(flat[::2], flat[1::2], strict=True))
    return [Armed(name.decode(), int(revision), int(until)) for name, (revision, until) in rows]


async def decide(server: Server, ticks: Sequence[Tick]) -> list[Decided]:
    load = Load([tick.job for tick in ticks if tick.job is not None])
    queues: dict[str, int] = {}
    schedules: dict[str, int] = {}
    question = load.question(queues) | {"ticks": flat_ticks(ticks, schedules)}
    question |= {"names": list(queues), "schedules": list(schedules)}
    outcomes = await server.run(DECIDE, question, *load.records, patience=len(ticks) / JOBS_PER_SECOND)
    if isinstance(outcomes[0], list):
        raise refusal(outcomes[0])
    return [decided(tick, outcome) for tick, outcome in zip(ticks, outcomes, strict=True)]


def flat_ticks(ticks: Sequence[Tick], schedules: dict[str, int]) -> list[int]:
    """`schedules` learns and numbers their names; jobs are numbered in the order of their ticks."""
    flat: list[int] = []
    jobs = 0
    for tick in ticks:
        number = schedules.setdefault(tick.schedule, len(schedules) + 1)
        jobs += tick.job is not None
        job = 0 if tick.job is None else jobs
        verdict, skips = VERDICTS.index(tick.verdict), int(tick.skip_if_held)
        flat += (number, tick.revision, tick.at, verdict, skips, tick.since, tick.count, job)
    return flat


def decided(tick: Tick, outcome: int | bytes) -> Decided:
    if isinstance(outcome, bytes):
        return Decided(Decision.MADE, Verdict.SKIPPED, outcome.decode())
    decision = DECISIONS[outcome]
    if decision is not Decision.MADE:
        return Decided(decision)
    return Decided(decision, tick.verdict, None if tick.job is None else tick.job.id)


async def ticks(server: Server, schedule: str, limit: int, before: Instant | None) -> list[TickInfo]:
    start = "+inf" if before is None else f"({before}"
    words = ("ZRANGE", f"{server.prefix}:ticks:{schedule}", start, "-inf", "BYSCORE", "REV", "LIMIT", 0, limit)
    return [tick_info(schedule, row) for row in await server.ask(*words)]


def tick_info(schedule: str, row: bytes) -> TickInfo:
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


async def heartbeat(server: Server, worker: WorkerInfo, seconds: float) -> None:
    question = {"id": worker.id, "data": text(msgspec.json.encode(worker)), "till": milliseconds(seconds)}
    await server.run(BEAT, question)


async def workers(server: Server) -> list[WorkerInfo]:
    now, beats = await server.run(WORKERS, {})
    return alive(beats, now)


def alive(beats: Iterable[bytes], now: Instant) -> list[WorkerInfo]:
    found: list[WorkerInfo] = []
    for beat_ in beats:
        until, seen_at = TWO.unpack_from(beat_)
        if now < until:
            worker = msgspec.json.decode(beat_[TWO.size :], type=WorkerInfo)
            found.append(msgspec.structs.replace(worker, seen_at=int(seen_at)))
    return sorted(found, key=lambda worker: worker.id)
