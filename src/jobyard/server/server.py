"""The API server inside this process: bound, running, and stopped well."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from jobyard.config.sections import ServerSection
from jobyard.errors import ConfigurationError
from jobyard.operations.job_factory import JobFactory
from jobyard.ports.store import Store
from jobyard.server.app import create_app
from jobyard.server.bootstrap import LOOPBACK_NAMES, Entry
from jobyard.server.dependencies import Dependencies, ServerSettings
from jobyard.server.http_protocol import ConnectionLimits
from jobyard.server.middleware import SecurityMiddleware
from jobyard.server.rate_limit import uvicorn_options
from jobyard.server.routes.table import ALL_ROUTES

log = logging.getLogger("jobyard.server")


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, or a clear word why not."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = min(found, key=lambda each: each[0] is not socket.AF_INET)
        listener = socket.create_server(address[:2], family=family, backlog=2048)
    except socket.gaierror as error:
        raise ConfigurationError(f"There is no address {host} to listen on: {error.strerror}.") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(
                f"Port {port} of {host} is in use. Stop what listens there, or choose another with --port "
                "(0 takes a free one)."
            ) from error
        raise ConfigurationError(f"Cannot listen on {host}, port {port}: {error.strerror}.") from error
    # Inherited by what it accepts: an answer in two pieces must not wait for the other side's word about the first.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def url_of(listener: socket.socket) -> str:
    """Where a program on this machine finds it."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # it is what people wrote
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def settings_of(section: ServerSection) -> ServerSettings:
    return ServerSettings(**{name: getattr(section, name) for name in ServerSettings.__struct_fields__})


class UvicornServer(uvicorn.Server):
    """Says when it is ready. Signals are ours: they also concern workers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    """`run` until `stop`: streams end, no more connections, requests finish; `hurry` does not wait for them."""

    def __init__(
        self,
        store: Store,
        make: JobFactory,
        entry: Entry,
        section: ServerSection,
        around: Callable[[ASGIApp], ASGIApp] | None = None,
    ) -> None:
        settings = settings_of(section)
        self.dependencies = Dependencies(store, make, entry.authenticator, settings)
        inner = create_app(self.dependencies, ALL_ROUTES, self.dependencies.life)
        app = SecurityMiddleware(inner if around is None else around(inner), LOOPBACK_NAMES if entry.is_open else None)
        options = uvicorn_options(ConnectionLimits(header_seconds=settings.header_seconds))
        config = uvicorn.Config(app, loop="none", timeout_graceful_shutdown=round(section.shutdown_timeout), **options)
        self._uvicorn = UvicornServer(config)
        self._lame_duck_seconds = section.lame_duck_seconds
        self._hurried = asyncio.Event()
        self.ready = self._uvicorn.ready

    async def run(self, listener: socket.socket) -> None:
        allow_many_connections()
        serving = asyncio.ensure_future(self._uvicorn.serve([listener]))
        hurried = asyncio.ensure_future(self._hurried.wait())
        try:
            await asyncio.wait([serving, hurried], return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurried.cancel()
            serving.cancel()
            await asyncio.wait([serving])
        if not serving.cancelled():
            serving.result()

    def stop(self) -> None:
        """Not ready from now on; whoever sends requests here may need a moment to see that."""
        if not self.dependencies.draining.is_set():
            self.dependencies.draining.set()
            asyncio.get_running_loop().call_later(self._lame_duck_seconds, self._close)

    def _close(self) -> None:
        self._uvicorn.should_exit = True

    def hurry(self) -> None:
        self.stop()
        self._close()
        self._hurried.set()


def allow_many_connections() -> None:
    """Each takes a file; what the system allows by default is often a thousand."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    log.debug("process %d may hold %d files", os.getpid(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
