"""Live output: published through the store while a program runs and has followers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

import msgspec

from jobyard.ports.record_store import RecordStore

log = logging.getLogger("jobyard.sandbox")

# Each follower of a job keeps a record alive in this collection, under the job's id.
FOLLOWERS: Final = "jobyard.followers"
FOLLOWER_SECONDS: Final = 10.0
# Published output, shared by all followers of a job, under `output_key`.
OUTPUT: Final = "jobyard.output"
# Shorter runs are never published: their result is there before a follower could read a chunk.
PUBLISH_INTERVAL_SECONDS: Final = 0.1
MAX_RECORD_BYTES: Final = 64 << 10
# Up to this many jobs, each is looked up by its id; beyond, listing all followers takes fewer round trips.
MAX_SINGLE_LOOKUPS: Final = 16
PAGE_SIZE: Final = 1000


class OutputChunk(msgspec.Struct, frozen=True, array_like=True):
    index: int  # of the input, in a batch
    fd: int
    data: bytes


class OutputRecord(msgspec.Struct, frozen=True, array_like=True):
    run: int  # a follower starts over when it changes
    chunks: tuple[OutputChunk, ...]


def output_key(job_id: str, run: int, number: int) -> str:
    """A key that sorts by run, then by number.

    >>> output_key("j", 1_700_000_000_000, 2)
    'j.001700000000000.00000002'
    """
    return f"{job_id}.{run:015d}.{number:08d}"


def pack(record: OutputRecord) -> bytes:
    return msgspec.msgpack.encode(record)


unpack = msgspec.msgpack.Decoder(OutputRecord).decode


class OutputBuffer:
    """Output of one run in order of arrival. The run's output limit bounds it."""

    __slots__ = ("_offset", "_part", "_parts", "index", "job_id", "keep_seconds", "run")

    def __init__(self, job_id: str, run: int, index: int, keep_seconds: float) -> None:
        self.job_id = job_id
        self.run = run
        self.index = index
        self.keep_seconds = keep_seconds  # a late follower reads from the beginning
        self._parts: list[tuple[int, bytearray]] = []
        self._part = self._offset = 0  # published: the parts before this one, and this many bytes of it

    def feed(self, fd: int, data: bytes) -> None:
        if self._parts and self._parts[-1][0] == fd:
            self._parts[-1][1].extend(data)
        else:
            self._parts.append((fd, bytearray(data)))

    @property
    def has_unpublished(self) -> bool:
        last = len(self._parts) - 1
        return self._part < last or (self._part == last and self._offset < len(self._parts[last][1]))

    def next(self) -> tuple[OutputChunk, ...]:
        """Unpublished output, at most MAX_RECORD_BYTES."""
        chunks: list[OutputChunk] = []
        room = MAX_RECORD_BYTES
        while self.has_unpublished and room > 0:
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
    """Publisher for all runs of a worker. It queries the store for followers only while runs produce output."""

    def __init__(self, records: RecordStore, clock: Callable[[], float] = time.time) -> None:
        self._records = records
        self._clock = clock
        self._buffers: set[OutputBuffer] = set()
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> int:
        """Return a run number, higher than those of earlier runs."""
        return round(self._clock() * 1000)

    def open(self, job_id: str, run: int, index: int, keep_seconds: float) -> OutputBuffer:
        buffer = OutputBuffer(job_id, run, index, keep_seconds)
        self._buffers.add(buffer)
        if self._timer is None and self._task is None:
            self._timer = asyncio.get_running_loop().call_later(PUBLISH_INTERVAL_SECONDS, self._wake)
        return buffer

    def close(self, buffer: OutputBuffer) -> None:
        """Stop publishing; the result holds the rest."""
        self._buffers.discard(buffer)

    def _wake(self) -> None:
        self._timer = None
        if self._buffers:
            self._task = asyncio.get_running_loop().create_task(self._publish(), name="jobyard-live")

    async def _publish(self) -> None:
        try:
            while self._buffers:
                try:
                    await self.run_once()
                except Exception:
                    # A follower must not be able to disturb the run.
                    log.debug("cannot publish live output", exc_info=True)
                await asyncio.sleep(PUBLISH_INTERVAL_SECONDS)
        finally:
            self._task = None

    async def run_once(self) -> None:
        writing = {buffer.job_id for buffer in self._buffers if buffer.has_unpublished}
        followed = await self._followed(writing)
        for buffer in [buffer for buffer in self._buffers if buffer.job_id in followed]:
            chunks = buffer.next()
            if chunks:
                self._count += 1
                key, data = output_key(buffer.job_id, buffer.run, self._count), pack(OutputRecord(buffer.run, chunks))
                await self._records.put(OUTPUT, key, data, expire_seconds=buffer.keep_seconds)

    async def _followed(self, ids: set[str]) -> set[str]:
        if len(ids) <= MAX_SINGLE_LOOKUPS:
            return {job_id for job_id in ids if await self._records.fetch(FOLLOWERS, job_id) is not None}
        found: set[str] = set()
        after: str | None = None
        while True:
            records = await self._records.fetch_all(FOLLOWERS, PAGE_SIZE, after)
            found |= {record.key for record in records} & ids
            if len(records) < PAGE_SIZE:
                return found
            after = records[-1].key

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
