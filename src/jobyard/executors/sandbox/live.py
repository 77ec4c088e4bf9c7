"""Output while a program still runs, passed on through the store to whoever follows it, and only then."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from jobyard.ports.records import Records

log = logging.getLogger("jobyard.sandbox")

# Whoever follows a job keeps a record here alive, by `follower_key`.
FOLLOWERS: Final = "jobyard.followers"
FOLLOWER_SECONDS: Final = 10.0
# What a program wrote meanwhile, once for each who follows it, by `told_key`.
OUTPUT: Final = "jobyard.output"
OUTPUT_SECONDS: Final = 30.0
# A run that is over sooner is not worth following: its result is there.
LOOK_EVERY_SECONDS: Final = 0.1
MOST_FOLLOWERS: Final = 1000
AT_ONCE_BYTES: Final = 64 << 10


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    index: int  # of the input, in a batch
    fd: int
    data: bytes


class Told(msgspec.Struct, frozen=True, array_like=True):
    """Each follower is told all of an attempt, from its beginning."""

    attempt: int
    chunks: tuple[Chunk, ...]


def follower_key(job_id: str, follower: str) -> str:
    return f"{job_id}.{follower}"


def told_key(follower: str, attempt: int, number: int) -> str:
    """
    >>> told_key(follower_key("j", "f"), 1, 2)
    'j.f.00001.00000002'
    """
    return f"{follower}.{attempt:05d}.{number:08d}"


def pack(told: Told) -> bytes:
    return msgspec.msgpack.encode(told)


unpack = msgspec.msgpack.Decoder(Told).decode


class Tap:
    """The output of one run so far, in the order in which it came; the run's limits bound it."""

    __slots__ = ("_parts", "_places", "attempt", "index", "job_id")

    def __init__(self, job_id: str, attempt: int, index: int) -> None:
        self.job_id = job_id
        self.attempt = attempt
        self.index = index
        self._parts: list[tuple[int, bytearray]] = []
        self._places: dict[str, tuple[int, int]] = {}  # how far each follower is: a part, and how much of it

    def feed(self, fd: int, data: bytes) -> None:
        if self._parts and self._parts[-1][0] == fd:
            self._parts[-1][1].extend(data)
        else:
            self._parts.append((fd, bytearray(data)))

    def next(self, follower: str) -> tuple[Chunk, ...]:
        """What this one was not told yet, up to a bound."""
        part, offset = self._places.get(follower, (0, 0))
        chunks: list[Chunk] = []
        room = AT_ONCE_BYTES
        while part < len(self._parts) and room > 0:
            fd, data = self._parts[part]
            if offset < len(data):
                chunks.append(Chunk(self.index, fd, bytes(data[offset : offset + room])))
                offset += len(chunks[-1].data)
                room -= len(chunks[-1].data)
            if offset < len(data) or part == len(self._parts) - 1:
                break
            part, offset = part + 1, 0
        self._places[follower] = (part, offset)
        return tuple(chunks)


class Live:
    """For all runs of a worker: while some last, one look at the store asks who follows them."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._taps: set[Tap] = set()
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def open(self, job_id: str, attempt: int, index: int) -> Tap:
        tap = Tap(job_id, attempt, index)
        self._taps.add(tap)
        if self._timer is None and self._task is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_SECONDS, self._begin)
        return tap

    def close(self, tap: Tap) -> None:
        """What was not passed on stands in the result."""
        self._taps.discard(tap)

    def _begin(self) -> None:
        self._timer = None
        if self._taps:
            self._task = asyncio.get_running_loop().create_task(self._pass_on(), name="jobyard-live")

    async def _pass_on(self) -> None:
        try:
            while self._taps:
                try:
                    await self.run_once()
                except Exception:
                    # Whoever looks on must not be able to stop the work.
                    log.debug("live output was not passed on", exc_info=True)
                await asyncio.sleep(LOOK_EVERY_SECONDS)
        finally:
            self._task = None

    async def run_once(self) -> None:
        followers: dict[str, list[str]] = {}
        for record in await self._records.fetch_all(FOLLOWERS, MOST_FOLLOWERS):
            followers.setdefault(record.key.partition(".")[0], []).append(record.key)
        for tap in list(self._taps):
            for follower in followers.get(tap.job_id, ()):
                chunks = tap.next(follower)
                if chunks:
                    self._count += 1
                    key, data = told_key(follower, tap.attempt, self._count), pack(Told(tap.attempt, chunks))
                    await self._records.put(OUTPUT, key, data, expire_seconds=OUTPUT_SECONDS)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
