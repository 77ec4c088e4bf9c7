"""Starts processes of tests as forks of one that has loaded everything: booting Python was most of their cost.

Where the boot itself is tested, a test starts the real command instead.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import importlib
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final

import msgspec

PR_SET_PDEATHSIG: Final = 1
MAX_REQUEST_BYTES: Final = 1 << 20
START_SECONDS: Final = 60.0
PIPE: Final = subprocess.PIPE
# What the processes need; those modules that begin something when imported are not listed.
PRELOADED: Final = (
    "asyncpg",
    "hiredis",
    "jobyard.cli",
    "jobyard.app.sandbox",
    "jobyard.client",
    "jobyard.server.server",
    "jobyard.stores.postgres",
    "jobyard.stores.redis",
    "redis.asyncio",
    "tests.server.killable_server",
    "tests.story.process",
    "uvloop",
)


class Request(msgspec.Struct, frozen=True):
    """`module` is run as `__main__` with these arguments."""

    module: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    folder: str
    new_session: bool


class ForkedProcess:
    """The part of `subprocess.Popen` that tests use. The process stays a zombie until the fork server has seen it."""

    def __init__(self, pid: int, connection: socket.socket, files: Sequence[IO[str] | None]) -> None:
        self.pid = pid
        self.stdin, self.stdout, self.stderr = files
        self.returncode: int | None = None
        self._connection = connection

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self._receive()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self._receive()
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Standard output and standard error to their ends; small ones only, which a pipe holds."""
        self.wait(timeout)
        return (self.stdout.read() if self.stdout else "", self.stderr.read() if self.stderr else "")

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and its exit code is on the way
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def __enter__(self) -> ForkedProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (self.stdin, self.stdout, self.stderr):
            if file is not None:
                file.close()
        self.wait()

    def _receive(self) -> None:
        data = self._connection.recv(16)
        if not data:
            raise ChildProcessError("The fork server has ended.")
        self.returncode = int(data)
        self._connection.close()


@functools.cache
def _address() -> str:
    """Start the server; one for each test process."""
    folder = tempfile.TemporaryDirectory(prefix="jobyard-fork-")
    address = str(Path(folder.name) / "socket")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen(128)
    command = [sys.executable, "-m", "tests.fork_server", str(listener.fileno())]
    root = Path(__file__).parents[1]
    server = subprocess.Popen(command, cwd=root, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL)
    listener.close()

    def stop() -> None:
        server.kill()
        server.wait()
        folder.cleanup()

    atexit.register(stop)
    return address


def start(
    module: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    stdin: int = subprocess.DEVNULL,
    stdout: int,
    stderr: int,
    new_session: bool = False,
) -> ForkedProcess:
    """Run a module in a new process. The streams are PIPE or descriptors; `stdin` may be DEVNULL."""
    given: list[int] = []
    ours: list[IO[str] | None] = []
    opened: list[int] = []
    for stream, mode in ((stdin, "w"), (stdout, "r"), (stderr, "r")):
        file: IO[str] | None = None
        if stream == PIPE:
            reading, writing = os.pipe()
            theirs, own = (reading, writing) if mode == "w" else (writing, reading)
            file = os.fdopen(own, mode, buffering=1)
            opened.append(theirs)
        elif stream == subprocess.DEVNULL:
            theirs = os.open(os.devnull, os.O_RDWR)
            opened.append(theirs)
        else:
            theirs = stream
        given.append(theirs)
        ours.append(file)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(START_SECONDS)
    connection.connect(_address())
    request = Request(module, tuple(arguments), dict(environment), str(folder), new_session)
    socket.send_fds(connection, [msgspec.json.encode(request)], given)
    for descriptor in opened:
        os.close(descriptor)
    pid = int(connection.recv(16))
    connection.settimeout(None)
    return ForkedProcess(pid, connection, ours)


def run(
    module: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    text: str = "",
    timeout: float = START_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Run a module to its end; `text` is its standard input."""
    with (
        tempfile.TemporaryFile("w+") as typed,
        tempfile.TemporaryFile("w+", errors="replace") as output,
        tempfile.TemporaryFile("w+", errors="replace") as errors,
    ):
        typed.write(text)
        typed.seek(0)
        code = start(
            module,
            arguments,
            environment=environment,
            folder=folder,
            stdin=typed.fileno(),
            stdout=output.fileno(),
            stderr=errors.fileno(),
        ).wait(timeout)
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess([module, *arguments], code, output.read(), errors.read())


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
        data, streams, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 3)
        request = msgspec.json.decode(data, type=Request)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for each in (self._listener, self._signals, self._wake, connection, *self._connections.values()):
                each.close()
            _run(request, streams)
        for stream in streams:
            os.close(stream)
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


def _run(request: Request, streams: Sequence[int]) -> None:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored if the tests were started by nohup
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdin = os.fdopen(0, "r", closefd=False)
        sys.stdout = os.fdopen(1, "w", buffering=1 if os.isatty(1) else -1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
        if request.new_session:
            os.setsid()
        os.chdir(request.folder)
        os.environ.clear()
        os.environ.update(request.environment)
        time.tzset()
        # As `python -m` does; the parent's path has the folder of the fork server instead.
        sys.path[0] = request.folder
        sys.path[1:1] = [path for path in request.environment.get("PYTHONPATH", "").split(os.pathsep) if path]
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
    for module in PRELOADED:
        importlib.import_module(module)
    _Server(socket.socket(fileno=descriptor)).run()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
