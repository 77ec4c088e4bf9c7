"""A private PostgreSQL; the data of a second one are copied from the first."""

from __future__ import annotations

import functools
import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path
from typing import ClassVar

from tests.servers.absent import need
from tests.servers.certificate import Certificate
from tests.servers.family import Family
from tests.servers.folders import locked, run_folder
from tests.servers.process import Server

OWNER = "postgres"
DATABASE = "postgres"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    # In the folder, where it goes with the rest when the server is killed.
    "dynamic_shared_memory_type": "mmap",
    "shared_buffers": "64MB",
    "max_wal_size": "128MB",
    "max_connections": "250",
    "log_min_messages": "warning",
    "lc_messages": "C",
}


class PostgresServer(Server):
    name: ClassVar[str] = "postgres"
    # At once, but with its shared memory given back.
    on_our_death: ClassVar[signal.Signals] = signal.SIGQUIT
    # "Fast": it does not wait for clients to leave.
    on_stop: ClassVar[signal.Signals] = signal.SIGINT

    def __init__(
        self,
        *,
        password: str = "",
        certificate: Certificate | None = None,
        on_disk: bool = False,
        data: Path | None = None,
        **settings: str,
    ) -> None:
        self._program = program(self.name)
        template = _template()
        super().__init__(on_disk=on_disk, user=system_user())
        self._password = password
        self._settings = SETTINGS | settings
        self.data = data or self.folder / "data"
        _copy(template, self.data)
        self._family = Family()
        if password:
            self._require_password(password)
        if certificate:
            self._serve_tls(certificate)
        give(self.data)

    @property
    def url(self) -> str:
        secret = f":{self._password}" if self._password else ""
        return f"postgresql://{OWNER}{secret}@127.0.0.1:{self.port}/{DATABASE}"

    def command(self) -> list[str]:
        settings = {**self._settings, "port": str(self.port)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(self._program), "-D", str(self.data), *options]

    def answers(self) -> bool:
        return is_ready(self.port)

    def kill(self) -> None:
        """The first process stands still meanwhile, so that it cannot start another that we would miss."""
        assert self._popen is not None
        if self.is_up:
            self._popen.send_signal(signal.SIGSTOP)
        self._family.end(self.processes())
        self._popen.wait()

    def processes(self) -> list[int]:
        return [self.pid, *self._family.children(self.pid)] if self.is_up else []

    def _require_password(self, password: str) -> None:
        words = f"ALTER USER {OWNER} PASSWORD '{password}'"
        single = [str(self._program), "--single", "-D", str(self.data), DATABASE]
        give(self.data)
        _as_owner(single, words)
        (self.data / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")

    def _serve_tls(self, certificate: Certificate) -> None:
        for source, name in ((certificate.chain, "server.crt"), (certificate.key, "server.key")):
            shutil.copy(source, self.data / name)
            (self.data / name).chmod(0o600)
        self._settings |= {"ssl": "on"}
        method = "scram-sha-256" if self._password else "trust"
        (self.data / "pg_hba.conf").write_text(f"hostssl all all 127.0.0.1/32 {method}\n")


def is_ready(port: int) -> bool:
    words = [str(program("pg_isready")), "-q", "-h", "127.0.0.1", "-p", str(port)]
    return subprocess.run(words, check=False).returncode == 0


def program(name: str) -> Path:
    """One of PostgreSQL's own: they stand beside each other, though only some may be on the path."""
    return need("postgres").resolve().with_name(name)


def system_user() -> str:
    """PostgreSQL and PgBouncer refuse to run as root; empty: the current user."""
    if os.geteuid() != 0:
        return ""
    try:
        return pwd.getpwnam(OWNER).pw_name
    except KeyError:
        return "nobody"


def give(folder: Path) -> None:
    """To the user whom the server runs as."""
    user = system_user()
    if user:
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, user)


@functools.cache
def _template() -> Path:
    """Made once per test run: it takes a second or two."""
    folder = run_folder()
    data = folder / "postgres-template"
    with locked(folder / "postgres-template.lock"):
        if not data.exists():
            making = folder / "postgres-template-new"
            shutil.rmtree(making, ignore_errors=True)  # of a part that was killed
            making.mkdir(mode=0o700)
            give(making)
            words = [
                program("initdb"),
                "-D",
                making,
                "-U",
                OWNER,
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C",
                "--no-sync",
            ]
            _as_owner([str(word) for word in words])
            making.rename(data)
    return data


def _copy(template: Path, data: Path) -> None:
    data.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(template, data, dirs_exist_ok=True)
    data.chmod(0o700)


def _as_owner(words: list[str], text: str = "") -> None:
    user = system_user() or None
    done = subprocess.run(words, input=text, capture_output=True, text=True, cwd="/", user=user, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]} failed:\n{done.stdout}{done.stderr}")
