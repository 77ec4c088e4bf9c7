"""A plain conversation with a daemon: what the attacks, the tests and the benchmarks speak to it with."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from jobyard.sandbox.protocol import (
    CancelRequest,
    ClientMessage,
    DaemonMessage,
    FrameDecoder,
    Output,
    ProtocolError,
    RunFinished,
    RunRejected,
    RunRequest,
    SandboxState,
    StateRequest,
)
from jobyard.sandbox.protocol import encode_frame as framed

_decoder = msgspec.msgpack.Decoder(DaemonMessage)
_CREDENTIALS = struct.Struct("iII")
READ_BYTES = 1 << 18


class DaemonUnresponsive(Exception):
    """The daemon did not answer, or went away."""


class DaemonConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._heard: dict[int, Callable[[Output], None]] = {}
        self._greeting: asyncio.Future[SandboxState] = asyncio.get_running_loop().create_future()
        self._listening = asyncio.create_task(self._listen())
        self.daemon_pid = _peer(writer.get_extra_info("socket"))

    async def ready(self, seconds: float = 60) -> SandboxState:
        """How it is once it knows how it is: a daemon that has just begun says so first."""
        state = await asyncio.wait_for(asyncio.shield(self._greeting), seconds)
        deadline = asyncio.get_running_loop().time() + seconds
        while state.tier is None and "start" in state.reason and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
            state = await self.fetch_state()
        return state

    async def fetch_state(self, seconds: float = 10) -> SandboxState:
        number = next(self._ids)
        answer = await self._answer(number, StateRequest(id=number), seconds)
        assert isinstance(answer, SandboxState)
        return answer

    async def run(
        self, run: RunRequest, heard: Callable[[Output], None] | None = None, seconds: float | None = None
    ) -> RunFinished | RunRejected:
        """`run`'s own id does not matter. Longer than its limits allow means that the daemon hangs."""
        number, answer = self.begin(run, heard)
        limit = run.limits.time_seconds if 0 < run.limits.time_seconds < 3600 else 1
        try:
            return await asyncio.wait_for(answer, seconds or limit + 30)
        except TimeoutError as error:
            raise DaemonUnresponsive(
                f"no answer to a run of {run.language} after {seconds or limit + 30:g} s"
            ) from error
        finally:
            self._heard.pop(number, None)

    def begin(
        self, run: RunRequest, heard: Callable[[Output], None] | None = None
    ) -> tuple[int, asyncio.Future[RunFinished | RunRejected]]:
        number = next(self._ids)
        if heard is not None:
            self._heard[number] = heard
        answer: asyncio.Future[RunFinished | RunRejected] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self.send(msgspec.structs.replace(run, id=number))
        return number, answer

    def cancel(self, number: int) -> None:
        self.send(CancelRequest(id=number))

    def send(self, message: ClientMessage) -> None:
        if self._listening.done():
            raise DaemonUnresponsive("the daemon closed the connection")
        self._writer.write(framed(message))

    async def close(self) -> None:
        self._listening.cancel()
        self._writer.close()
        await asyncio.gather(self._listening, return_exceptions=True)
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _answer(self, number: int, message: ClientMessage, seconds: float) -> Any:
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.send(message)
        try:
            return await asyncio.wait_for(answer, seconds)
        except TimeoutError as error:
            raise DaemonUnresponsive(f"no answer after {seconds:g} s") from error

    async def _listen(self) -> None:
        frames, why = FrameDecoder(), "the daemon closed the connection"
        try:
            while data := await self._reader.read(READ_BYTES):
                for each in frames.feed(data):
                    self._take(_decoder.decode(each))
        except OSError:
            pass
        except (ProtocolError, msgspec.DecodeError) as error:
            why = f"the daemon speaks otherwise: {error}"
        gone = DaemonUnresponsive(why)
        for answer in [self._greeting, *self._waiting.values()]:
            if not answer.done():
                answer.set_exception(gone)
                answer.exception()  # somebody may not be waiting any more

    def _take(self, message: DaemonMessage) -> None:
        if isinstance(message, Output):
            if message.id in self._heard:
                self._heard[message.id](message)
            return
        if isinstance(message, SandboxState) and not self._greeting.done():
            self._greeting.set_result(message)
        answer = self._waiting.pop(message.id, None)
        if answer is not None and not answer.done():
            answer.set_result(message)


def _peer(connection: socket.socket) -> int:
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[0])


@asynccontextmanager
async def connect(path: Path) -> AsyncIterator[DaemonConnection]:
    reader, writer = await asyncio.open_unix_connection(os.fspath(path))
    connection = DaemonConnection(reader, writer)
    try:
        yield connection
    finally:
        await connection.close()
