"""The daemon's Unix socket: checks the peer's user, dispatches requests. A closed connection cancels its runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from signal import Signals
from typing import cast

import msgspec

from jobyard.sandbox import protocol as p
from jobyard.sandbox.daemon.daemon import SandboxDaemon
from jobyard.sandbox.daemon.program_run import RunControl

_CREDENTIALS = struct.Struct("3i")
_decode: Callable[[bytes], p.ClientMessage] = p.frame_decoder(p.ClientMessage)


# That a client may send to a program. Not STOP: a stopped program would only wait for its time limit.
SIGNALS = frozenset(
    map(
        int,
        (
            Signals.SIGHUP,
            Signals.SIGINT,
            Signals.SIGQUIT,
            Signals.SIGKILL,
            Signals.SIGUSR1,
            Signals.SIGUSR2,
            Signals.SIGTERM,
        ),
    )
)


class CannotListen(Exception):
    """The socket path belongs to another daemon, is not a socket, or has no folder."""


class _ServerProtocol(asyncio.Protocol):
    def __init__(self, daemon: SandboxDaemon, uids: Collection[int]) -> None:
        self._daemon, self._uids = daemon, uids
        self._frames = p.FrameDecoder()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._controls: dict[int, RunControl] = {}  # of the interactive runs
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connection = cast("asyncio.Transport", transport)
        with socket.socket(fileno=os.dup(connection.get_extra_info("socket").fileno())) as peer:
            data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, _ = _CREDENTIALS.unpack(data)
        if uid not in self._uids:
            connection.abort()
            return
        self._transport = connection
        self._daemon.on_change.add(self._send_state)
        self._send_state()

    def _send_state(self) -> None:
        self._send(self._daemon.state())

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        try:
            for message in self._frames.feed(data):
                self._on_message(_decode(message))
        except p.ProtocolError:
            self._transport.abort()

    def _on_message(self, message: p.ClientMessage) -> None:
        match message:
            case p.RunRequest():
                if message.id in self._tasks:
                    self._reject(message.id, p.Fault.INTERNAL, "a run with this id is in progress")
                    return
                if message.interactive:
                    self._controls[message.id] = RunControl()
                task = asyncio.get_running_loop().create_task(self._run(message))
                self._tasks[message.id] = task
                task.add_done_callback(lambda done: self._confirm_cancelled(message.id) if done.cancelled() else None)
            case p.RunCancellation():
                if (task := self._tasks.get(message.id)) is not None:  # type: ignore[assignment]
                    task.cancel()
            case p.RunInput():
                control = self._controls.get(message.id)
                if control is not None and not control.feed(message.data, end=message.end):
                    raise p.ProtocolError("more standard input than a run may receive")
            case p.RunSignal():
                if message.number not in SIGNALS:
                    raise p.ProtocolError(f"signal {message.number} cannot be sent")
                if (control := self._controls.get(message.id)) is not None:
                    control.send_signal(message.number)
            case p.StateRequest():
                self._send(msgspec.structs.replace(self._daemon.state(), id=message.id))

    def _send(self, message: p.DaemonMessage) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(p.encode_frame(message))

    def _reject(self, run_id: int, fault: p.Fault, why: str) -> None:
        self._send(p.RunRejected(id=run_id, fault=fault, message=why))

    def _confirm_cancelled(self, run_id: int) -> None:
        """Respond for a task that was cancelled before its first line and so could not respond itself."""
        self._tasks.pop(run_id, None)
        self._controls.pop(run_id, None)
        self._reject(run_id, p.Fault.CANCELLED, "cancelled")

    async def _run(self, request: p.RunRequest) -> None:
        def on_output(which: int, data: bytes) -> None:
            self._send(p.Output(id=request.id, fd=which, data=data))

        response: p.RunResponse
        try:
            control = self._controls.get(request.id)
            response = await self._daemon.run(request, on_output if request.stream else None, control)
        except asyncio.CancelledError:
            response = p.RunRejected(id=request.id, fault=p.Fault.CANCELLED, message="cancelled")
        except Exception as error:  # the client waits for a response, whatever the error
            response = p.RunRejected(id=request.id, fault=p.Fault.INTERNAL, message=f"{type(error).__name__}: {error}")
        self._tasks.pop(request.id, None)  # before the response: the client may reuse the id at once
        self._controls.pop(request.id, None)
        self._send(response)

    def connection_lost(self, error: Exception | None) -> None:
        self._daemon.on_change.discard(self._send_state)
        for task in list(self._tasks.values()):
            task.cancel()


def make_folder(path: Path, uids: Collection[int] = ()) -> None:
    """Make the folder of the socket, if it is one of /run, which is empty after each boot. Raises CannotListen."""
    folder = path.absolute().parent
    if folder.is_dir():
        return
    if folder.parent != Path("/run"):
        raise CannotListen(f"Cannot listen at {path}: folder {folder} not found. Create it, or pass another --socket.")
    folder.mkdir(mode=0o711 if uids else 0o700)


@contextlib.asynccontextmanager
async def serve(daemon: SandboxDaemon, path: Path, uids: Collection[int] = ()) -> AsyncIterator[None]:
    """Serve at `path`: only this user and root may connect, and the users in `uids`."""
    allowed = {0, os.getuid(), *uids}
    _remove_stale(path)
    listener = _listen(path, 0o666 if uids else 0o600)  # connection_made checks the user
    inode = _inode(path)
    server = await asyncio.get_running_loop().create_unix_server(
        lambda: _ServerProtocol(daemon, allowed), sock=listener, start_serving=True
    )
    try:
        yield
    finally:
        server.close()
        _remove(path, inode)


def _inode(path: Path) -> int:
    return path.lstat().st_ino


def _remove(path: Path, inode: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        if _inode(path) == inode:  # otherwise another daemon has replaced it
            path.unlink()


def _listen(path: Path, mode: int) -> socket.socket:
    """Bind under a temporary name: the real one appears only with the right mode and a listener."""
    listener = socket.socket(socket.AF_UNIX)
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    temporary = f".jobyard-{os.getpid()}"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        # Through /proc, so that the temporary name cannot exceed the 107 bytes of a socket address.
        listener.bind(f"/proc/self/fd/{folder}/{temporary}")
        os.chmod(temporary, mode, dir_fd=folder)
        listener.listen()
        try:
            os.link(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            raise CannotListen(f"Cannot listen at {path}: another daemon uses this socket.") from None
        finally:
            os.unlink(temporary, dir_fd=folder)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(folder)
    return listener


def _remove_stale(path: Path) -> None:
    """Remove the socket of a daemon that no longer runs."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise CannotListen(f"Cannot listen at {path}: it exists and is not a socket.")
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except OSError:
                path.unlink()
                return
        raise CannotListen(f"Cannot listen at {path}: another daemon uses this socket.")
