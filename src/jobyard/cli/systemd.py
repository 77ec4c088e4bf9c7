"""What a service manager is told (systemd's protocol): ready, alive as long as the loop turns, stopping."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, MutableMapping

log = logging.getLogger("jobyard.app")

SOCKET, WATCHDOG, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
MICRO = 1_000_000
# Signs of life in one watchdog time: the loop may stand still for two thirds of it before the manager steps in.
PINGS = 3
# A manager that does not take what we say must not hold us up.
PATIENCE_SECONDS = 0.5


class Notify:
    """Silent where nobody listens. What a process inherits must not speak for us, so the variables are taken away."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        self._inherited = {name: environment[name] for name in (SOCKET, WATCHDOG, WATCHDOG_PID) if name in environment}
        self._address = address(environment.pop(SOCKET, ""))
        self.watchdog_seconds = watchdog(environment)
        for name in (WATCHDOG, WATCHDOG_PID):
            environment.pop(name, None)

    @property
    def is_heard(self) -> bool:
        """Whether a service manager started this."""
        return self._address is not None

    def inherited(self) -> dict[str, str]:
        """The variables, for a program that goes on in this process."""
        return self._inherited

    def say(self, *words: str) -> None:
        """Never the reason for which a program ends."""
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
                to.settimeout(PATIENCE_SECONDS)
                to.sendto("\n".join(words).encode(), self._address)
        except OSError as error:
            log.warning("the service manager cannot be told %s: %s", words[0], error)

    def ready(self, status: str) -> None:
        self.say("READY=1", f"STATUS={one_line(status)}")

    def stopping(self, seconds: float) -> None:
        """And how long that may take, whatever the unit says: what runs has that much time to finish."""
        self.say(
            "STOPPING=1", f"STATUS=stopping, within {seconds:g} s", f"EXTEND_TIMEOUT_USEC={round(seconds * MICRO)}"
        )

    @contextlib.asynccontextmanager
    async def alive(self, turns: Callable[[], bool] = lambda: True) -> AsyncIterator[None]:
        """Within, the watchdog is told that we live: by this loop, so only while it turns, and while `turns` agrees."""
        if self._address is None or self.watchdog_seconds is None:
            yield
            return
        pinging = asyncio.ensure_future(self._ping(self.watchdog_seconds / PINGS, turns))
        try:
            yield
        finally:
            pinging.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pinging

    async def _ping(self, seconds: float, turns: Callable[[], bool]) -> None:
        while True:
            if turns():
                self.say("WATCHDOG=1")
            await asyncio.sleep(seconds)


def address(text: str) -> str | None:
    r"""
    >>> address("/run/systemd/notify"), address("@abstract"), address(""), address("vsock:2:1234")
    ('/run/systemd/notify', '\x00abstract', None, None)
    """
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else None


def watchdog(environment: MutableMapping[str, str]) -> float | None:
    """After how many seconds without a sign the manager steps in; None where it does not watch this process.

    >>> watchdog({"WATCHDOG_USEC": "30000000"}), watchdog({"WATCHDOG_USEC": "soon"}), watchdog({})
    (30.0, None, None)
    >>> watchdog({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "0"}) is None
    True
    """
    text, pid = environment.get(WATCHDOG, ""), environment.get(WATCHDOG_PID, "")
    if not text.isdecimal() or int(text) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(text) / MICRO


def one_line(text: str) -> str:
    return " ".join(text.split())
