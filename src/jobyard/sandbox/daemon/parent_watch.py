"""Ties to the parent process: a pipe that closes when a worker dies, or systemd notifications."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, MutableMapping

_MICROSECONDS = 1_000_000


def on_stdin_closed(stop: Callable[[], None]) -> None:
    """Call `stop` when standard input closes: the worker holds the other end, so its death stops the daemon."""
    loop = asyncio.get_running_loop()
    pipe, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # child processes must not inherit it
    os.close(nothing)
    os.set_blocking(pipe, False)

    def on_readable() -> None:
        with contextlib.suppress(BlockingIOError):
            if not os.read(pipe, 4096):
                loop.remove_reader(pipe)
                stop()

    loop.add_reader(pipe, on_readable)


class DaemonNotifier:
    """Notifications to systemd; does nothing when another process started the daemon."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        self._address = environment.pop("NOTIFY_SOCKET", "")
        wait, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        is_watched = wait.isdecimal() and pid in ("", str(os.getpid()))
        self._seconds = int(wait) / _MICROSECONDS if is_watched else 0.0

    def notify(self, *lines: str) -> None:
        if self._address:
            to = "\0" + self._address[1:] if self._address.startswith("@") else self._address
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto("\n".join(lines).encode(), to)

    @contextlib.asynccontextmanager
    async def running(self, status: str) -> AsyncIterator[None]:
        """Report READY on entry, ping the watchdog while the event loop runs, report STOPPING on exit."""
        self.notify("READY=1", f"STATUS={status}")
        watchdog = asyncio.ensure_future(self._ping_watchdog())
        try:
            yield
        finally:
            watchdog.cancel()
            self.notify("STOPPING=1")

    async def _ping_watchdog(self) -> None:
        while self._seconds:
            self.notify("WATCHDOG=1")
            await asyncio.sleep(self._seconds / 3)
