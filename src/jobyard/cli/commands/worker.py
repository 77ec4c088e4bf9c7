"""`jobyard worker`: run jobs until stopped, and drain on a signal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from jobyard.app.jobyard import Jobyard
from jobyard.app.process_manager import METRICS_PIPE, SLACK_SECONDS
from jobyard.app.sandbox import enable_sandbox
from jobyard.cli.option_flags import setting_flag
from jobyard.cli.session import Session, json_option
from jobyard.cli.worker_replacement import memory_limit as chosen_limit
from jobyard.cli.worker_replacement import memory_option, replace_process, require_memory
from jobyard.config import settings
from jobyard.errors import ConfigurationError
from jobyard.executors.sandbox.program import QUEUE
from jobyard.operations.webhooks.executor import QUEUE as WEBHOOKS
from jobyard.worker.claimer import EventEmitter
from jobyard.worker.memory import MemoryMonitor
from jobyard.worker.worker import Worker, worker_name

if TYPE_CHECKING:
    from jobyard.app.health_server import WorkerHealth
    from jobyard.app.worker_metrics import MetricsReporter, WorkerMetrics

EMPTY_FOR_SECONDS = 0.2
# What a stop may take beyond the shutdown timeout: handlers that ignore cancellation, then closing the store.
LONGEST_END_SECONDS = SLACK_SECONDS + 5.0

Command = Callable[..., Any]
T = TypeVar("T")


def worker_options(command: Command) -> Command:
    for option in (
        setting_flag(settings.SANDBOX_ENABLED, "--sandbox/--no-sandbox", "sandbox", default=False),
        setting_flag(settings.HEALTH_HOST),
        setting_flag(settings.HEALTH_PORT, type=click.IntRange(1, 65535)),
        setting_flag(settings.SHUTDOWN_TIMEOUT, type=float),
        setting_flag(settings.LEASE_SECONDS, type=float),
        setting_flag(settings.MEMORY_LIMIT, metavar="SIZE", callback=memory_option),
        click.option(
            "--queue",
            "queues",
            multiple=True,
            metavar="NAME",
            help="Only this queue; repeatable.  [default: the queues of WORKER_PLATFORMS if set, else all]",
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
    help="Stop as on SIGTERM when standard input closes. A supervisor holds it open, so its workers end with it.",
)
@click.option(METRICS_PIPE, type=int, hidden=True, help="The descriptor of the pipe for metrics; set by `jobyard up`.")
@json_option
@click.pass_obj
def worker(
    session: Session,
    concurrency: int,
    queues: tuple[str, ...],
    lease_seconds: float,
    memory_limit: int | None,
    shutdown_timeout: float,
    health_host: str,
    health_port: int | None,
    sandbox: bool,
    until_empty: bool,
    until_input_ends: bool,
    metrics_pipe: int | None,
) -> None:
    """Run jobs of your application until stopped.

    SIGTERM or Ctrl-C: claims no more jobs, lets running jobs finish for --shutdown-timeout seconds, then returns them
    to the queue; exit code 0. A second signal returns them at once. With --json, it prints a summary at the end. With
    --sandbox, it also runs submitted programs (queue code); then no application is needed.

    Near --memory-limit it claims no more jobs, lets running jobs finish, and starts again with the same command; with
    --until-input-ends it exits with code 75 instead, and its supervisor starts it. Above the limit, jobs that are still
    running have --shutdown-timeout seconds left before they are returned to the queue.

    \b
    Example:
      jobyard --app shop.jobs:yard worker --concurrency 8 --queue mail
    """
    yard = worker_app(session, sandbox=sandbox, concurrency=concurrency)
    session.set_up_logs("info", everything=True)
    if not until_input_ends:  # else its supervisor has done it
        session.workflow_catalog(yard, logs=True)  # only to log what is invalid: runs carry their definitions
    limit = chosen_limit(session, memory_limit, queues)
    if limit is not None:
        require_memory(limit)
    made = {
        "concurrency": concurrency,
        "queues": queues or default_queues(session),
        "lease": lease_seconds,
        "shutdown_timeout": shutdown_timeout,
    }
    service = session.configuration.log.service_name
    if service is not None:
        made["name"] = worker_name(service)
    measured = None if metrics_pipe is health_port is None else worker_metrics(yard)
    health = None if health_port is None else health_server(yard, health_host, health_port, measured)
    reporter = None if metrics_pipe is None or measured is None else metrics_reporter(measured, metrics_pipe)
    parts = WorkerExtras(health, reporter, limit)
    running = _run(session, yard, made, parts, until_empty=until_empty, until_input_ends=until_input_ends)
    if run_loop(running):
        replace_process(session, is_supervised=until_input_ends)


def worker_app(session: Session, *, sandbox: bool, concurrency: int) -> Jobyard:
    """The application that a worker runs; with a sandbox, it may be one without handlers."""
    if not sandbox:
        return session.app()
    yard = session.yard()
    enable_sandbox(yard, session.configuration.sandbox, concurrency)
    return yard


def default_queues(session: Session) -> tuple[str, ...]:
    """Without an application, only programs can run: other queues are left to other workers."""
    return () if session.app_name is not None else (QUEUE, WEBHOOKS)


def worker_metrics(yard: Jobyard) -> WorkerMetrics:
    require_packages("Health")
    from jobyard.app.worker_metrics import WorkerMetrics  # noqa: PLC0415  # its packages are an extra

    return WorkerMetrics(yard)


def metrics_reporter(measured: WorkerMetrics, pipe: int) -> MetricsReporter:
    from jobyard.app.worker_metrics import MetricsReporter  # noqa: PLC0415  # its packages are an extra

    return MetricsReporter(measured, pipe)


def health_server(yard: Jobyard, host: str, port: int, measured: WorkerMetrics | None = None) -> WorkerHealth:
    measured = measured or worker_metrics(yard)
    from jobyard.app.health_server import WorkerHealth  # noqa: PLC0415  # its packages are an extra

    return WorkerHealth(yard, measured, host, port)


class WorkerExtras(NamedTuple):
    """What runs beside a worker in its process."""

    health: WorkerHealth | None
    reporter: MetricsReporter | None
    memory_limit: int | None


async def _run(
    session: Session,
    yard: Jobyard,
    made: dict[str, Any],
    parts: WorkerExtras,
    *,
    until_empty: bool,
    until_input_ends: bool,
) -> bool:
    """Whether the worker stopped to be replaced."""
    limit = parts.memory_limit
    async with session.opened(yard), session.notify.pinging(), contextlib.AsyncExitStack() as beside:
        worker = yard.worker(**made)
        monitor = None if limit is None else MemoryMonitor(worker, limit, EventEmitter(yard.observer))

        def is_replaced() -> bool:
            return monitor is not None and monitor.is_draining and not stop.is_asked()

        def on_stop() -> None:
            if not is_replaced():  # to systemd the service goes on
                session.notify.stopping(made["shutdown_timeout"] + LONGEST_END_SECONDS)

        stop = WorkerStop(worker, on_stop)
        if parts.health is not None:
            await beside.enter_async_context(parts.health.serving(worker, stop.is_asked))
        if parts.reporter is not None:
            await beside.enter_async_context(parts.reporter.reporting())
        await worker.start()
        takes = ", ".join(made["queues"]) or "all queues"
        session.notify.ready(f"{worker.id}: {takes}, {made['concurrency']} at a time")
        if until_input_ends:
            stop_when_input_ends(stop.ask_once, made["shutdown_timeout"] + SLACK_SECONDS)
        if until_empty:
            await beside.enter_async_context(running_beside(_stop_when_empty(yard, made["queues"], stop)))
        if monitor is not None:
            await beside.enter_async_context(running_beside(monitor.run()))
        await stop.finished()
        if session.as_json:
            session.print_json({"worker": worker.id, "completed": worker.info().completed})
        return is_replaced()


@contextlib.asynccontextmanager
async def running_beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run it until the block ends."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


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
        import httptools  # noqa: F401, PLC0415
        import prometheus_client  # noqa: F401, PLC0415
        import starlette  # noqa: F401, PLC0415
        import uvicorn  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{what} needs the Python package {error.name}, which is not installed. "
            "Install it with: pip install 'jobyard[server]'"
        ) from error


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run the event loop, on uvloop if it is installed."""
    try:
        import uvloop  # noqa: PLC0415  # an extra
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)
