"""The session of a command: configuration, store, app, server, output, and the runner of async commands."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click
from rich.console import Console

from jobyard.app.declarations import declarations_of, job_factory
from jobyard.app.jobyard import Jobyard
from jobyard.app.sandbox import suggest_queue
from jobyard.app.tracing import set_up_sdk
from jobyard.cli.app_loader import load_app
from jobyard.cli.logging import set_up_logs
from jobyard.cli.option_flags import with_flags
from jobyard.cli.render.json import as_json
from jobyard.cli.render.output import echo, print_markup, print_table, relative
from jobyard.cli.require_store import require_database
from jobyard.cli.systemd import SystemdNotifier
from jobyard.cli.target import ServerTarget
from jobyard.cli.workflow_folder import load_catalog
from jobyard.config import LoadedConfig
from jobyard.config.environment import is_generic
from jobyard.config.settings import LOG_LEVEL
from jobyard.config.store_factory import make_sharded_store, make_store
from jobyard.domain.instant import Instant, rfc3339
from jobyard.domain.text import visible
from jobyard.errors import BadOption, ConfigurationError
from jobyard.executors.sandbox.program import QUEUE
from jobyard.github.tickets import QUEUE as RUNNERS
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.local import LocalOperations
from jobyard.operations.protocol import Operations
from jobyard.operations.workflow_catalog import WorkflowCatalog
from jobyard.ports.store import Store

if TYPE_CHECKING:
    from jobyard.client import Client

# A person waits for the answer: fail sooner than the client of a program does.
PATIENCE_SECONDS = 5.0
WORKER_OPTIONS = ("concurrency", "queues", "lease_seconds", "shutdown_timeout", "health_host")
P = ParamSpec("P")
T = TypeVar("T")


class Session:
    def __init__(
        self, found: LoadedConfig, config_errors: Sequence[str] = (), server: ServerTarget | None = None
    ) -> None:
        self.found = found
        self.config_errors = config_errors  # only `jobyard check` runs with any
        self.server = server  # commands go through it, if one was named
        self.configuration = found.configuration
        self.store_url = self.configuration.store.url
        self.app_name = self.configuration.worker.app
        self.store_is_given = found.has("store", "url")
        # By a name that other programs use too: it yields to a store that the app names itself.
        self.store_is_generic = is_generic(found.names_store_by(), os.environ)
        self.as_json = False
        self.absolute = False  # times are shown as such, not as their distance from now
        self.is_service = False  # set by subcommands that run until they are stopped
        self.notify = SystemdNotifier()  # created first, so that no child process inherits the variables
        # rich decides on colour and width (NO_COLOR, COLUMNS); off a terminal it prints plain text.
        self.console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())

    @property
    def is_terminal(self) -> bool:
        return self.console.is_terminal

    def yard(self) -> Jobyard:
        """The application if one is named, else one without handlers; not yet opened."""
        self.require_store()
        if self.app_name is not None:
            return self.app()
        yard = Jobyard(store=self.store())
        self._prefer(yard)
        return yard

    def app(self) -> Jobyard:
        """The application with its handlers, not yet opened."""
        self.require_store()
        if self.app_name is None:
            raise ConfigurationError("This command needs your application. Pass --app, or set JOBYARD_APP.")
        yard = load_app(self.app_name)
        yard.name = yard.name or self.app_name
        self._prefer(yard)
        return yard

    def _prefer(self, yard: Jobyard) -> None:
        declarations_of(yard).configure_queues(self.configuration.all_queues())
        if self.configuration.runners.is_configured:
            yard.excluded_queues = (RUNNERS,)  # the manager has a worker of its own for these
        if self.configuration.sandbox.enabled or QUEUE in self.configuration.queues:
            # The server and its workers must write the same settings, whichever starts last.
            suggest_queue(yard, self.configuration.sandbox.slots or self.configuration.worker.concurrency)

    @asynccontextmanager
    async def opened(self, yard: Jobyard) -> AsyncIterator[None]:
        """Open the application, on its own store or on the given one, and configure its queues."""
        with self._traced(yard):
            if self.app_name is not None and (self._overrides(yard) or self.configuration.store.queues):
                async with yard.using(self._store(yard)):
                    yield
            else:
                async with yard:
                    yield

    @contextmanager
    def _traced(self, yard: Jobyard) -> Iterator[None]:
        """Trace if the configuration says so; spans are flushed at the end."""
        tracing = self.configuration.tracing
        if not tracing.enabled:
            yield
            return
        name = click.get_current_context().info_name
        end = set_up_sdk("jobyard-server" if name == "up" else f"jobyard-{name}")
        yard.trace(as_link=tracing.as_link)
        try:
            yield
        finally:
            end()

    def require_store(self) -> None:
        """For commands that work only on a store."""
        if self.server is not None and self.server.is_alone:
            raise self.server.unsupported(click.get_current_context().command_path)

    def store(self) -> Store:
        self.require_store()
        return self._store(self._app_with_store())

    def main_store(self) -> Store:
        """The store of the queues that have none of their own."""
        self.require_store()
        return self._main_store(self._app_with_store())

    def _app_with_store(self) -> Jobyard | None:
        # An app that cannot be imported must not keep commands from a store that is named on purpose.
        needs_app = self.app_name is not None and (not self.store_is_given or self.store_is_generic)
        return load_app(self.app_name) if needs_app and self.app_name is not None else None

    def _overrides(self, yard: Jobyard) -> bool:
        """Whether the configuration names another store than that of the app, with more weight."""
        return self.store_is_given and not (self.store_is_generic and yard.names_store)

    def _store(self, app: Jobyard | None) -> Store:
        """The store of the app unless another is given; single queues may have their own."""
        store, queues = self._main_store(app), self.configuration.store.queues
        is_own = app is not None and store is app.store
        return store if not queues else make_sharded_store(store, queues, None if is_own else self.store_url)

    def _main_store(self, app: Jobyard | None) -> Store:
        return make_store(self.store_url) if app is None or self._overrides(app) else app.store

    @asynccontextmanager
    async def opened_store(self) -> AsyncIterator[Store]:
        """The chosen store, which must exist; nothing that an application declares is written to it."""
        store = self.store()
        await require_database(store)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def operations(self, *, creates_store: bool = False, needs_app: bool = False) -> AsyncIterator[Operations]:
        """Through the server if one is named, else on the store.

        `creates_store`: the command may be the first one on a new store. `needs_app`: on a store, handlers check it.
        """
        if self.server is not None:
            from jobyard.client.operations import RemoteOperations  # noqa: PLC0415  # its package is an extra

            async with self.client() as client:
                yield RemoteOperations(client)
        elif creates_store or needs_app:
            yard = self.app() if needs_app else self.yard()
            async with self.opened(yard):
                yield self._local(yard.store)
        else:
            async with self.opened_store() as store:
                yield self._local(store)

    def client(self) -> Client:
        from jobyard.client import Client  # noqa: PLC0415  # its package is an extra

        assert self.server is not None
        # Without a token, not with that of the environment, if only a generic name led to this address.
        token = "" if self.server.is_generic else None
        return Client(self.server.url, token, patience=PATIENCE_SECONDS)

    def _local(self, store: Store) -> Operations:
        shortest = self.configuration.scheduler.shortest_interval_seconds
        return LocalOperations(
            store, self.job_factory, shortest_interval_seconds=shortest, make_workflows=self.workflow_catalog
        )

    def job_factory(self) -> JobFactory:
        """By the handlers of the application; without one, every kind is accepted."""
        return JobFactory() if self.app_name is None else job_factory(self.app(), has_app=True)

    def workflow_catalog(self, app: Jobyard | None = None, *, logs: bool = False) -> WorkflowCatalog:
        """The workflow files, checked by the handlers of the application if there is one.

        With `logs`, the problems of those that are invalid are logged.
        """
        if app is None and self.app_name is not None:
            app = self.app()
        return load_catalog(self.configuration, app if self.app_name is not None else None, logs=logs)

    def set_up_logs(self, usual: str = LOG_LEVEL.default, *, everything: bool = False) -> None:
        log = self.configuration.log
        as_json = log.format == "json"
        set_up_logs(log.level, usual, everything=everything, as_json=as_json, service_name=log.service_name)

    def defaults(self) -> dict[str, dict[str, Any]]:
        """Defaults of options from the configuration, by command."""
        worker, server = self.configuration.worker, self.configuration.server
        run = {word: getattr(worker, word) for word in WORKER_OPTIONS}
        run["queues"] = worker.queues or worker.platforms  # the flag overrides both
        if worker.health_port is not None:
            run["health_port"] = worker.health_port
        if worker.memory_limit is not None:
            run["memory_limit"] = worker.memory_limit
        listen = {"host": server.host, "port": server.port}
        of_scheduler = self.configuration.scheduler
        health: dict[str, Any] = {"health_host": of_scheduler.health_host}
        if of_scheduler.health_port is not None:
            health["health_port"] = of_scheduler.health_port
        manager = {word: run[word] for word in ("health_host", "health_port") if word in run}
        run["sandbox"] = self.configuration.sandbox.enabled
        up = run | listen | {"processes": worker.processes, "scheduler": of_scheduler.enabled}
        return {"worker": run, "server": listen, "up": up, "scheduler": health, "runners": {"manager": manager}}

    def moment(self, instant: Instant | None, now: Instant) -> str:
        """An instant in a table: relative, or absolute with --absolute."""
        if instant is None:
            return "never"
        return rfc3339(instant) if self.absolute else relative(instant, now)

    def print_json(self, value: Any) -> None:
        echo(as_json(value))

    def print_table(self, document: Any, headings: Sequence[str], rows: Iterable[Sequence[str]], empty: str) -> None:
        """Print rows of rich markup; with --json, the document."""
        if self.as_json:
            self.print_json(document)
        else:
            print_table(self.console, headings, rows, empty)

    def report(self, document: Any, text: str) -> None:
        """Print a line; with --json, the document."""
        echo(as_json(document) if self.as_json else text)

    def print_markup(self, markup: str) -> None:
        """Print rich markup; text from users must be escaped."""
        print_markup(self.console, markup)

    def echo(self, text: str) -> None:
        """Print a line, except with --json."""
        if not self.as_json:
            echo(text)

    def echo_error(self, text: str) -> None:
        echo(text, err=True)

    def confirm(self, question: str, *, yes: bool) -> None:
        if yes:
            return
        if not sys.stdin.isatty():
            raise click.UsageError(f"{question} Not a terminal: pass --yes.")
        click.confirm(visible(question), abort=True, err=True)


def _wants_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.find_root().obj.as_json = True


def _wants_absolute(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.find_root().obj.absolute = True


absolute_option = click.option(
    "--absolute",
    is_flag=True,
    expose_value=False,
    callback=_wants_absolute,
    help="Show absolute times, in UTC, instead of relative ones.",
)
json_option = click.option("--json", is_flag=True, expose_value=False, callback=_wants_json, help="Print JSON.")


def async_command(function: Callable[Concatenate[Session, P], Awaitable[T]]) -> Callable[P, T]:
    """Run a coroutine as a command: pass it the session, and add --json."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        context = click.get_current_context()
        session = context.find_object(Session)
        assert session is not None

        async def body() -> T:
            return await function(session, *args, **kwargs)

        try:
            return asyncio.run(body())
        except BadOption as error:
            with_flags(error, context.command)
            raise

    return json_option(run)
