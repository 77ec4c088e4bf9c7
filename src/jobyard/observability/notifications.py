"""Notifications to Slack, Discord and other services, by apprise, in a thread and with a timeout."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from jobyard.errors import ConfigurationError

log = logging.getLogger("jobyard.alerts")

SEND_SECONDS = 15.0


class Notifier:
    """Sends to all services; a message is delivered when all of them accepted it."""

    def __init__(self, urls: Sequence[str], timeout_seconds: float = SEND_SECONDS) -> None:
        """URLs as apprise has them, or the webhook of Slack or Discord as it is. They hold secrets: never log them."""
        self._timeout_seconds = timeout_seconds
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of its own imports, which users cannot mend
            self._services = {name: _service(name, url) for name, url in _named(urls)}

    async def send(self, title: str, text: str) -> bool:
        sent = await asyncio.gather(*(self._send(service, title, text) for service in self._services.values()))
        failed = [name for name, is_sent in zip(self._services, sent, strict=True) if not is_sent]
        if failed:
            log.warning("an alert could not be sent to %s of alerts.urls", ", ".join(failed))
        return not failed

    async def _send(self, service: Any, title: str, text: str) -> bool:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[bool] = loop.create_future()

        def settle(is_sent: bool) -> None:
            if not result.done():
                result.set_result(is_sent)

        def work() -> None:
            try:
                is_sent = bool(service.notify(body=text, title=title))
            except Exception:
                log.debug("a service failed", exc_info=True)
                is_sent = False
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, is_sent)

        # A daemon: a service that hangs must not keep the process from its end.
        threading.Thread(target=work, name="jobyard-alert", daemon=True).start()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await result
        except TimeoutError:
            return False


def _named(urls: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each URL with a name for messages; its host may be a secret.

    >>> list(_named(["slack://token"]))
    [('entry 1 (slack://…)', 'slack://token')]
    """
    for number, url in enumerate(urls, start=1):
        scheme = url.partition("://")[0] if "://" in url else "…"
        yield f"entry {number} ({scheme}://…)", url


def _service(name: str, url: str) -> Any:
    try:
        import apprise  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "Alerts need the Python package apprise, which is not installed. "
            "Install it with: pip install 'jobyard[alerts]'"
        ) from error
    logging.getLogger("apprise").setLevel(logging.CRITICAL)  # its messages contain addresses
    service = apprise.Apprise()
    if not service.add(url):
        raise ConfigurationError(
            f"Cannot use {name} of alerts.urls: apprise does not understand it. "
            "See docs/howto/monitoring.md for the forms of Slack and Discord."
        )
    return service
