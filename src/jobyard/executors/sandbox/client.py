"""The connection to the sandbox daemon: many runs at once over one Unix socket, made anew whenever it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import msgspec

from jobyard.sandbox.protocol import (
    VERSION,
    CancelRequest,
    DaemonMessage,
    Fault,
    FrameDecoder,
    Output,
    ProtocolError,
    RunFinished,
    RunRejected,
    RunRequest,
    SandboxState,
    StateRequest,
    encode_frame,
)

log = logging.getLogger("jobyard.sandbox")

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.02, 2.0
# A daemon that starts, or starts anew, is waited for before a run is said to have failed.
PATIENCE_SECONDS = 15.0
# How long a cancelled run may take to be gone.
CANCEL_SECONDS = 3.0
# A daemon says this while it does not know yet what it can do.
STARTING = "starting"
_decode = msgspec.msgpack.Decoder(DaemonMessage).decode

OnOutput: TypeAlias = Callable[[int, bytes], None]


class SandboxFault(Exception):
    """The platform could not run the program."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(f"{fault}: {message}")
        self.fault = fault
        self.message = message


class _PendingRun:
    __slots__ = ("answer", "on_output")

    def __init__(self, answer: asyncio.Future[RunFinished], on_output: OnOutput | None) -> None:
        self.answer = answer
        self.on_output = on_output


class SandboxClient:
    def __init__(self, path: str, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.path = path
        self.state: SandboxState | None = None  # as last heard; None while there is no connection
        self.reason = "It has not been reached yet."  # why there is none
        self._patience = patience_seconds
        self._numbers = itertools.count(1)
        self._pending: dict[int, _PendingRun] = {}
        self._asked: dict[int, asyncio.Future[SandboxState]] = {}
        self._wire: _Connection | None = None
        self._known = asyncio.Event()  # what the daemon can do is known
        self._room = asyncio.Semaphore(1)
        self._slots = 0
        self._task: asyncio.Task[None] | None = None

    # Life

    async def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep(), name="jobyard-sandbox")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if self._wire is not None:
            self._wire.close()
            self._lost("The connection was closed.")

    async def _keep(self) -> None:
        wait = FIRST_WAIT_SECONDS
        loop = asyncio.get_running_loop()
        while True:
            try:
                _, wire = await loop.create_unix_connection(lambda: _Connection(self), self.path)
            except OSError as error:
                self.reason = f"Nobody answers at its socket ({error.strerror or error})."
            else:
                await wire.closed
                if self._known.is_set():
                    wait = FIRST_WAIT_SECONDS
                self._lost(wire.why)
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)

    # What is asked

    async def run(self, run: RunRequest, on_output: OnOutput | None = None) -> RunFinished:
        """Until the program has ended; RunRefused when the platform could not run it.

        When cancelled, the program is killed before CancelledError goes on.
        """
        while True:
            await self.known()
            async with self._room:
                wire = self._wire
                if wire is not None:
                    return await self._run(wire, run, on_output)

    async def _run(self, wire: _Connection, run: RunRequest, on_output: OnOutput | None) -> RunFinished:
        number, loop = next(self._numbers), asyncio.get_running_loop()
        pending = self._pending[number] = _PendingRun(loop.create_future(), on_output)
        wire.send(encode_frame(msgspec.structs.replace(run, id=number)))
        try:
            return await pending.answer
        except asyncio.CancelledError:
            pending.answer, pending.on_output = loop.create_future(), None
            wire.send(encode_frame(CancelRequest(id=number)))
            with contextlib.suppress(SandboxFault, TimeoutError):
                async with asyncio.timeout(CANCEL_SECONDS):
                    await pending.answer
            raise
        finally:
            del self._pending[number]

    async def known(self) -> SandboxState:
        """How the daemon is; RunRefused when it cannot be reached for too long, or refuses to run anything."""
        if not self._known.is_set():
            try:
                async with asyncio.timeout(self._patience):
                    await self._known.wait()
            except TimeoutError:
                raise SandboxFault(Fault.SANDBOX_UNAVAILABLE, self.reason) from None
        state = self.state
        if state is None or state.tier is None:
            raise SandboxFault(Fault.SANDBOX_UNAVAILABLE, self.reason if state is None else state.reason)
        return state

    async def ask(self, seconds: float = PATIENCE_SECONDS) -> SandboxState:
        """How it is now."""
        if self._wire is None:
            return await self.known()
        number = next(self._numbers)
        answer: asyncio.Future[SandboxState] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            self._wire.send(encode_frame(StateRequest(id=number)))
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise SandboxFault(Fault.SANDBOX_UNAVAILABLE, f"It did not answer within {seconds:g} s.") from None
        finally:
            del self._asked[number]

    # What is heard

    def _met(self, wire: _Connection) -> None:
        self._wire = wire

    def _heard(self, data: bytes) -> None:
        message = _decode(data)
        if isinstance(message, SandboxState):
            self._told(message)
            return
        pending = self._pending.get(message.id)
        if pending is None:
            return  # of a run that nobody waits for any more
        if isinstance(message, Output):
            if pending.on_output is not None:
                pending.on_output(message.fd, message.data)
        elif not pending.answer.done():
            if isinstance(message, RunFinished):
                pending.answer.set_result(message)
            elif isinstance(message, RunRejected):
                pending.answer.set_exception(SandboxFault(message.fault, message.message))

    def _told(self, state: SandboxState) -> None:
        if state.version != VERSION:
            raise ProtocolError(f"it speaks version {state.version}, this worker {VERSION}")
        self.state = state
        if state.slots != self._slots:
            self._slots, self._room = state.slots, asyncio.Semaphore(max(1, state.slots))
        if state.tier is None and state.reason.startswith(STARTING):
            self.reason = "It is starting."
        else:
            self._known.set()
        answer = self._asked.get(state.id)
        if answer is not None and not answer.done():
            answer.set_result(state)

    def _lost(self, why: str) -> None:
        """Whoever waits is told; what ran there is gone, or will be."""
        self._wire, self.state, self.reason = None, None, why
        self._known.clear()
        lost = SandboxFault(Fault.SUPERVISOR_LOST, why)
        waiting: list[asyncio.Future[Any]] = [pending.answer for pending in self._pending.values()]
        for future in waiting + list(self._asked.values()):
            if not future.done():
                future.set_exception(lost)


class _Connection(asyncio.Protocol):
    """One connection."""

    def __init__(self, client: SandboxClient) -> None:
        self._client = client
        self._frames = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.why = "The connection to the sandbox was lost."

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are like those, and no subclass
        self._client._met(self)

    def data_received(self, data: bytes) -> None:
        try:
            for each in self._frames.feed(data):
                self._client._heard(each)
        except (ProtocolError, msgspec.MsgspecError) as error:
            self.why = f"The sandbox daemon does not speak as this worker does: {error}."
            log.warning("%s", self.why)
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
