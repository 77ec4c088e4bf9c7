"""`jobyard top`: a live view of queues, groups, workers and running jobs."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import sys
from collections.abc import Iterator, Sequence

import click
from rich.console import Console
from rich.live import Live

from jobyard.app.process_manager import wait_up_to
from jobyard.cli.render.output import echo
from jobyard.cli.render.top import frame, lines
from jobyard.cli.session import Session, async_command
from jobyard.cli.snapshot import Sampler
from jobyard.operations.protocol import Operations

LIVE_SECONDS = 0.25
PLAIN_SECONDS = 2.0


@click.command()
@click.option("--once", is_flag=True, help="Print once and exit.")
@click.option(
    "--interval",
    type=click.FloatRange(0.05, 3600),
    metavar="SECONDS",
    help="How often to refresh.  [default: 0.25; 2 without a terminal]",
)
@async_command
async def top(session: Session, once: bool, interval: float | None) -> None:
    """Watch queues, groups, workers and running jobs live.

    Completed and failed of a queue count only the jobs that retention keeps; completed of a worker counts since its
    start. q or Ctrl-C quits. Without a terminal it prints plain lines; with --json, one snapshot.

    \b
    Example:
      jobyard top
      jobyard top --once
    """
    async with session.operations() as operations:
        sampler = Sampler(operations)
        if session.as_json:
            session.print_json(await sampler.sample())
        elif once and session.is_terminal:
            session.console.print(frame(await sampler.sample(), operations.url, (), session.console))
        elif once:
            _print_lines(lines(await sampler.sample()))
        else:
            stop = asyncio.Event()
            with stop_on_signals(stop):
                await watch(operations, session.console, stop, interval)


async def watch(
    operations: Operations,
    console: Console,
    stop: asyncio.Event,
    interval: float | None = None,
    footer: Sequence[str] = (),
) -> None:
    """Show snapshots until `stop` is set."""
    sampler = Sampler(operations)
    if not console.is_terminal:
        while not stop.is_set():
            _print_lines(lines(await sampler.sample()))
            await wait_up_to(interval or PLAIN_SECONDS, stop)
        return
    try:
        with stop_on_key("q", stop), Live(console=console, screen=True, auto_refresh=False) as live:
            while not stop.is_set():
                shown = frame(await sampler.sample(), operations.url, sampler.history, console, footer)
                live.update(shown, refresh=True)
                await wait_up_to(interval or LIVE_SECONDS, stop)
    except OSError as error:
        if error.errno != errno.EIO:  # the terminal has gone, so nothing can be shown or restored
            raise


def _print_lines(found: Iterator[str]) -> None:
    for line in found:
        echo(line)
    sys.stdout.flush()


@contextlib.contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup asks
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def stop_on_key(key: str, stop: asyncio.Event) -> Iterator[None]:
    """Read single keys without echo while the view is shown; restores the terminal afterwards."""
    if not sys.stdin.isatty():
        yield
        return
    import termios  # noqa: PLC0415  # only where there is a terminal
    import tty  # noqa: PLC0415

    loop, file = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(file)

    def pressed() -> None:
        try:
            typed = os.read(file, 64)
        except OSError:
            typed = b""
        # Nothing: the terminal has gone. It stays readable, so without an end this would run forever.
        if not typed or key in typed.decode(errors="replace").lower():
            loop.remove_reader(file)
            stop.set()

    tty.setcbreak(file)
    loop.add_reader(file, pressed)
    try:
        yield
    finally:
        loop.remove_reader(file)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(file, termios.TCSADRAIN, before)
