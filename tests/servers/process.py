"""What all private servers share: a folder, a port, a log, and an end."""

from __future__ import annotations

import abc
import atexit
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tests.servers.folders import new_folder
from tests.servers.ports import free_port

START_SECONDS = 60.0
STOP_SECONDS = 20.0
TIME_WAIT, LISTEN = "06", "0A"
GUARDED = Path(__file__).with_name("guarded.py")


class Server(abc.ABC):
    """A context manager. Between start and end it can be killed, started again, frozen and thawed."""

    name: ClassVar[str]
    # What it is sent when we die: it must end on its own then, however we ended.
    on_our_death: ClassVar[signal.Signals] = signal.SIGKILL
    on_stop: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, *, on_disk: bool = False, user: str = "") -> None:
        self.folder = new_folder(self.name, on_disk=on_disk)
        self.log = self.folder / "log"
        self.port = free_port()
        self._user = user
        self._popen: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    @abc.abstractmethod
    def command(self) -> list[str]: ...

    @abc.abstractmethod
    def answers(self) -> bool:
        """Whether clients are served by now."""

    @property
    def url(self) -> str:
        raise NotImplementedError

    @property
    def pid(self) -> int:
        assert self._popen is not None, f"{self.name} was not started"
        return self._popen.pid

    @property
    def is_up(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    def start(self) -> None:
        """On the same port and data as before; returns when it serves."""
        assert not self.is_up, f"{self.name} is up already"
        words = [sys.executable, "-I", "-S", str(GUARDED), str(int(self.on_our_death)), self._user, str(os.getpid())]
        with self.log.open("ab") as output:
            self._popen = subprocess.Popen(
                [*words, *self.command()],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the tests, which then stop us in order
            )
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if self._popen.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start on port {self.port}. Its log ends:\n{self.log_tail()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """In order; nothing happens if it is down."""
        if self._popen is None:
            return
        if self.is_up:
            self.resume()
            self._popen.send_signal(self.on_stop)
            try:
                self._popen.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._popen.wait()

    def kill(self) -> None:
        """SIGKILL, to all of it."""
        assert self._popen is not None
        self._popen.kill()
        self._popen.wait()

    def pause(self) -> None:
        """It stands still: connections stay open and nothing is answered."""
        for pid in self.processes():
            _send(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in self.processes():
            _send(pid, signal.SIGCONT)

    def processes(self) -> list[int]:
        """Its own and those it started."""
        return [self.pid] if self.is_up else []

    def connections(self) -> int:
        """Of clients, as the kernel sees them: open, or not yet closed by both sides."""
        found = 0
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            found += int(local.rpartition(":")[2], 16) == self.port and state not in {TIME_WAIT, LISTEN}
        return found

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
