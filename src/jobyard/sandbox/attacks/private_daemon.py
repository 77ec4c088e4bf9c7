"""A daemon of one's own, for attacks that do it harm and for tiers that are not in use."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from jobyard.sandbox.attacks.attack import Layer
from jobyard.sandbox.attacks.honeypot import VARIABLE
from jobyard.sandbox.protocol import Tier

MODULE = "jobyard.sandbox.daemon"
TESTING = "JOBYARD_SANDBOX_TESTING"  # without it no layer can be left out
START_SECONDS = 60.0


class DaemonStartFailed(Exception):
    """The daemon ended, or its socket never came."""


@dataclass(frozen=True, slots=True)
class PrivateDaemon:
    socket: Path
    secret: str  # in its environment
    process: subprocess.Popen[bytes]


@asynccontextmanager
async def private_daemon(
    *,
    tier: Tier | None = None,
    without: Layer | None = None,
    slots: int | None = None,
    pool: int | None = None,
    command: Sequence[str] = (sys.executable,),
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> AsyncIterator[PrivateDaemon]:
    """`command` runs Python, as another user if need be; `folder` is then one that this user may write to."""
    with tempfile.TemporaryDirectory(prefix="jobyard-own-") as temporary:
        place = folder or Path(temporary)
        socket = place / f"{secrets.token_hex(4)}.sock"
        words = [*command, "-m", MODULE, "--socket", str(socket), "--until-input-ends"]
        words += ["--tier", tier, "--min-tier", tier] if tier is not None else ["--min-tier", Tier.C]
        words += ["--without", without] if without is not None else []
        words += ["--slots", str(slots)] if slots is not None else []
        words += ["--pool", str(pool)] if pool is not None else []
        secret = secrets.token_hex(16)
        log = Path(temporary) / "log"
        with log.open("wb") as errors:
            around = os.environ if environment is None else environment
            process = _start(words, {**around, VARIABLE: secret, TESTING: "1"}, errors)
            try:
                await _wait_for(socket, process, log)
                yield PrivateDaemon(socket, secret, process)
            finally:
                _end(process)


def _start(words: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.PIPE,  # held while we live
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise DaemonStartFailed(f"the sandbox daemon cannot be started: {error.strerror}: {words[0]}") from error


async def _wait_for(socket: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    while not socket.exists():  # noqa: ASYNC240 - a look at a file
        if process.poll() is not None or asyncio.get_running_loop().time() > deadline:
            raise DaemonStartFailed(f"the sandbox daemon did not start (exit code {process.poll()}): {_last(log)}")
        await asyncio.sleep(0.01)


def _last(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
