"""Starts processes of a story as forks of one that has loaded everything: booting Python was most of their cost.

Where the boot itself is tested, a story starts the real command instead.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

PR_SET_PDEATHSIG: Final = 1
MAX_REQUEST_BYTES: Final = 1 << 20
START_SECONDS: Final = 60.0


class Request(msgspec.Struct, frozen=True):
    """`module` is run as `__main__` with these arguments."""

    module: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    folder: str


class ForkedProcess:
    """The part of `subprocess.Popen` that stories use. The process stays a zombie until this is closed."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self._connection = connection
        self._exit_code: int | None = None

    def poll(self) -> int | None:
        if self._exit_code is None and select.select([self._connection], [], [], 0)[0]:
            self._receive()
        return self._exit_code

    def wait(self) -> int:
        while self._exit_code is None:
            self._receive()
        return self._exit_code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _receive(self) -> None:
        data = self._connection.recv(16)
        if not data:
            raise ChildProcessError("The fork server has ended.")
        self._exit_code = int(data)
        self._connection.close()


@functools.cache
def _address() -> str:
    """Start the server; one for each test process."""
    folder = tempfile.TemporaryDirectory(prefix="jobyard-fork-")
    address = str(Path(folder.name) / "socket")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen(128)
    command = [sys.executable, "-m", "tests.story.fork_server", str(listener.fileno())]
    server = subprocess.Popen(command, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL)
    listener.close()

    def stop() -> None:
        server.kill()
        server.wait()
        folder.cleanup()

    atexit.register(stop)
    return address


def start(
    module: str, arguments: Sequence[str], *, environment: Mapping[str, str], folder: Path, output: int
) -> ForkedProcess:
    """Run a module in a new process; `output` is the descriptor of its standard output and standard error."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(START_SECONDS)
    connection.connect(_address())
    request = Request(module, tuple(arguments), dict(environment), str(folder))
    socket.send_fds(connection, [msgspec.json.encode(request)], [output])
    pid = int(connection.recv(16))
    connection.settimeout(None)
    return ForkedProcess(pid, connection)


class _Server:
    """Single-threaded, so that a fork finds every lock free."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._connections: dict[int, socket.socket] = {}  # by process id
        self._signals, self._wake = socket.socketpair()
        self._signals.setblocking(False)
        self._wake.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)

    def run(self) -> None:
        while True:
            ready, _, _ = select.select([self._listener, self._signals], [], [])
            if self._signals in ready:
                self._signals.recv(4096)
                self._report_ended()
            if self._listener in ready:
                self._accept()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        data, [output], _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 1)
        request = msgspec.json.decode(data, type=Request)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for each in (self._listener, self._signals, self._wake, connection, *self._connections.values()):
                each.close()
            _run(request, output)
        os.close(output)
        self._connections[pid] = connection
        connection.send(str(pid).encode())

    def _report_ended(self) -> None:
        for pid in list(self._connections):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                connection = self._connections.pop(pid)
                try:
                    connection.send(str(os.waitstatus_to_exitcode(status)).encode())
                except OSError:
                    continue  # the test has ended meanwhile
                finally:
                    connection.close()


def _run(request: Request, output: int) -> None:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.chdir(request.folder)
        os.environ.clear()
        os.environ.update(request.environment)
        sys.argv = [request.module, *request.arguments]
        runpy.run_module(request.module, run_name="__main__", alter_sys=False)
        code = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # as the interpreter does with an uncaught exception
        sys.excepthook(*sys.exc_info())
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve(descriptor: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # What stories run; loaded here once. `tests.story.worker` is not: importing it begins a process.
    import asyncpg  # noqa: F401, PLC0415
    import hiredis  # noqa: F401, PLC0415
    import redis.asyncio  # noqa: F401, PLC0415
    import tests.story.process  # noqa: F401, PLC0415
    import uvloop  # noqa: F401, PLC0415

    _Server(socket.socket(fileno=descriptor)).run()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
