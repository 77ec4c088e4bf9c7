"""Entry point of the daemon: python -m jobyard.sandbox.daemon."""

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
from jobyard.sandbox.daemon.parent_watch import DaemonNotifier, on_stdin_closed
from jobyard.sandbox.daemon.socket_server import CannotListen, make_folder, serve
from jobyard.sandbox.protocol import Tier

TESTING = "JOBYARD_SANDBOX_TESTING"  # if set, --without is allowed
_PRIORITY = -5


async def run(
    options: DaemonOptions, path: Path, uids: Sequence[int] = (), ready: int = -1, *, until_input_ends: bool = False
) -> None:
    """Serve until SIGINT, SIGTERM or, with `until_input_ends`, the end of standard input."""
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # a box takes about twenty
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)  # otherwise busy programs delay the timers that limit them
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if until_input_ends:
        on_stdin_closed(stop.set)
    make_folder(path, uids)
    systemd = DaemonNotifier(os.environ)
    daemon = SandboxDaemon(options)
    try:
        await daemon.start()
        async with serve(daemon, path, uids):
            if ready >= 0:
                os.write(ready, b"\n")
                os.close(ready)
            async with systemd.running(f"tier {daemon.state().tier or 'none'}"):
                await stop.wait()
    finally:
        await daemon.stop()


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop if it is installed."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        asyncio.run(work)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="jobyard sandboxd", description="Run untrusted programs for a worker.")
    parser.add_argument("--socket", type=Path, required=True, help="Unix socket to listen at")
    parser.add_argument(
        "--min-tier",
        type=Tier,
        choices=list(Tier),
        default=Tier.A,
        help="reject every run if only a lower tier is available",
    )
    parser.add_argument("--tier", type=Tier, choices=list(Tier), help="use only this tier, for trials")
    parser.add_argument("--slots", type=int, default=os.cpu_count() or 1, help="number of concurrent runs")
    parser.add_argument("--languages", type=Path, help="languages.yaml to use instead of the built-in one")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="offer this language only; repeatable"
    )
    parser.add_argument("--pool", type=int, help="maximum size of each warm pool")
    parser.add_argument("--unix-sockets", action="store_true", help="let programs create Unix stream sockets")
    parser.add_argument(
        "--tcp-sockets", type=int, default=0, metavar="N", help="let programs connect over TCP with at most N sockets"
    )
    parser.add_argument(
        "--allow-uid",
        type=int,
        action="append",
        default=[],
        help="user id that may connect, besides this user and root",
    )
    parser.add_argument(
        "--without", choices=["seccomp", "namespaces"], action="append", default=[], help=argparse.SUPPRESS
    )
    parser.add_argument("--until-input-ends", action="store_true", help="stop when standard input closes")
    parser.add_argument("--ready-fd", type=int, default=-1, help="descriptor to write a newline to when listening")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    given = build_parser().parse_args(arguments)
    if given.without and not os.environ.get(TESTING):
        sys.stderr.write(f"--without is for tests of the sandbox: set {TESTING} to allow it.\n")
        return 2
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        options = DaemonOptions(
            min_tier=given.tier or given.min_tier,
            tier=given.tier,
            slots=given.slots,
            languages=given.languages,
            only=tuple(given.only),
            pool=given.pool,
            unix_sockets=given.unix_sockets,
            tcp_sockets=given.tcp_sockets,
            without=tuple(given.without),
        )
        input_ends = given.until_input_ends
        _run(run(options, given.socket, given.allow_uid, given.ready_fd, until_input_ends=input_ends))
    except (BadLanguages, CannotListen, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
