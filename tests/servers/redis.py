"""A private Redis with an append-only file, as people run it for jobs."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import ClassVar

from tests.servers.absent import need
from tests.servers.certificate import Certificate
from tests.servers.process import Server


class RedisServer(Server):
    name: ClassVar[str] = "redis-server"

    def __init__(
        self, *, password: str = "", certificate: Certificate | None = None, on_disk: bool = False, **settings: str
    ) -> None:
        self._program = need(self.name)
        super().__init__(on_disk=on_disk)
        self._password = password
        self._certificate = certificate
        self._settings = settings

    @property
    def url(self) -> str:
        scheme = "rediss" if self._certificate else "redis"
        secret = f":{self._password}@" if self._password else ""
        return f"{scheme}://{secret}127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        settings = {
            "port": "0" if self._certificate else str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            **{name.replace("_", "-"): value for name, value in self._settings.items()},
        }
        if self._password:
            settings["requirepass"] = self._password
        if self._certificate:
            settings |= {
                "tls-port": str(self.port),
                "tls-cert-file": str(self._certificate.chain),
                "tls-key-file": str(self._certificate.key),
                "tls-ca-cert-file": str(self._certificate.authority),
                "tls-auth-clients": "no",
            }
        return [str(self._program), *(word for name, value in settings.items() for word in (f"--{name}", value))]

    def answers(self) -> bool:
        # It accepts while it still loads, and says so.
        return self.ask("PING").startswith((b"+PONG", b"-NOAUTH"))

    def ask(self, *words: str) -> bytes:
        """The first part of the answer to one command; empty when there is none."""
        lines = [f"*{len(words)}", *(part for word in words for part in (f"${len(word.encode())}", word))]
        with contextlib.suppress(OSError), contextlib.closing(self._connect()) as connection:
            connection.sendall("\r\n".join([*lines, ""]).encode())
            return connection.recv(65536)
        return b""

    def _connect(self) -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=1.0)
        if self._certificate is None:
            return plain
        return ssl.create_default_context(cafile=self._certificate.authority).wrap_socket(
            plain, server_hostname="127.0.0.1"
        )
