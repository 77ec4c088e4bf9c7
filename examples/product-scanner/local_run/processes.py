"""The processes of a run: the shop, the server, and a worker for each platform, which is replaced when it dies."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from jobyard.config.settings import ADMIN_TOKEN
from scanner import browser, database
from scanner.app import SHOP
from scanner.shop.catalogue import Catalogue
from scanner.sites import PLATFORMS

EXAMPLE = Path(__file__).resolve().parent.parent
JOBYARD = (sys.executable, "-m", "jobyard")
STOP_SECONDS = 15.0
RECYCLED = 75  # the exit code of a worker that has reached its memory limit
# Short, so that a platform whose worker was killed continues soon; the default is 12.
LEASE_SECONDS = 4


class Settings(NamedTuple):
    folder: Path  # for databases and logs
    store: str
    catalogue: Catalogue
    rendered: tuple[str, ...]  # sites
    stays: bool

    @property
    def database(self) -> Path:
        return self.folder / "products.db"


class Ended(Exception):
    """A process has ended by itself, with its log."""


class Processes:
    """Starts processes in order, and stops them in the opposite order."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._environment = environment(settings)
        self._shop: subprocess.Popen[str] | None = None
        self._server: subprocess.Popen[str] | None = None
        self.workers: dict[str, subprocess.Popen[str]] = {}
        self.token = new_token()

    def start_shop(self) -> str:
        """Returns its address."""
        given = self._settings.catalogue
        size = ("--pages", str(given.pages), "--per-page", str(given.per_page))
        words = ("-m", "scanner.shop", "--seed", str(given.seed), *size)
        self._shop = self._start("shop", (sys.executable, *words), stdout=subprocess.PIPE)
        assert self._shop.stdout is not None
        url = self._shop.stdout.readline().strip()
        if not url:
            raise self._failed("shop")
        self._environment[SHOP] = url
        return url

    def start_server(self) -> str:
        """Returns its address."""
        command = (*JOBYARD, "server", "--port", "0", "--json")
        self._server = self._start("server", command, {ADMIN_TOKEN.variable: self.token}, stdout=subprocess.PIPE)
        assert self._server.stdout is not None
        lines: list[str] = []
        for line in self._server.stdout:
            lines.append(line)
            if line == "}\n":
                return str(json.loads("".join(lines))["url"])
        raise self._failed("server")

    def start_workers(self) -> None:
        for platform in PLATFORMS:
            self._start_worker(platform)

    def _start_worker(self, platform: str) -> None:
        # It stops when its standard input ends, also if this program is killed.
        words = ("worker", "--until-input-ends", "--lease-seconds", str(LEASE_SECONDS), "--shutdown-timeout", "5")
        variables = {"SERVICE_NAME": platform, "WORKER_PLATFORMS": platform}
        worker = self._start(platform, (*JOBYARD, *words), variables, stdin=subprocess.PIPE)
        self.workers[platform] = worker
        (self._settings.folder / f"{platform}.pid").write_text(f"{worker.pid}\n")

    def check(self) -> None:
        """Start killed workers again, as Docker and systemd do. Raises Ended if a process cannot run."""
        if self._server is not None and self._server.poll() is not None:
            raise self._failed("server")
        for platform, worker in self.workers.items():
            code = worker.poll()
            if code is not None:
                if code > 0 and code != RECYCLED:
                    raise self._failed(platform)
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                self._say(f"The worker of {platform} {how}. Another one starts, and continues its job.")
                self._start_worker(platform)

    def stop(self) -> None:
        """Workers first: they return unfinished jobs to the store. A second Ctrl-C ends everything at once."""
        others = [process for process in (self._server, self._shop) if process is not None]
        try:
            end([*self.workers.values()])
            end(others)
        except KeyboardInterrupt:
            for process in (*self.workers.values(), *others):
                process.kill()

    def _start(
        self,
        name: str,
        command: Sequence[str],
        variables: Mapping[str, str] | None = None,
        *,
        stdin: int = subprocess.PIPE,
        stdout: int | None = None,
    ) -> subprocess.Popen[str]:
        with self._log(name) as log:
            return subprocess.Popen(
                command,
                cwd=EXAMPLE,
                env={**self._environment, **(variables or {})},
                stdin=stdin,
                stdout=log if stdout is None else stdout,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C reaches this program only, which stops them in order
                preexec_fn=end_with_parent,  # noqa: PLW1509  # no threads run yet
            )

    @contextlib.contextmanager
    def _log(self, name: str) -> Iterator[IO[str]]:
        with (self._settings.folder / f"{name}.log").open("a") as log:
            yield log

    def _failed(self, name: str) -> Ended:
        log = (self._settings.folder / f"{name}.log").read_text().strip()
        what = f"worker of {name}" if name in PLATFORMS else name
        return Ended(f"The {what} has ended. Its log says:\n{log or 'nothing'}")


def environment(settings: Settings) -> dict[str, str]:
    """That of this program, without settings of another jobyard."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("JOBYARD_")}
    ours.pop("WORKER_PLATFORMS", None)
    ours["JOBYARD_STORE"] = settings.store
    ours["JOBYARD_CONFIG"] = str(EXAMPLE / "jobyard.yaml")
    ours[database.PATH] = str(settings.database)
    ours[browser.RENDER] = ",".join(settings.rendered)
    return ours


def new_token() -> str:
    """The first admin token of the server: in production, from a file that JOBYARD_ADMIN_TOKEN_FILE names."""
    return f"jy_{secrets.token_hex(6)}_{secrets.token_hex(32)[:43]}"


def end_with_parent() -> None:
    """On Linux, a process also ends if this program is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def end(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
