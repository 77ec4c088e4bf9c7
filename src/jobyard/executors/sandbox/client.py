"""Client of the sandbox daemon: concurrent runs over one Unix socket, with automatic reconnect."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import msgspec

from jobyard.sandbox import protocol as p

log = logging.getLogger("jobyard.sandbox")

FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 0.02, 2.0
# A daemon restart takes a few seconds: runs wait this long for it before they fail.
CONNECT_TIMEOUT_SECONDS = 15.0
# A daemon that does not confirm a cancellation must not hold the worker's slot.
CANCEL_TIMEOUT_SECONDS = 3.0
_decode: Callable[[bytes], p.DaemonMessage] = p.frame_decoder(p.DaemonMessage)

OnOutput: TypeAlias = Callable[[int, bytes], None]


class RunHandle:
    """A run that the daemon has received: takes more input and signals. Both are ignored after its end."""

    def __init__(self, connection: _ClientProtocol, run_id: int) -> None:
        self._connection, self._run_id = connection, run_id

    def feed(self, data: bytes, *, end: bool = False) -> None:
        self._connection.send(p.encode_frame(p.RunInput(id=self._run_id, data=data, end=end)))

    def send_signal(self, number: int) -> None:
        self._connection.send(p.encode_frame(p.RunSignal(id=self._run_id, number=number)))


OnStarted: TypeAlias = Callable[[RunHandle], None]


class SandboxFault(Exception):
    def __init__(self, fault: p.Fault, message: str) -> None:
        super().__init__(f"{fault}: {message}")
        self.fault = fault
        self.message = message


@dataclass(slots=True)
class _PendingRun:
    response: asyncio.Future[p.RunFinished]
    on_output: OnOutput | None


class SandboxClient:
    def __init__(self, path: str, *, connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS) -> None:
        self.path = path
        self.state: p.SandboxState | None = None  # as last received; None while disconnected
        self.reason = "The sandbox daemon has not been reached yet."  # why it is disconnected
        self._connect_timeout = connect_timeout_seconds
        self._ids = itertools.count(1)
        self._runs: dict[int, _PendingRun] = {}
        self._state_requests: dict[int, asyncio.Future[p.SandboxState]] = {}
        self._connection: _ClientProtocol | None = None
        self._ready = asyncio.Event()  # the daemon's state has been received
        self._is_away = False  # a run has waited for it in vain; the next ones do not hold their slots
        self._semaphore = asyncio.Semaphore(1)
        self._slots = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._stay_connected(), name="jobyard-sandbox")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if self._connection is not None:
            self._connection.close()
            self._on_disconnect("The connection was closed.")

    async def _stay_connected(self) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        loop = asyncio.get_running_loop()
        while True:
            try:
                _, connection = await loop.create_unix_connection(lambda: _ClientProtocol(self), self.path)
            except OSError as error:
                self.reason = f"Cannot connect to the sandbox daemon: {error.strerror or error}."
            else:
                await connection.closed
                if self._ready.is_set():
                    backoff = FIRST_BACKOFF_SECONDS
                self._on_disconnect(connection.reason)
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, LONGEST_BACKOFF_SECONDS)

    async def run(
        self, request: p.RunRequest, on_output: OnOutput | None = None, on_started: OnStarted | None = None
    ) -> p.RunFinished:
        """Run a program to its end. Raises SandboxFault when the platform cannot run it.

        On cancellation, the program is killed before CancelledError propagates.
        """
        while True:
            await self.ready_state()
            async with self._semaphore:
                connection = self._connection
                if connection is not None:
                    return await self._run(connection, request, on_output, on_started)

    async def _run(
        self,
        connection: _ClientProtocol,
        request: p.RunRequest,
        on_output: OnOutput | None,
        on_started: OnStarted | None,
    ) -> p.RunFinished:
        run_id, loop = next(self._ids), asyncio.get_running_loop()
        pending = self._runs[run_id] = _PendingRun(loop.create_future(), on_output)
        connection.send(p.encode_frame(msgspec.structs.replace(request, id=run_id)))
        if on_started is not None:
            on_started(RunHandle(connection, run_id))
        try:
            return await pending.response
        except asyncio.CancelledError:
            pending.response, pending.on_output = loop.create_future(), None
            connection.send(p.encode_frame(p.RunCancellation(id=run_id)))
            with contextlib.suppress(SandboxFault, TimeoutError):
                async with asyncio.timeout(CANCEL_TIMEOUT_SECONDS):
                    await pending.response
            raise
        finally:
            del self._runs[run_id]

    async def ready_state(self) -> p.SandboxState:
        """The state of a daemon that runs programs. Raises SandboxFault if there is none within the timeout."""
        if not self._ready.is_set():
            try:
                async with asyncio.timeout(0 if self._is_away else self._connect_timeout):
                    await self._ready.wait()
            except TimeoutError:
                self._is_away = True
                raise SandboxFault(p.Fault.SANDBOX_UNAVAILABLE, self.reason) from None
        state = self.state
        if state is None or state.tier is None:
            raise SandboxFault(p.Fault.SANDBOX_UNAVAILABLE, self.reason if state is None else state.reason)
        return state

    async def fetch_state(self, timeout_seconds: float = CONNECT_TIMEOUT_SECONDS) -> p.SandboxState:
        if self._connection is None:
            return await self.ready_state()
        request_id = next(self._ids)
        response: asyncio.Future[p.SandboxState] = asyncio.get_running_loop().create_future()
        self._state_requests[request_id] = response
        try:
            self._connection.send(p.encode_frame(p.StateRequest(id=request_id)))
            async with asyncio.timeout(timeout_seconds):
                return await response
        except TimeoutError:
            message = f"The sandbox daemon did not respond within {timeout_seconds:g} s."
            raise SandboxFault(p.Fault.SANDBOX_UNAVAILABLE, message) from None
        finally:
            del self._state_requests[request_id]

    # Messages from the daemon, called by _ClientProtocol

    def _on_connect(self, connection: _ClientProtocol) -> None:
        self._connection = connection

    def _on_message(self, data: bytes) -> None:
        message = _decode(data)
        if isinstance(message, p.SandboxState):
            self._on_state(message)
            return
        pending = self._runs.get(message.id)
        if pending is None:
            return  # the caller has given up on this run
        if isinstance(message, p.Output):
            if pending.on_output is not None:
                pending.on_output(message.fd, message.data)
        elif not pending.response.done():
            if isinstance(message, p.RunFinished):
                pending.response.set_result(message)
            elif isinstance(message, p.RunRejected):
                pending.response.set_exception(SandboxFault(message.fault, message.message))

    def _on_state(self, state: p.SandboxState) -> None:
        if state.version != p.VERSION:
            raise p.ProtocolError(f"the daemon speaks version {state.version} and this worker version {p.VERSION}")
        self.state = state
        if state.slots != self._slots:
            self._slots, self._semaphore = state.slots, asyncio.Semaphore(max(1, state.slots))
        self._ready.set()
        self._is_away = False
        response = self._state_requests.get(state.id)
        if response is not None and not response.done():
            response.set_result(state)

    def _on_disconnect(self, reason: str) -> None:
        """Fail every pending request: the daemon kills the runs of a lost connection."""
        self._connection, self.state, self.reason = None, None, reason
        self._ready.clear()
        fault = SandboxFault(p.Fault.SUPERVISOR_LOST, reason)
        pending: list[asyncio.Future[Any]] = [run.response for run in self._runs.values()]
        for future in pending + list(self._state_requests.values()):
            if not future.done():
                future.set_exception(fault)


class _ClientProtocol(asyncio.Protocol):
    def __init__(self, client: SandboxClient) -> None:
        self._client = client
        self._decoder = p.FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reason = "The connection to the sandbox daemon was lost."

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses of asyncio's
        self._client._on_connect(self)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._decoder.feed(data):
                self._client._on_message(frame)
        except p.ProtocolError as error:
            self.reason = f"Incompatible sandbox daemon: {error}. Run the same jobyard version on both sides."
            log.warning("%s", self.reason)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
