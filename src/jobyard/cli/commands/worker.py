"""`jobyard worker`: run jobs until stopped, and drain on a signal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import click

from jobyard.app.jobyard import Jobyard
from jobyard.app.process_manager import SLACK_SECONDS
from jobyard.app.sandbox import enable_sandbox
from jobyard.cli.option_flags import setting_flag
from jobyard.cli.session import Session, json_option
from jobyard.config import settings
from jobyard.errors import ConfigurationError
from jobyard.executors.sandbox.program import QUEUE
from jobyard.worker.worker import Worker

if TYPE_CHECKING:
    from jobyard.app.health_server import WorkerHealth

EMPTY_FOR_SECONDS = 0.2
# What a stop may take beyond the shutdown timeout: handlers that ignore cancellation, then closing the store.
LONGEST_END_SECONDS = SLACK_SECONDS + 5.0

Command = Callable[..., Any]


def worker_options(command: Command) -> Command:
    for option in (
        setting_flag(settings.SANDBOX_ENABLED, "--sandbox/--no-sandbox", "sandbox", default=False),
        setting_flag(settings.HEALTH_HOST),
        setting_flag(settings.HEALTH_PORT, type=click.IntRange(1, 65535)),
        setting_flag(settings.SHUTDOWN_TIMEOUT, type=float),
        setting_flag(settings.LEASE_SECONDS, type=float),
        click.option(
            "--queue", "queues", multiple=True, metavar="NAME", help="Only this queue; repeatable.  [default: all]"
        ),
        setting_flag(settings.CONCURRENCY, type=int),
    ):
        command = option(command)
    return command


@click.command()
@worker_options
@click.option("--until-empty", is_flag=True, help="Exit when no job is running or ready to run.")
@click.option(
    "--until-input-ends",
    is_flag=True,
    help="Stop, as by SIGTERM, when standard input ends, so that workers end with their supervisor.",
)
@json_option
@click.pass_obj
def worker(
    session: Session,
    concurrency: int,
    queues: tuple[str, ...],
    lease_seconds: float,
    shutdown_timeout: float,
    health_host: str,
    health_port: int | None,
    sandbox: bool,
    until_empty: bool,
    until_input_ends: bool,
) -> None:
    """Run jobs of your application until stopped.

    SIGTERM or Ctrl-C: claims no more jobs, lets running jobs finish for --shutdown-timeout seconds, then returns them
    to the queue; exit code 0. A second signal returns them at once. With --json, it prints a summary at the end. With
    --sandbox, it also runs submitted programs (queue code); then no application is needed.

    \b
    Example:
      jobyard --app shop.jobs:yard worker --concurrency 8 --queue mail
    """
    yard = worker_app(session, sandbox=sandbox, concurrency=concurrency)
    session.set_up_logs("info", everything=True)
    made = {
        "concurrency": concurrency,
        "queues": queues or default_queues(session),
        "lease": lease_seconds,
        "shutdown_timeout": shutdown_timeout,
    }
    health = None if health_port is None else health_server(yard, health_host, health_port)
    run_loop(_run(session, yard, made, health, until_empty=until_empty, until_input_ends=until_input_ends))


def worker_app(session: Session, *, sandbox: bool, concurrency: int) -> Jobyard:
    """The application that a worker runs; with a sandbox, it may be one without handlers."""
    if not sandbox:
        return session.app()
    yard = session.yard()
    enable_sandbox(yard, session.configuration.sandbox, concurrency)
    return yard


def default_queues(session: Session) -> tuple[str, ...]:
    """Without an application, only programs can run: other queues are left to other workers."""
    return () if session.app_name is not None else (QUEUE,)


def health_server(yard: Jobyard, host: str, port: int) -> WorkerHealth:
    require_packages("Health")
    from jobyard.app.health_server import WorkerHealth  # noqa: PLC0415  # its packages are an extra

    return WorkerHealth(yard, host, port)


async def _run(
    session: Session,
    yard: Jobyard,
    made: dict[str, Any],
    health: WorkerHealth | None,
    *,
    until_empty: bool,
    until_input_ends: bool,
) -> None:
    async with session.opened(yard), session.notify.pinging(), contextlib.AsyncExitStack() as beside:
        worker = yard.worker(**made)
        stop = WorkerStop(worker, lambda: session.notify.stopping(made["shutdown_timeout"] + LONGEST_END_SECONDS))
        if health is not None:
            await beside.enter_async_context(health.serving(worker, stop.is_asked))
        await worker.start()
        takes = ", ".join(made["queues"]) or "all queues"
        session.notify.ready(f"{worker.id}: {takes}, {made['concurrency']} at a time")
        if until_input_ends:
            stop_when_input_ends(stop.ask_once, made["shutdown_timeout"] + SLACK_SECONDS)
        if until_empty:
            watcher = asyncio.create_task(_stop_when_empty(yard, made["queues"], stop))
            await stop.finished()
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
        else:
            await stop.finished()
        if session.as_json:
            session.print_json({"worker": worker.id, "completed": worker.info().completed})


class WorkerStop:
    """First signal: drain. Second: return running jobs at once. Later ones are ignored."""

    def __init__(self, worker: Worker, on_stop: Callable[[], None]) -> None:
        self._worker = worker
        self._on_stop = on_stop
        self._asked = asyncio.Event()
        self._immediate: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.ask)

    def ask(self) -> None:
        if self._asked.is_set() and self._immediate is None:
            self._immediate = self._loop.create_task(self._worker.stop(0))
        self._asked.set()

    def is_asked(self) -> bool:
        return self._asked.is_set()

    def ask_once(self) -> None:
        if not self.is_asked():
            self.ask()

    async def finished(self) -> None:
        """Wait for a signal, or for a stop through `operations.worker_control`, then for the end of the worker."""
        asked, over = self._loop.create_task(self._asked.wait()), self._loop.create_task(self._worker.stopped())
        await asyncio.wait([asked, over], return_when=asyncio.FIRST_COMPLETED)
        for waiting in (asked, over):
            waiting.cancel()
        self._on_stop()
        await self._worker.stop()
        if self._immediate is not None:
            await self._immediate


def stop_when_input_ends(stop: Callable[[], None], seconds: float) -> None:
    """Stop when the supervisor is gone; exit even if the loop is blocked, as no other process would end this one."""
    loop = asyncio.get_running_loop()
    pipe, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # child processes of handlers must not inherit the pipe
    os.close(nothing)

    def watch() -> None:
        while os.read(pipe, 4096):
            pass
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(stop)
        time.sleep(seconds)
        os._exit(1)

    threading.Thread(target=watch, name="jobyard-parent", daemon=True).start()


async def _stop_when_empty(yard: Jobyard, queues: Sequence[str], stop: WorkerStop) -> None:
    while True:
        could_start = await yard.store.wait_for_work(queues, EMPTY_FOR_SECONDS)
        busy = sum(queue.running for queue in await yard.queues() if not queues or queue.name in queues)
        if not busy and not could_start:
            break
        # The worker claims what is waiting; polling without a pause would only slow it down.
        await asyncio.sleep(EMPTY_FOR_SECONDS)
    stop.ask()


def require_packages(what: str) -> None:
    try:
        import fastapi  # noqa: F401, PLC0415
        import httptools  # noqa: F401, PLC0415
        import prometheus_client  # noqa: F401, PLC0415
        import uvicorn  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{what} needs the Python package {error.name}, which is not installed. "
            "Install it with: pip install 'jobyard[server]'"
        ) from error


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run the event loop, on uvloop if it is installed."""
    try:
        import uvloop  # noqa: PLC0415  # an extra
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)
