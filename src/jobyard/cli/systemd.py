"""Notifications to systemd (sd_notify): ready, watchdog pings while the loop runs, stopping."""

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
# Pings per watchdog interval: the loop may block for two thirds of it before systemd restarts the service.
PINGS = 3
# A service manager that does not read its socket must not block the event loop for longer.
SEND_SECONDS = 0.5


class SystemdNotifier:
    """Does nothing outside systemd. Removes the variables, so that child processes do not notify in our name."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        self._inherited = {name: environment[name] for name in (SOCKET, WATCHDOG, WATCHDOG_PID) if name in environment}
        self._address = socket_address(environment.pop(SOCKET, ""))
        self.watchdog_seconds = watchdog_interval(environment)
        for name in (WATCHDOG, WATCHDOG_PID):
            environment.pop(name, None)

    @property
    def is_active(self) -> bool:
        """Whether systemd started this process."""
        return self._address is not None

    def inherited(self) -> dict[str, str]:
        """The variables, for a program that replaces this process."""
        return self._inherited

    def send(self, *lines: str) -> None:
        """Never raises: a failed notification must not end the program."""
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
                to.settimeout(SEND_SECONDS)
                to.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            log.warning("cannot notify the service manager of %s: %s", lines[0], error)

    def ready(self, status: str) -> None:
        self.send("READY=1", f"STATUS={' '.join(status.split())}")

    def stopping(self, seconds: float) -> None:
        """Also extends the stop timeout of the unit, so that running jobs have that long to finish."""
        extension = f"EXTEND_TIMEOUT_USEC={round(seconds * MICRO)}"
        self.send("STOPPING=1", f"STATUS=stopping, within {seconds:g} s", extension)

    @contextlib.asynccontextmanager
    async def pinging(self, is_healthy: Callable[[], bool] = lambda: True) -> AsyncIterator[None]:
        """Ping the watchdog from this event loop, as long as it runs and `is_healthy` is true."""
        if self._address is None or self.watchdog_seconds is None:
            yield
            return
        pinging = asyncio.ensure_future(self._ping(self.watchdog_seconds / PINGS, is_healthy))
        try:
            yield
        finally:
            pinging.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pinging

    async def _ping(self, seconds: float, is_healthy: Callable[[], bool]) -> None:
        while True:
            if is_healthy():
                self.send("WATCHDOG=1")
            await asyncio.sleep(seconds)


def socket_address(text: str) -> str | None:
    r"""
    >>> [socket_address(text) for text in ("/run/systemd/notify", "@abstract", "", "vsock:2:1234")]
    ['/run/systemd/notify', '\x00abstract', None, None]
    """
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else None


def watchdog_interval(environment: MutableMapping[str, str]) -> float | None:
    """Seconds without a ping after which systemd acts; None if it does not watch this process.

    >>> [watchdog_interval(given) for given in ({"WATCHDOG_USEC": "30000000"}, {"WATCHDOG_USEC": "soon"}, {})]
    [30.0, None, None]
    >>> watchdog_interval({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "0"}) is None
    True
    """
    text, pid = environment.get(WATCHDOG, ""), environment.get(WATCHDOG_PID, "")
    if not text.isdecimal() or int(text) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(text) / MICRO
