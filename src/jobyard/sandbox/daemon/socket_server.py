"""The socket: who may connect, what arrives, what is answered. A connection that ends takes its programs with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import cast

import msgspec

from jobyard.sandbox.daemon.daemon import SandboxDaemon
from jobyard.sandbox.protocol import (
    CancelRequest,
    ClientMessage,
    Fault,
    FrameDecoder,
    Output,
    ProtocolError,
    RunFinished,
    RunRejected,
    RunRequest,
    StateRequest,
    encode_frame,
)

_CREDENTIALS = struct.Struct("3i")
_decode = msgspec.msgpack.Decoder(ClientMessage).decode


class SocketInUse(Exception):
    """Another daemon answers there."""


class _Connection(asyncio.Protocol):
    def __init__(self, sandbox: SandboxDaemon, uids: Collection[int]) -> None:
        self._sandbox, self._uids = sandbox, uids
        self._frames = FrameDecoder()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast("asyncio.Transport", transport)
        with socket.socket(fileno=os.dup(made.get_extra_info("socket").fileno())) as peer:
            data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, _ = _CREDENTIALS.unpack(data)
        if uid not in self._uids:
            made.abort()
            return
        self._transport = made
        made.write(encode_frame(self._sandbox.state()))

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        try:
            for message in self._frames.feed(data):
                self._take(_decode(message))
        except (ProtocolError, msgspec.DecodeError):
            self._transport.abort()

    def _take(self, message: ClientMessage) -> None:
        assert self._transport is not None
        match message:
            case RunRequest():
                if message.id in self._tasks:
                    refused = RunRejected(id=message.id, fault=Fault.INTERNAL, message="this id is running")
                    self._transport.write(encode_frame(refused))
                    return
                task = asyncio.get_running_loop().create_task(self._run(message))
                self._tasks[message.id] = task
                task.add_done_callback(lambda done: self._answer_unbegun(message.id) if done.cancelled() else None)
            case CancelRequest():
                if (task := self._tasks.get(message.id)) is not None:  # type: ignore[assignment]
                    task.cancel()
            case StateRequest():
                self._transport.write(encode_frame(msgspec.structs.replace(self._sandbox.state(), id=message.id)))

    def _answer_unbegun(self, number: int) -> None:
        """A task that was cancelled before its first line has answered nobody."""
        assert self._transport is not None
        self._tasks.pop(number, None)
        if not self._transport.is_closing():
            self._transport.write(encode_frame(RunRejected(id=number, fault=Fault.CANCELLED, message="cancelled")))

    async def _run(self, request: RunRequest) -> None:
        assert self._transport is not None
        transport = self._transport

        def tell(which: int, data: bytes) -> None:
            if not transport.is_closing():
                transport.write(encode_frame(Output(id=request.id, fd=which, data=data)))

        answer: RunFinished | RunRejected
        try:
            answer = await self._sandbox.run(request, tell if request.stream else None)
        except asyncio.CancelledError:
            answer = RunRejected(id=request.id, fault=Fault.CANCELLED, message="cancelled")
        except Exception as error:  # whatever it is, the client hears of it
            answer = RunRejected(id=request.id, fault=Fault.INTERNAL, message=f"{type(error).__name__}: {error}")
        self._tasks.pop(request.id, None)  # before the answer: the id may be used again at once
        if not transport.is_closing():
            transport.write(encode_frame(answer))

    def connection_lost(self, error: Exception | None) -> None:
        for task in list(self._tasks.values()):
            task.cancel()


@contextlib.asynccontextmanager
async def serving(sandbox: SandboxDaemon, path: Path, uids: Collection[int] = ()) -> AsyncIterator[None]:
    """Listen there: a folder and a socket of our own user; others only when they are named."""
    allowed = {0, os.getuid(), *uids}
    if not path.parent.exists():
        path.parent.mkdir(parents=True, mode=0o711 if uids else 0o700)
    _clear(path)
    listening = _listen(path, 0o666 if uids else 0o600)  # who it is, is asked of the kernel
    own = _number(path)
    server = await asyncio.get_running_loop().create_unix_server(
        lambda: _Connection(sandbox, allowed), sock=listening, start_serving=True
    )
    try:
        yield
    finally:
        server.close()
        _remove(path, own)


def _number(path: Path) -> int:
    return path.lstat().st_ino


def _remove(path: Path, own: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        if _number(path) == own:  # or it is another daemon's by now
            path.unlink()


def _listen(path: Path, mode: int) -> socket.socket:
    """The name appears with somebody who listens, and with the right mode; until then it has another one."""
    made = socket.socket(socket.AF_UNIX)
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    early = f".jobyard-{os.getpid()}"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(early, dir_fd=folder)
        made.bind(f"/proc/self/fd/{folder}/{early}")  # a path may have 107 bytes, and this one must not need more
        os.chmod(early, mode, dir_fd=folder)
        made.listen()
        try:
            os.link(early, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            raise SocketInUse(f"another daemon answers at {path}") from None
        finally:
            os.unlink(early, dir_fd=folder)
    except BaseException:
        made.close()
        raise
    finally:
        os.close(folder)
    return made


def _clear(path: Path) -> None:
    """Remove the socket of a daemon that is gone."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise SocketInUse(f"{path} exists and is no socket")
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except OSError:
                path.unlink()
                return
        raise SocketInUse(f"another daemon answers at {path}")
