"""The Python API: declare queues and handlers, enqueue jobs, run workers, query and control."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, Unpack, overload

from jobyard.app import canvas
from jobyard.app.canvas import Link
from jobyard.app.cron import CronDecorator, declare, origin_of
from jobyard.app.declarations import Declarations
from jobyard.app.executors import make_executor
from jobyard.app.handle import JobHandle
from jobyard.app.job_verbs import JobVerbs
from jobyard.app.keyword_hints import suggest_keywords
from jobyard.app.queue_verbs import QueueVerbs
from jobyard.app.schedule_verbs import ScheduleVerbs
from jobyard.app.sync import Blocking
from jobyard.app.task import HandlerOptions, JobDecorator, Task, WorkflowDecorator
from jobyard.app.tracing import make_tracing
from jobyard.config.environment_store import store_of_environment, warn_of_other_store
from jobyard.config.sections import MAX_CONCURRENCY
from jobyard.config.store_factory import make_store
from jobyard.domain import options
from jobyard.domain.job_options import JobOptions, Seconds
from jobyard.domain.lease import DEFAULT_LEASE_SECONDS
from jobyard.errors import BadInput, BadOption, NotPossible
from jobyard.executors.python.caller_transaction import driver_connection
from jobyard.executors.python.context import BlockingContext, Context
from jobyard.executors.python.payload import MAX_PAYLOAD_BYTES
from jobyard.executors.python.prepared_job import PreparedJob
from jobyard.executors.workflow.context import WorkflowContext
from jobyard.live_events.publisher import LiveEventPublisher
from jobyard.observability.composite import CompositeObserver
from jobyard.observability.logs import LogObserver
from jobyard.operations import queue_settings
from jobyard.operations.schedule_options import CronOptions
from jobyard.operations.schedules import SHORTEST_INTERVAL_SECONDS, Schedules
from jobyard.ports.clock import Clock
from jobyard.ports.executor import Executor
from jobyard.ports.observer import Observer, WorkerService
from jobyard.ports.store import Store
from jobyard.scheduler.scheduler import Scheduler
from jobyard.worker.worker import Worker, worker_name

if TYPE_CHECKING:
    from jobyard.app.sandbox import SandboxFactory
    from jobyard.observability.tracing import Tracing

P = ParamSpec("P")
R = TypeVar("R")
DEFAULT_STORE = "sqlite:///jobs.db"


class Jobyard(JobVerbs, QueueVerbs, ScheduleVerbs):
    """The jobs of one application. `async with yard:` opens the store and applies the declared queues."""

    def __init__(
        self,
        url: str | None = None,
        *,
        clock: Clock | None = None,
        observer: Observer | None = None,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        store: Store | None = None,
        name: str = "",
    ) -> None:
        """Without a URL, the store is that of JOBYARD_STORE, else sqlite:///jobs.db.

        `name` is the name of the application; it marks the schedules that the application declares.
        """
        self.name = name
        self.clock = clock  # of the store; None: the system clock
        self.excluded_queues: tuple[str, ...] = ()  # not claimed by workers that take all queues
        self.sandbox: SandboxFactory | None = None  # set: workers also run submitted programs
        self._tracing: Tracing | None = None
        self.names_store = url is not None or store is not None
        own_url = url if url is not None else store_of_environment() or DEFAULT_STORE
        self._url = own_url if store is None else None
        self._is_own_store = True  # not another one, inside `using`
        self._use(make_store(own_url, clock) if store is None else store)
        self.max_payload_bytes = max_payload_bytes
        self.observer: Observer = observer or LogObserver()
        self._declarations = Declarations(max_payload_bytes)
        self._depth = 0
        self._opening: asyncio.Task[None] | None = None
        self._process = 0  # that opened it
        self._loop: asyncio.AbstractEventLoop | None = None  # in which it is open
        self._inherited: list[object] = []  # what the parent of a forked process had open

    def _use(self, store: Store) -> None:
        self.store = store if self._tracing is None else self._tracing.store(store)

    def trace(self, provider: Any = None, *, as_link: bool = False) -> None:
        """Record OpenTelemetry spans from enqueue to handler, with the global provider or this one.

        With `as_link` the span of a handler starts a new trace with a link to the enqueue.
        """
        self._tracing = make_tracing(provider, as_link=as_link)
        self._use(self.store)

    # Declare

    @suggest_keywords
    def queue(
        self,
        name: str,
        *,
        max_running: int | None = None,
        max_per_group: int | None = None,
        max_waiting: int | None = None,
        max_waiting_per_group: int | None = None,
        keep_completed: int | None = None,
        keep_failed: int | None = None,
        keep_completed_for: Seconds | None = None,
        keep_failed_for: Seconds | None = None,
        keep_at_most: int | None = None,
    ) -> None:
        """Declare the settings of a queue; they are written to the store when the yard opens.

        Settings that an operator changed stay as they are until they are reset (`jobyard limits reset`).

        By default there is no limit. The last 100 completed and 50 failed jobs are kept (`keep_completed`,
        `keep_failed`), and besides these all that are younger than an hour (completed, `keep_completed_for`) or seven
        days (failed or cancelled, `keep_failed_for`); 0 keeps by number only. A queue holds at most `keep_at_most`
        finished jobs (100,000) beyond those numbers; what that removes early is logged and counted.
        """
        given = {word: value for word, value in locals().items() if word not in ("self", "name")}
        for word in ("keep_completed_for", "keep_failed_for"):
            value = given.pop(word)
            seconds = None if value is None else options.check_seconds(word, value)
            given[f"{word.removesuffix('_for')}_seconds"] = seconds
        self._declarations.add_queue(name, {word: value for word, value in given.items() if value is not None})

    @overload
    def job(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> Task[Concatenate[Context, P], P, R]: ...
    @overload
    def job(
        self, function: Callable[Concatenate[BlockingContext, P], R], /
    ) -> Task[Concatenate[BlockingContext, P], P, R]: ...
    @overload
    def job(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, P, R]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> Task[P, P, R]: ...
    @overload
    def job(self, **options: Unpack[HandlerOptions]) -> JobDecorator: ...
    def job(self, function: Callable[..., Any] | None = None, **options: Unpack[HandlerOptions]) -> Any:
        """Declare a function as a handler: `@yard.job` or `@yard.job(queue="mail", timeout=60)`.

        The handler's name is the kind of its jobs, and its options are their defaults. A job is attempted 3 times in
        all unless `max_attempts` says otherwise. A first parameter annotated as Context or BlockingContext, or named
        ctx without an annotation, receives the context; the other parameters are the payload. A `transactional`
        handler completes its jobs in its own database transactions, with `ctx.complete`.
        """
        if function is not None and not callable(function):
            raise BadOption(f"Cannot declare {function!r} as a handler. Write @yard.job or @yard.job(queue=…).")
        decorator = JobDecorator(self, options)
        return decorator if function is None else decorator(function)

    @overload
    def workflow(
        self, function: Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R]], /
    ) -> Task[Concatenate[WorkflowContext, P], P, R]: ...
    @overload
    def workflow(self, **options: Unpack[HandlerOptions]) -> WorkflowDecorator: ...
    def workflow(self, function: Callable[..., Any] | None = None, **options: Unpack[HandlerOptions]) -> Any:
        """Declare an async function as a workflow: `@yard.workflow` or `@yard.workflow(queue="orders")`.

        What its context's operations return is stored: after a crash, a retry or a redeploy the function runs again
        from the top, and finished steps are not run again. Its timeout counts the time in which it works, not the time
        in which it waits.
        """
        if function is not None and not callable(function):
            raise BadOption(f"Cannot declare {function!r} as a workflow. Write @yard.workflow above a function.")
        decorator = WorkflowDecorator(self, options)
        return decorator if function is None else decorator(function)

    def cron(self, expression: str, **given: Unpack[CronOptions]) -> CronDecorator:
        """Run a handler on a cron schedule: `@yard.cron("*/5 * * * *", tz="Asia/Seoul")`, also above `@yard.job(…)`.

        The schedule has the handler's name; a second schedule of the same handler needs a name of its own. `jobyard up`
        and `jobyard scheduler` write it to the store and fire it; in a program, `async with yard.scheduler():` does.
        Its jobs have the queue, group, priority, retries, timeout, backoff and tags of the handler where no option
        says otherwise; a handler that declares neither has 3 retries and 300 s. `max_retry` counts the attempts after
        the first: max_attempts = max_retry + 1.
        """
        if callable(expression):
            raise BadOption('Cannot declare a schedule without a cron expression. Write @yard.cron("*/5 * * * *").')
        options = {word: value for word, value in given.items() if value is not None}
        return CronDecorator(self, {"expression": expression, **options})

    # Open and close

    async def open(self) -> None:
        """Open the store. Several tasks may do so at once; the store stays open until the last one closes it."""
        if self._opening is not None and self._process != os.getpid():
            self._forget_parent()
        if self._opening is None:
            self._process = os.getpid()
            self._loop = asyncio.get_running_loop()
            self._opening = self._loop.create_task(self._open_store())
        self._depth += 1
        try:
            await asyncio.shield(self._opening)
        except BaseException:
            await self.close()
            raise

    def _forget_parent(self) -> None:
        """In a forked process, start over with a store of its own; one that was passed raises when it is opened."""
        # Kept: Python warns of the tasks and connections in it when they are destroyed before their end.
        self._inherited += [self.store, self._opening]
        self._depth, self._opening = 0, None
        if self._url is not None:
            self._use(make_store(self._url, self.clock))

    async def _open_store(self) -> None:
        if self._is_own_store and self._url is not None:
            warn_of_other_store(self._url)
        await self.store.open()
        await queue_settings.declare(self.store, self._declarations.queue_settings())

    async def close(self) -> None:
        self._depth = max(0, self._depth - 1)
        if self._depth == 0:
            opening, self._opening = self._opening, None
            if opening is not None and not opening.done():
                await asyncio.wait([opening])
            await self.store.close()

    async def __aenter__(self) -> Jobyard:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def using(self, store: Store, clock: Clock | None = None) -> AsyncIterator[None]:
        """Use another store inside the block, opened and with the declared queues; for `jobyard.testing`."""
        before = self.store, self.clock, self._depth, self._opening, self._is_own_store, self._loop
        self._use(store)
        self.clock, self._depth, self._opening, self._is_own_store = clock, 0, None, False
        try:
            async with self:
                yield
        finally:
            self._use(before[0])
            self.clock, self._depth, self._opening, self._is_own_store, self._loop = before[1:]

    def blocking(self) -> Blocking:
        """Use the yard from a synchronous program: `wait = yard.blocking()`, then `wait(task.enqueue(1))`.

        It opens the yard at the first call, or at once and until the end of the block: `with yard.blocking() as wait:`.
        """
        return Blocking(self)

    # Enqueue

    async def enqueue_many(self, *jobs: PreparedJob[R]) -> list[JobHandle[R]]:
        """Insert all jobs in one transaction, or none: `yard.enqueue_many(task.call(1), task.call(2))`."""
        for job in jobs:
            if not isinstance(job, PreparedJob):
                raise BadInput(f"Cannot enqueue {job!r}. Write yard.enqueue_many(task.call(1), task.call(2)).")
        transactions = {id(job.transaction): job.transaction for job in jobs}
        if len(transactions) > 1:
            raise BadOption("Cannot enqueue jobs of different transactions together.", option="transaction")
        transaction = next(iter(transactions.values()), None)
        inserted = await self.store.insert([job.new_job for job in jobs], transaction)
        return [
            JobHandle(self, each.id, job.handler, created=each.created)
            for job, each in zip(jobs, inserted, strict=True)
        ]

    def enqueue(
        self, kind: str | PreparedJob[Any], payload: Any = None, **given: Unpack[JobOptions]
    ) -> Coroutine[Any, Any, JobHandle[Any]]:
        """Enqueue by the name of the handler; the payload is an object with its parameters.

        Also takes a prepared job: `await yard.enqueue(yard.chain(fetch.call(url), parse))`.
        """
        if given.get("transaction") is not None:  # here, in the caller's thread
            given["transaction"] = driver_connection(given["transaction"])
        return self._enqueue(kind, payload, given)

    async def _enqueue(self, kind: str | PreparedJob[Any], payload: Any, given: JobOptions) -> JobHandle[Any]:
        if isinstance(kind, PreparedJob):
            return (await self.enqueue_many(kind))[0]
        new_job = self._declarations.job_factory.new_job(kind, {} if payload is None else payload, given)
        handler = self._declarations.handlers.get(kind)
        return (await self.enqueue_many(PreparedJob[Any](handler, new_job, given.get("transaction"))))[0]

    # Compose

    def chain(self, *links: Link, **options: Unpack[JobOptions]) -> PreparedJob[Any]:
        """One job after the other: `yard.chain(fetch.call(url), parse, store)`. The result is that of the last.

        A task receives the result of the one before as its first argument; `task.call(…)` runs as it is.
        """
        return canvas.prepare_chain(self, links, dict(options))

    def group(self, *jobs: Link, **options: Unpack[JobOptions]) -> PreparedJob[list[Any]]:
        """Jobs side by side: `yard.group(*(scan.call(url) for url in urls))`. The result is the list of their results.

        The first failure cancels the others. Thousands of jobs: use a workflow with ctx.map, or a batch.
        """
        return canvas.prepare_group(self, jobs, dict(options))

    def chord(self, jobs: Iterable[Link], body: Link, **options: Unpack[JobOptions]) -> PreparedJob[Any]:
        """Jobs side by side, then one with the list of their results: `yard.chord(map(scan.call, urls), summarise)`."""
        return canvas.prepare_chord(self, jobs, body, dict(options))

    def batch(
        self,
        callback: Link | None = None,
        *,
        when: Literal["ended", "completed"] = "ended",
        **options: Unpack[JobOptions],
    ) -> canvas.Batch:
        """Any number of jobs and one callback: `async with yard.batch(notify) as batch: await batch.add(…)`.

        The callback is a task that receives BatchCounts, or a prepared job. It runs once, when all jobs have ended;
        with when="completed" only if all of them completed, and the batch fails otherwise.
        """
        return canvas.Batch(self, callback, when, dict(options))

    def job_handle(self, job_id: str) -> JobHandle[Any]:
        """A handle of a job that was enqueued before; `task.job_handle(id)` also knows the type of its result."""
        return JobHandle(self, job_id)

    # Run

    @suggest_keywords
    def worker(
        self,
        *,
        concurrency: int = 2,
        queues: Sequence[str] = (),
        lease: Seconds = DEFAULT_LEASE_SECONDS,
        shutdown_timeout: Seconds = 30.0,
        name: str | None = None,
    ) -> Worker:
        """A worker in this process: `async with yard.worker(concurrency=8): …`. Without queues it serves all."""
        if isinstance(queues, str):
            raise BadOption(f'queues must be a list of names: write queues=["{queues}"].', option="queues")
        self._require_transactions()
        options.check_integer("concurrency", concurrency, 1, MAX_CONCURRENCY)
        name = name or worker_name()
        live_events = LiveEventPublisher(self.store, name)
        executor: Executor = make_executor(self._declarations.handlers, self.store, self.max_payload_bytes)
        services: list[WorkerService] = [live_events]
        if self.sandbox is not None:
            sandbox = self.sandbox.make(self.store, name, concurrency)
            executor = sandbox.wrap(executor)
            services.append(sandbox)
        return Worker(
            self.store,
            executor if self._tracing is None else self._tracing.executor(executor, self.store),
            CompositeObserver(live_events, self.observer),
            queues=[options.check_name("queues", queue) for queue in queues],
            concurrency=concurrency,
            lease_seconds=options.check_positive_seconds("lease", lease),
            shutdown_seconds=options.check_seconds("shutdown_timeout", shutdown_timeout),
            name=name,
            services=services,
            excluded_queues=self.excluded_queues,
            kinds=self._declarations.handlers.known_kinds(),
        )

    @asynccontextmanager
    async def scheduler(self, *, shortest_interval: Seconds = SHORTEST_INTERVAL_SECONDS) -> AsyncIterator[Scheduler]:
        """A scheduler in this process: `async with yard.scheduler():`. Several may run; each tick fires once."""
        schedules = Schedules(self.store, options.check_positive_seconds("shortest_interval", shortest_interval))
        await declare(schedules, origin_of(self.name), list(self._declarations.schedules.values()))
        scheduler = Scheduler(self.store, self.observer)
        await scheduler.start()
        try:
            yield scheduler
        finally:
            await scheduler.stop()

    def _require_transactions(self) -> None:
        """Raise NotPossible at the start instead of failing the first job."""
        names = self._declarations.handlers.transactional()
        if names and not self.store.has_transactions:
            raise NotPossible(
                f"Cannot run {', '.join(names)}: a transactional handler needs a store with transactions (PostgreSQL, "
                f"SQLite), and {self.store.url} has none. Choose another store, or return the result instead."
            )
