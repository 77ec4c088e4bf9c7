"""What lies about on the host for a program to find: a secret, services that note who called."""

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

SOURCE = Path(__file__).resolve().parents[3]  # of the whole package
VARIABLE = "JOBYARD_ATTACK_CANARY"  # of a daemon that was started for the attacks


@dataclass(slots=True)
class Honeypot:
    secret: str
    names: dict[str, str]
    callers: list[str] = field(default_factory=list)
    kept: dict[Path, tuple[int, ...]] = field(default_factory=dict)

    def fill(self, program: str | bytes) -> bytes:
        if isinstance(program, bytes):
            return program
        for name, value in self.names.items():
            program = program.replace(f"@{name}@", value)
        return program.encode()

    def harm(self) -> list[str]:
        """Who called since it was last asked, and whether the secret is not as it was."""
        found = self.callers[:]
        self.callers.clear()
        for path, before in self.kept.items():
            if _about(path) != before:
                found.append(f"{path.name} of the host was changed")
        return found


@contextmanager
def honeypot(daemon: Path, secret: str | None = None) -> Iterator[Honeypot]:
    """`secret`: the one that the daemon's environment holds, where it was started for this."""
    secret = secret or secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="jobyard-scene-") as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)  # everybody on the host may read it; only the sandbox stands before it
        (folder / "secret").write_text(secret)
        (folder / "secret").chmod(0o644)
        abstract = f"jobyard-scene-{secrets.token_hex(8)}"
        services = {
            "TCP": _listen(socket.AF_INET, ("127.0.0.1", 0)),
            "UDP": _listen(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM),
            "a path": _listen(socket.AF_UNIX, str(folder / "service")),
            "a name": _listen(socket.AF_UNIX, "\0" + abstract),
        }
        (folder / "service").chmod(0o666)
        made = Honeypot(
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
        made.kept = {path: _about(path) for path in (folder, folder / "secret")}
        for name, service in services.items():
            threading.Thread(target=_serve, args=(name, service, made), daemon=True).start()
        try:
            yield made
        finally:
            for service in services.values():
                with suppress(OSError):
                    service.shutdown(socket.SHUT_RDWR)
                service.close()


def _about(path: Path) -> tuple[int, ...]:
    about = path.stat()
    return about.st_mode, about.st_uid, about.st_size, about.st_mtime_ns


def _listen(family: int, address: str | tuple[str, int], kind: int = socket.SOCK_STREAM) -> socket.socket:
    service = socket.socket(family, kind)
    service.bind(address)
    if kind == socket.SOCK_STREAM:
        service.listen()
    return service


def _serve(name: str, service: socket.socket, honeypot: Honeypot) -> None:
    """Notes who calls; its socket is shut to end it."""
    with suppress(OSError):
        while True:
            if service.type == socket.SOCK_DGRAM:
                if not service.recvfrom(1024)[0]:
                    return  # shut
            else:
                service.accept()[0].close()
            honeypot.callers.append(f"somebody called by {name}")
