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


class Proxy:
    """Listens on a port of its own for as long as it lives, whatever the mode."""

    def __init__(self, port: int, *, latency_seconds: float = 0.0) -> None:
        self.mode = Mode.PASS
        self.latency_seconds = latency_seconds
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    def through(self, url: str) -> str:
        """The same URL with our port."""
        return url.replace(f":{self._to}", f":{self.port}")

    def cut(self) -> None:
        """Every open connection ends now, with a reset; new ones are as the mode says."""
        with self._lock:
            open_now, self._open = self._open, set()
        for one in open_now:
            with contextlib.suppress(OSError):
                # Discards what is under way, and tells the other side by RST.
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._open) // 2

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
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True, name="proxy").start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._to), timeout=5.0)
        except OSError:
            client.close()
            return
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.settimeout(None)
        with self._lock:
            self._open |= {client, server}
        answers = threading.Thread(target=self._carry, args=(server, client, True), daemon=True, name="proxy")
        answers.start()
        self._carry(client, server, False)
        answers.join()
        with self._lock:
            self._open -= {client, server}
        client.close()
        server.close()

    def _carry(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(BLOCK_BYTES):
                if self.latency_seconds:
                    time.sleep(self.latency_seconds / 2)
                while self.mode is Mode.STALL or (is_answer and self.mode is Mode.HALF_OPEN):
                    if self._is_closed or source.fileno() < 0:
                        return
                    time.sleep(LOOK_SECONDS)
                target.sendall(block)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
