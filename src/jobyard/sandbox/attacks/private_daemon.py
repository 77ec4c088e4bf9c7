"""A private daemon, for attacks that harm it and for tiers that are not in use."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from jobyard.sandbox.attacks.attack import Layer
from jobyard.sandbox.attacks.honeypot import VARIABLE
from jobyard.sandbox.daemon.languages import load
from jobyard.sandbox.protocol import Tier

MODULE = "jobyard.sandbox.daemon"
TESTING = "JOBYARD_SANDBOX_TESTING"  # required by --without
START_SECONDS = 60.0


class DaemonStartFailed(Exception):
    """The daemon exited, or did not listen in time."""


@dataclass(frozen=True, slots=True)
class PrivateDaemon:
    socket: Path
    secret: str  # a value in its environment that no program may read
    process: subprocess.Popen[bytes]


@asynccontextmanager
async def private_daemon(
    *,
    tier: Tier | None = None,
    without: Layer | None = None,
    slots: int | None = None,
    pool: int | None = None,
    languages: Collection[str] = (),
    file: Path | None = None,
    options: Sequence[str] = (),
    command: Sequence[str] = (sys.executable,),
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> AsyncIterator[PrivateDaemon]:
    """Start a daemon and stop it at exit. `command` runs Python, maybe as another user who owns `folder`.

    Without `languages` it offers all of `file`, or of the package: testing them takes most of its start. `options` are
    more words of its command line.
    """
    with tempfile.TemporaryDirectory(prefix="jobyard-private-") as temporary:
        where = folder or Path(temporary)
        socket = where / f"{secrets.token_hex(4)}.sock"
        words = [*command, "-m", MODULE, "--socket", str(socket), "--until-input-ends"]
        words += ["--tier", tier, "--min-tier", tier] if tier is not None else ["--min-tier", Tier.C]
        words += ["--without", without] if without is not None else []
        words += ["--slots", str(slots)] if slots is not None else []
        words += ["--pool", str(pool)] if pool is not None else []
        if languages:
            known = load(file)
            file = Path(temporary) / "languages.yaml"
            file.write_bytes(msgspec.json.encode({name: known[name] for name in languages}))
        words += ["--languages", str(file)] if file is not None else []
        words += options
        secret = secrets.token_hex(16)
        log = Path(temporary) / "log"
        with log.open("wb") as errors:
            base = os.environ if environment is None else environment
            process = _start(words, {**base, VARIABLE: secret, TESTING: "1"}, errors)
            try:
                await _wait_for_socket(socket, process, log)
                yield PrivateDaemon(socket, secret, process)
            finally:
                _stop(process)


def _start(words: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.PIPE,  # closes with this process
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise DaemonStartFailed(f"cannot start the sandbox daemon: {error.strerror}: {words[0]}") from error


async def _wait_for_socket(socket: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    while not socket.exists():  # noqa: ASYNC240 - a stat of a local file
        if process.poll() is not None or asyncio.get_running_loop().time() > deadline:
            raise DaemonStartFailed(f"the sandbox daemon did not start (exit code {process.poll()}): {_last_line(log)}")
        await asyncio.sleep(0.01)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].removesuffix(".") if lines else "no log"


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
