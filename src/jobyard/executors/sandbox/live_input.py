"""Live input: standard input and signals for interactive programs, from clients to workers through the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from jobyard.executors.sandbox.client import OnStarted, RunHandle
from jobyard.ports.record_store import RecordStore

log = logging.getLogger("jobyard.sandbox")

# Pieces of input, in order, under `input_key`.
INPUT: Final = "jobyard.input"
# Longer than any program waits for a worker under normal conditions.
KEEP_SECONDS: Final = 86_400.0
MAX_PIECES: Final = 10_000
# How often a worker looks for new pieces while an interactive program runs.
POLL_SECONDS: Final = 0.03
PAGE: Final = 50


class InputPiece(msgspec.Struct, frozen=True, array_like=True):
    data: bytes
    total: int  # bytes up to and including this piece
    end: bool = False
    signal: int = 0


def input_key(job_id: str, number: int) -> str:
    """
    >>> input_key("j", 2)
    'j.00000002'
    """
    return f"{job_id}.{number:08d}"


pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder(InputPiece).decode


class InputClosed(Exception):
    """The client has ended the input before."""


class TooMuchInput(Exception):
    """The input is longer than a program may receive."""


async def append(
    records: RecordStore, job_id: str, data: bytes, *, end: bool = False, signal: int = 0, max_bytes: int
) -> int:
    """Add a piece after all others and return its number. Raises InputClosed and TooMuchInput."""
    number, last = await _last(records, job_id)
    while True:
        if last.end and not signal:
            raise InputClosed
        if last.total + len(data) > max_bytes or number >= MAX_PIECES:
            raise TooMuchInput
        piece = InputPiece(data, last.total + len(data), end or last.end, signal)
        number += 1
        key = input_key(job_id, number)
        if await records.put(INPUT, key, pack(piece), expect=0, expire_seconds=KEEP_SECONDS) is not None:
            # Only a hint where to continue: the pieces themselves say which is the last one.
            await records.put(INPUT, job_id, str(number).encode(), expire_seconds=KEEP_SECONDS)
            return number
        number, last = await _walk(records, job_id, number, last)


async def _last(records: RecordStore, job_id: str) -> tuple[int, InputPiece]:
    hint = await records.fetch(INPUT, job_id)
    number = int(hint.data) if hint is not None else 0
    known = await records.fetch(INPUT, input_key(job_id, number)) if number else None
    if known is None:
        number = 0
    return await _walk(records, job_id, number, InputPiece(b"", 0) if known is None else unpack(known.data))


async def _walk(records: RecordStore, job_id: str, number: int, last: InputPiece) -> tuple[int, InputPiece]:
    while (record := await records.fetch(INPUT, input_key(job_id, number + 1))) is not None:
        number, last = number + 1, unpack(record.data)
    return number, last


class LiveInput:
    """Reader for the interactive programs of a worker."""

    def __init__(self, records: RecordStore) -> None:
        self._records = records

    @contextlib.asynccontextmanager
    async def follow(self, job_id: str) -> AsyncIterator[OnStarted]:
        """Pass the pieces of a job to its run, from the first one, until the run ends."""
        tasks: list[asyncio.Task[None]] = []

        def begin(handle: RunHandle) -> None:
            tasks.append(asyncio.get_running_loop().create_task(self._pass(job_id, handle), name="jobyard-input"))

        try:
            yield begin
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def _pass(self, job_id: str, handle: RunHandle) -> None:
        prefix = after = f"{job_id}."
        while True:
            try:
                for record in await self._records.fetch_all(INPUT, PAGE, after):
                    if not record.key.startswith(prefix):
                        break
                    after, piece = record.key, unpack(record.data)
                    if piece.signal:
                        handle.send_signal(piece.signal)
                    else:
                        handle.feed(piece.data, end=piece.end)
            except Exception:
                # A store that is away for a moment must not end the run.
                log.debug("cannot read live input", exc_info=True)
            await asyncio.sleep(POLL_SECONDS)

    async def erase(self, job_id: str) -> None:
        """Remove the pieces of a job that has ended: input is as private as the program."""
        await erase(self._records, job_id)


async def erase(records: RecordStore, job_id: str) -> None:
    prefix = after = f"{job_id}."
    await records.remove(INPUT, job_id)
    while found := [each for each in await records.fetch_all(INPUT, PAGE, after) if each.key.startswith(prefix)]:
        for record in found:
            await records.remove(INPUT, record.key)
        after = found[-1].key
