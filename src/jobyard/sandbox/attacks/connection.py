"""Minimal client of a daemon for attacks, tests and benchmarks. It neither reconnects nor limits concurrency."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from jobyard.sandbox import protocol as p

Response = TypeVar("Response")
_decode: Callable[[bytes], p.DaemonMessage] = p.frame_decoder(p.DaemonMessage)
_CREDENTIALS = struct.Struct("iII")
READ_BYTES = 1 << 18
POLL_SECONDS = 0.05
# Beyond the limits of a run, for compiling and a busy machine.
RUN_SLACK_SECONDS = 30


class DaemonUnresponsive(Exception):
    """The daemon did not respond, or closed the connection."""


class DaemonConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._on_output: dict[int, Callable[[p.Output], None]] = {}
        self._first_state: asyncio.Future[p.SandboxState] = asyncio.get_running_loop().create_future()
        self._receiver = asyncio.create_task(self._receive())
        self.daemon_pid = _peer_pid(writer.get_extra_info("socket"))

    async def ready(self, seconds: float = 60) -> p.SandboxState:
        """The state that the daemon sends to a new connection."""
        return await _within(seconds, asyncio.shield(self._first_state), "the daemon sent no state")

    async def fetch_state(self, seconds: float = 10) -> p.SandboxState:
        request_id = next(self._ids)
        response: asyncio.Future[p.SandboxState] = self._expect(request_id)
        self.send(p.StateRequest(id=request_id))
        return await _within(seconds, response, "no response")

    async def checked_state(self) -> p.SandboxState:
        """The state once every language has been tested: until then the daemon itself runs programs and fills pools."""
        while (state := await self.fetch_state()).checking:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(POLL_SECONDS)
        return state

    async def run(
        self, request: p.RunRequest, on_output: Callable[[p.Output], None] | None = None, seconds: float | None = None
    ) -> p.RunResponse:
        """Run a program. The request's id is replaced. A daemon that exceeds the run's limits is unresponsive."""
        run_id, response = self.begin(request, on_output)
        limit = request.limits.time_seconds if 0 < request.limits.time_seconds < 3600 else 1
        try:
            return await _within(
                seconds or limit + RUN_SLACK_SECONDS, response, f"no response to a run of {request.language}"
            )
        finally:
            self._on_output.pop(run_id, None)

    def begin(
        self, request: p.RunRequest, on_output: Callable[[p.Output], None] | None = None
    ) -> tuple[int, asyncio.Future[p.RunResponse]]:
        run_id = next(self._ids)
        if on_output is not None:
            self._on_output[run_id] = on_output
        response: asyncio.Future[p.RunResponse] = self._expect(run_id)
        self.send(msgspec.structs.replace(request, id=run_id))
        return run_id, response

    def cancel(self, run_id: int) -> None:
        self.send(p.RunCancellation(id=run_id))

    def send(self, message: p.ClientMessage) -> None:
        if self._receiver.done():
            raise DaemonUnresponsive("the daemon closed the connection")
        self._writer.write(p.encode_frame(message))

    async def close(self) -> None:
        self._receiver.cancel()
        self._writer.close()
        await asyncio.gather(self._receiver, return_exceptions=True)
        with suppress(OSError):
            await self._writer.wait_closed()

    def _expect(self, message_id: int) -> asyncio.Future[Any]:
        response = self._pending[message_id] = asyncio.get_running_loop().create_future()
        return response

    async def _receive(self) -> None:
        frames, reason = p.FrameDecoder(), "the daemon closed the connection"
        try:
            while data := await self._reader.read(READ_BYTES):
                for frame in frames.feed(data):
                    self._on_message(_decode(frame))
        except OSError:
            pass
        except p.ProtocolError as error:
            reason = f"incompatible daemon: {error}"
        closed = DaemonUnresponsive(reason)
        for response in [self._first_state, *self._pending.values()]:
            if not response.done():
                response.set_exception(closed)
                response.exception()  # mark it as retrieved: there may be no waiter

    def _on_message(self, message: p.DaemonMessage) -> None:
        if isinstance(message, p.Output):
            if message.id in self._on_output:
                self._on_output[message.id](message)
            return
        if isinstance(message, p.SandboxState) and not self._first_state.done():
            self._first_state.set_result(message)
        response = self._pending.pop(message.id, None)
        if response is not None and not response.done():
            response.set_result(message)


async def _within(seconds: float, response: asyncio.Future[Response], problem: str) -> Response:
    # Not asyncio.wait_for: before Python 3.12 it swallows a cancellation that arrives together with the result.
    try:
        async with asyncio.timeout(seconds):
            return await response
    except TimeoutError as error:
        raise DaemonUnresponsive(f"{problem} within {seconds:g} s") from error


def _peer_pid(connection: socket.socket) -> int:
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
