"""The API server of this process: bind, run, stop gracefully."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from jobyard.config.sections import ServerSection
from jobyard.errors import ConfigurationError
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.schedules import SHORTEST_INTERVAL_SECONDS
from jobyard.ports.store import Store
from jobyard.server.app import create_app
from jobyard.server.bind_errors import bind_problem
from jobyard.server.bootstrap import LOOPBACK_NAMES, Access
from jobyard.server.dependencies import Dependencies
from jobyard.server.http_protocol import ConnectionLimits, UvicornServer, uvicorn_options
from jobyard.server.middleware import SecurityMiddleware
from jobyard.server.routes.table import ALL_ROUTES

log = logging.getLogger("jobyard.server")


def listen(host: str, port: int) -> socket.socket:
    """A bound socket. Raises ConfigurationError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = min(found, key=lambda each: each[0] is not socket.AF_INET)
        listener = socket.create_server(address[:2], family=family, backlog=2048)
    except socket.gaierror as error:
        raise ConfigurationError(f"Cannot listen on {host}: {error.strerror}.") from error
    except OSError as error:
        problem = bind_problem(error, port, "--port (0 picks a free one)")
        raise ConfigurationError(f"Cannot listen on {host}, port {port}: {problem}") from error
    # Inherited by accepted connections: Nagle's algorithm would delay the second piece of a response.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """The URL of the server for a program on this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # compared, not bound
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def require_certificate(section: ServerSection) -> None:
    """Raise ConfigurationError if the server is to speak TLS and its certificate or key cannot be used."""
    if section.tls_cert is None:
        if section.tls_key is not None:
            raise ConfigurationError("Cannot use --tls-key without a certificate: pass --tls-cert as well.")
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(section.tls_cert, section.tls_key, password="")
    except OSError as error:
        files = " and ".join(filter(None, (section.tls_cert, section.tls_key)))
        reason = error.strerror or str(error)
        if isinstance(error, ssl.SSLError):
            reason = "they are not a PEM certificate with its unencrypted private key"
        raise ConfigurationError(f"Cannot use {files} for TLS: {reason}.") from error


class Server:
    """Runs until `stop`: streams end, new connections are rejected, requests finish; `force_stop` does not wait."""

    def __init__(
        self,
        store: Store,
        job_factory: JobFactory,
        access: Access,
        section: ServerSection,
        middleware: Callable[[ASGIApp], ASGIApp] | None = None,
        shortest_interval_seconds: float = SHORTEST_INTERVAL_SECONDS,
    ) -> None:
        self.dependencies = Dependencies(store, job_factory, access.authenticator, section, shortest_interval_seconds)
        inner = create_app(self.dependencies, ALL_ROUTES)
        app = SecurityMiddleware(
            inner if middleware is None else middleware(inner),
            LOOPBACK_NAMES if access.is_open else None,
            section.root_path,
            section.public_origin,
        )
        limits = ConnectionLimits(
            header_seconds=section.header_seconds,
            max_connections=section.max_connections,
            max_connections_per_address=section.max_connections_per_address,
        )
        options = uvicorn_options(limits)
        options |= {"ssl_certfile": section.tls_cert, "ssl_keyfile": section.tls_key}
        config = uvicorn.Config(
            app, loop="none", lifespan="off", timeout_graceful_shutdown=round(section.shutdown_timeout), **options
        )
        self._scheme = "http" if section.tls_cert is None else "https"
        self._uvicorn = UvicornServer(config)
        self._lame_duck_seconds = section.lame_duck_seconds
        self._forced = asyncio.Event()
        self.ready = self._uvicorn.ready

    def url(self, listener: socket.socket) -> str:
        return url_of(listener, self._scheme)

    async def run(self, listener: socket.socket) -> None:
        allow_many_connections()
        async with self.dependencies.lifespan():
            await self._serve(listener)

    async def _serve(self, listener: socket.socket) -> None:
        serving = asyncio.ensure_future(self._uvicorn.serve([listener]))
        forced = asyncio.ensure_future(self._forced.wait())
        try:
            await asyncio.wait([serving, forced], return_when=asyncio.FIRST_COMPLETED)
        finally:
            forced.cancel()
            serving.cancel()
            await asyncio.wait([serving])
        if not serving.cancelled():
            serving.result()

    def stop(self) -> None:
        """Fail /readyz at once, and close after the lame-duck time: load balancers need a moment to notice."""
        if not self.dependencies.draining.is_set():
            self.dependencies.draining.set()
            asyncio.get_running_loop().call_later(self._lame_duck_seconds, self._close)

    def _close(self) -> None:
        self._uvicorn.should_exit = True

    def force_stop(self) -> None:
        self.stop()
        self._close()
        self._forced.set()


def allow_many_connections() -> None:
    """Raise the limit of open files: each connection needs one, and the default is often 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    log.debug("process %d may open %d files", os.getpid(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
