"""Decoys on the host: a secret file, and services that record every contact."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3]  # of jobyard
VARIABLE = "JOBYARD_ATTACK_CANARY"  # in the environment of a private daemon


@dataclass(slots=True)
class Honeypot:
    secret: str
    names: dict[str, str]
    contacts: list[str] = field(default_factory=list)
    watched: dict[Path, tuple[int, ...]] = field(default_factory=dict)

    def fill(self, program: str | bytes) -> bytes:
        if isinstance(program, bytes):
            return program
        for name, value in self.names.items():
            program = program.replace(f"@{name}@", value)
        return program.encode()

    def problems(self) -> list[str]:
        """List contacts since the last call, and changes of the decoy files."""
        found = self.contacts[:]
        self.contacts.clear()
        for path, before in self.watched.items():
            if _attributes(path) != before:
                found.append(f"{path.name} on the host was changed")
        return found


@contextmanager
def honeypot(daemon: Path, secret: str | None = None) -> Iterator[Honeypot]:
    """`secret`: the one in the environment of a private daemon."""
    secret = secret or secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="jobyard-honeypot-") as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)  # world-readable: only the sandbox protects it
        (folder / "secret").write_text(secret)
        (folder / "secret").chmod(0o644)
        abstract = f"jobyard-honeypot-{secrets.token_hex(8)}"
        services = {
            "TCP": _listen(socket.AF_INET, ("127.0.0.1", 0)),
            "UDP": _listen(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM),
            "a path": _listen(socket.AF_UNIX, str(folder / "service")),
            "a name": _listen(socket.AF_UNIX, "\0" + abstract),
        }
        (folder / "service").chmod(0o666)
        decoys = Honeypot(
            secret,
            {
                "SECRET": secret,
                "SECRET_FILE": str(folder / "secret"),
                "SECRET_FOLDER": str(folder),
                "PORT": str(services["TCP"].getsockname()[1]),
                "UDP_PORT": str(services["UDP"].getsockname()[1]),
                "UNIX_PATH": str(folder / "service"),
                "UNIX_NAME": abstract,
                "DAEMON": os.fspath(daemon.resolve()),
                "SOURCE": str(SOURCE),
            },
        )
        decoys.watched = {path: _attributes(path) for path in (folder, folder / "secret")}
        for name, service in services.items():
            threading.Thread(target=_serve, args=(name, service, decoys), daemon=True).start()
        try:
            yield decoys
        finally:
            for service in services.values():
                with suppress(OSError):
                    service.shutdown(socket.SHUT_RDWR)
                service.close()


def _attributes(path: Path) -> tuple[int, ...]:
    info = path.stat()
    return info.st_mode, info.st_uid, info.st_size, info.st_mtime_ns


def _listen(family: int, address: str | tuple[str, int], kind: int = socket.SOCK_STREAM) -> socket.socket:
    service = socket.socket(family, kind)
    service.bind(address)
    if kind == socket.SOCK_STREAM:
        service.listen()
    return service


def _serve(name: str, service: socket.socket, honeypot: Honeypot) -> None:
    """Record contacts until the socket is shut down."""
    with suppress(OSError):
        while True:
            if service.type == socket.SOCK_DGRAM:
                if not service.recvfrom(1024)[0]:
                    return  # shut down
            else:
                service.accept()[0].close()
            honeypot.contacts.append(f"a program connected by {name}")
