"""Output while a program still runs, passed on through the store to whoever follows it, and only then."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

import msgspec

from jobyard.ports.record_store import RecordStore

log = logging.getLogger("jobyard.sandbox")

# Whoever follows a job keeps a record here alive, by the job's id.
FOLLOWERS: Final = "jobyard.followers"
FOLLOWER_SECONDS: Final = 10.0
# What a program wrote meanwhile, once for all who follow it, by `told_key`.
OUTPUT: Final = "jobyard.output"
# A run that is over sooner is not worth following: its result is there.
LOOK_EVERY_SECONDS: Final = 0.1
AT_ONCE_BYTES: Final = 64 << 10
# So many jobs are asked for one by one; more of them by reading who follows anything.
FEW: Final = 16
PAGE: Final = 1000


class OutputChunk(msgspec.Struct, frozen=True, array_like=True):
    index: int  # of the input, in a batch
    fd: int
    data: bytes


class OutputRecord(msgspec.Struct, frozen=True, array_like=True):
    run: int  # another one begins anew
    chunks: tuple[OutputChunk, ...]


def output_key(job_id: str, run: int, number: int) -> str:
    """Later runs of the same job after earlier ones.

    >>> told_key("j", 1_700_000_000_000, 2)
    'j.001700000000000.00000002'
    """
    return f"{job_id}.{run:015d}.{number:08d}"


def pack(told: OutputRecord) -> bytes:
    return msgspec.msgpack.encode(told)


unpack = msgspec.msgpack.Decoder(OutputRecord).decode


class OutputBuffer:
    """The output of one run so far, in the order in which it came; the run's limits bound it."""

    __slots__ = ("_offset", "_part", "_parts", "index", "job_id", "keep_seconds", "run")

    def __init__(self, job_id: str, run: int, index: int, keep_seconds: float) -> None:
        self.job_id = job_id
        self.run = run
        self.index = index
        self.keep_seconds = keep_seconds  # whoever follows it late reads it from its beginning
        self._parts: list[tuple[int, bytearray]] = []
        self._part = self._offset = 0  # what was told: so many parts, and so much of the next

    def feed(self, fd: int, data: bytes) -> None:
        if self._parts and self._parts[-1][0] == fd:
            self._parts[-1][1].extend(data)
        else:
            self._parts.append((fd, bytearray(data)))

    @property
    def has_news(self) -> bool:
        last = len(self._parts) - 1
        return self._part < last or (self._part == last and self._offset < len(self._parts[last][1]))

    def next(self) -> tuple[OutputChunk, ...]:
        """What was not told yet, up to a bound."""
        chunks: list[OutputChunk] = []
        room = AT_ONCE_BYTES
        while self.has_news and room > 0:
            fd, data = self._parts[self._part]
            piece = bytes(data[self._offset : self._offset + room])
            if piece:
                chunks.append(OutputChunk(self.index, fd, piece))
            self._offset += len(piece)
            room -= len(piece)
            if self._offset == len(data) and self._part < len(self._parts) - 1:
                self._part, self._offset = self._part + 1, 0
        return tuple(chunks)


class LiveOutput:
    """For all runs of a worker: while some last and write, the store is asked who follows them."""

    def __init__(self, records: RecordStore, clock: Callable[[], float] = time.time) -> None:
        self._records = records
        self._clock = clock
        self._taps: set[OutputBuffer] = set()
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> int:
        """The number of a run, higher than those of earlier ones."""
        return round(self._clock() * 1000)

    def open(self, job_id: str, run: int, index: int, keep_seconds: float) -> OutputBuffer:
        tap = OutputBuffer(job_id, run, index, keep_seconds)
        self._taps.add(tap)
        if self._timer is None and self._task is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_SECONDS, self._wake)
        return tap

    def close(self, tap: OutputBuffer) -> None:
        """What was not passed on stands in the result."""
        self._taps.discard(tap)

    def _wake(self) -> None:
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
        writing = {tap.job_id for tap in self._taps if tap.has_news}
        followed = await self._followed(writing)
        for tap in [tap for tap in self._taps if tap.job_id in followed]:
            chunks = tap.next()
            if chunks:
                self._count += 1
                key, data = output_key(tap.job_id, tap.run, self._count), pack(OutputRecord(tap.run, chunks))
                await self._records.put(OUTPUT, key, data, expire_seconds=tap.keep_seconds)

    async def _followed(self, ids: set[str]) -> set[str]:
        if len(ids) <= FEW:
            return {job_id for job_id in ids if await self._records.fetch(FOLLOWERS, job_id) is not None}
        found: set[str] = set()
        after: str | None = None
        while True:
            records = await self._records.fetch_all(FOLLOWERS, PAGE, after)
            found |= {record.key for record in records} & ids
            if len(records) < PAGE:
                return found
            after = records[-1].key

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
