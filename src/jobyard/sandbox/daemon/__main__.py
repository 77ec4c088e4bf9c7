"""python -m jobyard.sandbox.daemon: the daemon with the few options it has."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from jobyard.sandbox.daemon.daemon import DaemonOptions, SandboxDaemon
from jobyard.sandbox.daemon.languages import BadLanguages
from jobyard.sandbox.daemon.parent_watch import SystemdNotifier, when_input_ends
from jobyard.sandbox.daemon.socket_server import SocketInUse, serving
from jobyard.sandbox.protocol import Tier

TESTING = "JOBYARD_SANDBOX_TESTING"  # set: a layer may be left out, to test the others alone
_PRIORITY = -5


async def run(
    options: DaemonOptions, path: Path, uids: Sequence[int] = (), ready: int = -1, *, until_input_ends: bool = False
) -> None:
    """Until a signal asks to stop, or standard input ends."""
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # about twenty for each member
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)  # clocks must be read in time, however busy the programs are
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if until_input_ends:
        when_input_ends(stop.set)
    manager = SystemdNotifier(os.environ)
    sandbox = SandboxDaemon(options)
    try:
        await sandbox.start()
        async with serving(sandbox, path, uids):
            if ready >= 0:
                os.write(ready, b"\n")
                os.close(ready)
            async with manager.served(f"tier {sandbox.state().tier or 'none'}"):
                await stop.wait()
    finally:
        await sandbox.stop()


def _run(work: Coroutine[Any, Any, None]) -> None:
    """On the quicker loop, where it is installed."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        asyncio.run(work)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="jobyard sandboxd", description="Runs untrusted programs for a worker.")
    made.add_argument("--socket", type=Path, required=True, help="where to listen")
    made.add_argument("--min-tier", type=Tier, choices=list(Tier), default=Tier.A, help="refuse to run below this tier")
    made.add_argument("--tier", type=Tier, choices=list(Tier), help="this tier or none, for trials")
    made.add_argument("--slots", type=int, default=os.cpu_count() or 1, help="programs at the same time")
    made.add_argument("--languages", type=Path, help="a languages.yaml instead of the one that comes with it")
    made.add_argument("--pool", type=int, help="at most this many warm members of each kind")
    made.add_argument("--allow-uid", type=int, action="append", default=[], help="who may connect, beside us and root")
    made.add_argument(
        "--without", choices=["seccomp", "namespaces"], action="append", default=[], help=argparse.SUPPRESS
    )
    made.add_argument("--until-input-ends", action="store_true", help="stop when standard input ends")
    made.add_argument("--ready-fd", type=int, default=-1, help="a line is written there when it listens")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    if given.without and not os.environ.get(TESTING):
        sys.stderr.write(f"--without is for tests of the sandbox; it needs {TESTING} to be set\n")
        return 2
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        options = DaemonOptions(
            min_tier=given.tier or given.min_tier,
            tier=given.tier,
            slots=given.slots,
            languages=given.languages,
            pool=given.pool,
            without=tuple(given.without),
        )
        input_ends = given.until_input_ends
        _run(run(options, given.socket, given.allow_uid, given.ready_fd, until_input_ends=input_ends))
    except (BadLanguages, SocketInUse, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
