"""What ties the daemon to whoever started it: a pipe that ends with a worker, or systemd's notifications."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, MutableMapping

_MICRO = 1_000_000


def when_input_ends(stop: Callable[[], None]) -> None:
    """The worker holds the other end of our standard input: when it is gone, however it went, so are we."""
    loop = asyncio.get_running_loop()
    pipe, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # nobody whom we start may hold it
    os.close(nothing)
    os.set_blocking(pipe, False)

    def look() -> None:
        with contextlib.suppress(BlockingIOError):
            if not os.read(pipe, 4096):
                loop.remove_reader(pipe)
                stop()

    loop.add_reader(pipe, look)


class SystemdNotifier:
    """systemd, where it started us; silent elsewhere."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        self._address = environment.pop("NOTIFY_SOCKET", "")
        wait, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        is_watched = wait.isdecimal() and pid in ("", str(os.getpid()))
        self._seconds = int(wait) / _MICRO if is_watched else 0.0

    def say(self, *words: str) -> None:
        if self._address:
            to = "\0" + self._address[1:] if self._address.startswith("@") else self._address
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
                speaker.sendto("\n".join(words).encode(), to)

    @contextlib.asynccontextmanager
    async def served(self, status: str) -> AsyncIterator[None]:
        """Ready now; alive as long as the loop turns; stopping after that."""
        self.say("READY=1", f"STATUS={status}")
        alive = asyncio.ensure_future(self._live())
        try:
            yield
        finally:
            alive.cancel()
            self.say("STOPPING=1")

    async def _live(self) -> None:
        while self._seconds:
            self.say("WATCHDOG=1")
            await asyncio.sleep(self._seconds / 3)
