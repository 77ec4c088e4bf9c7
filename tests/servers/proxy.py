"""A small TCP proxy that makes a network behave badly on demand."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from enum import StrEnum
from types import TracebackType
from typing import Self

BLOCK_BYTES = 65536
LOOK_SECONDS = 0.02


class Mode(StrEnum):
    PASS = "pass"
    REFUSE = "refuse"  # new connections are closed at once
    STALL = "stall"  # connections are accepted and stay open; nothing moves in either direction
    HALF_OPEN = "half-open"  # requests arrive, answers do not


class Link:
    """One client's connection, and ours to the server in its name."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.is_abandoned = False

    def cut(self) -> None:
        for one in (self.client, self.server):
            with contextlib.suppress(OSError):
                # Discards what is under way, and tells the other side by RST.
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                one.shutdown(socket.SHUT_RDWR)
            one.close()


class Proxy:
    """Listens on a port of its own for as long as it lives, whatever the mode."""

    def __init__(self, port: int, *, latency_seconds: float = 0.0, own_port: int = 0) -> None:
        self.mode = Mode.PASS
        self.latency_seconds = latency_seconds
        self._to = port
        self.refused = 0
        self._listener = socket.create_server(("127.0.0.1", own_port), backlog=256)
        self.port = int(self._listener.getsockname()[1])
        self._links: set[Link] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    def through(self, url: str) -> str:
        """The same URL with our port."""
        return url.replace(f":{self._to}", f":{self.port}")

    def cut(self) -> None:
        """Every open connection ends now, with a reset; new ones are as the mode says."""
        with self._lock:
            links, self._links = self._links, set()
        for link in links:
            link.cut()

    def move(self, port: int) -> None:
        """From now on, it leads to another server."""
        self._to = port
        self.cut()

    def abandon(self) -> None:
        """Drop all data on the open connections, without closing them; new connections work.

        What a firewall does that has forgotten about them.
        """
        with self._lock:
            for link in self._links:
                link.is_abandoned = True

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._links)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True, name="proxy").start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._is_closed = True
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.mode is Mode.REFUSE:
                self.refused += 1
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True, name="proxy").start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._to), timeout=60.0)
        except OSError:
            client.close()
            return
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.settimeout(None)
        link = Link(client, server)
        with self._lock:
            self._links.add(link)
        answers = threading.Thread(target=self._carry, args=(link, server, client), daemon=True, name="proxy")
        answers.start()
        self._carry(link, client, server)
        answers.join()
        with self._lock:
            self._links.discard(link)
        client.close()
        server.close()

    def _carry(self, link: Link, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(BLOCK_BYTES):
                if self.latency_seconds:
                    time.sleep(self.latency_seconds / 2)
                while self._holds_back(link, is_answer=target is link.client):
                    if self._is_closed or source.fileno() < 0:
                        return
                    time.sleep(LOOK_SECONDS)
                target.sendall(block)
        # A closed connection is not reported to the other side, either.
        while link.is_abandoned and link in self._links and not self._is_closed:
            time.sleep(LOOK_SECONDS)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _holds_back(self, link: Link, *, is_answer: bool) -> bool:
        return link.is_abandoned or self.mode is Mode.STALL or (is_answer and self.mode is Mode.HALF_OPEN)
