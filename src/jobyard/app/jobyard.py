"""The Python API: declare queues and jobs, enqueue, run workers, operate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from jobyard.app.cron import DeclareCron, declare, origin_of, taken_twice
from jobyard.app.sync import Blocking
from jobyard.app.task import Call, Definition, Enqueue, Handle, declared
from jobyard.app.tracing import make_tracing
from jobyard.config.sections import EVERY_QUEUE, MAX_CONCURRENCY
from jobyard.config.store_factory import make_store
from jobyard.domain import job_options, options
from jobyard.domain.explain import Explanation, explain
from jobyard.domain.job import Job, QueueSettings
from jobyard.domain.job_options import BackoffLike, JobOptions
from jobyard.domain.lease import DEFAULT_LEASE_SECONDS
from jobyard.domain.schedule import Schedule
from jobyard.errors import BadOption, NotPossible
from jobyard.executors.python.context import BlockingContext, Context
from jobyard.executors.python.executor import PythonExecutor
from jobyard.executors.python.handlers import Handler, HandlerRegistry
from jobyard.executors.python.payload import MAX_PAYLOAD_BYTES, to_json
from jobyard.live_events.publisher import LiveEventPublisher
from jobyard.observability.composite import CompositeObserver
from jobyard.observability.logs import LogObserver
from jobyard.operations.commands import Commands
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.queries import Queries
from jobyard.operations.schedule_options import ScheduleOptions
from jobyard.operations.schedules import SHORTEST_INTERVAL_SECONDS, Schedules
from jobyard.ports.admin_store import Filter, GroupInfo, Page, QueueInfo
from jobyard.ports.clock import Clock
from jobyard.ports.executor import Executor
from jobyard.ports.observer import Companion, Observer
from jobyard.ports.store import Store
from jobyard.scheduler.scheduler import Scheduler
from jobyard.worker.identity import worker_name
from jobyard.worker.worker import Worker

if TYPE_CHECKING:
    from jobyard.app.sandbox import SandboxFactory
    from jobyard.observability.tracing import Tracing

P = ParamSpec("P")
R = TypeVar("R")


class Jobyard:
    """One application's queue. `async with yard:` opens the store and applies the declared queues."""

    def __init__(
        self,
        url: str = "sqlite:///jobs.db",
        *,
        clock: Clock | None = None,
        observer: Observer | None = None,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        store: Store | None = None,
        name: str = "",
    ) -> None:
        """`name` is the application's, by which its schedules are told apart from those of others."""
        self.name = name
        self.clock = clock  # the store's, if one was given
        self.sandbox: SandboxFactory | None = None  # workers also run programs that people hand in
        self._tracing: Tracing | None = None
        self._use(make_store(url, clock) if store is None else store)
        self.max_payload_bytes = max_payload_bytes
        self.observer: Observer = observer or LogObserver()
        self.kinds = HandlerRegistry()
        self.definitions: dict[str, Definition[Any, Any, Any]] = {}
        self.factory = JobFactory(max_payload_bytes, self.definitions)
        self.crons: dict[str, Schedule] = {}  # declared schedules, by name
        self._queues: dict[str, dict[str, Any]] = {}
        self._suggested: dict[str, dict[str, Any]] = {}
        self._preferred: Mapping[str, Mapping[str, Any]] = {}
        self._depth = 0
        self._opening: asyncio.Task[None] | None = None

    def _use(self, store: Store) -> None:
        self.store = store if self._tracing is None else self._tracing.store(store)
        self.read = Queries(store)
        self.operate = Commands(store)

    def trace(self, provider: Any = None, *, as_link: bool = False) -> None:
        """Spans from enqueue to handler by OpenTelemetry, as the process has set it up, or by this provider.

        With `as_link` a handler's span begins a trace of its own that points to the enqueue.
        """
        self._tracing = make_tracing(provider, as_link=as_link)
        self._use(self.store)

    # Declare

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
        keep_seconds: float | None = None,
    ) -> None:
        """Declare a queue's settings; they are written when the yard is opened.

        Not said: no limit; the last 100 completed and 50 failed jobs are kept, of whatever age.
        """
        words = {word: value for word, value in locals().items() if word not in ("self", "name")}
        given = {word: value for word, value in words.items() if value is not None}
        job_options.queue_settings(given)
        self._queues[options.check_name("queue", name)] = given

    def suggest(self, queue: str, words: dict[str, Any]) -> None:
        """Settings that hold where neither the program nor its configuration says anything."""
        self._suggested[queue] = words

    def prefer(self, queues: Mapping[str, Mapping[str, Any]]) -> None:
        """What a configuration says of queues: it wins over the program; `*` holds where neither says anything."""
        self._preferred = queues
        for definition in self.definitions.values():
            if not definition.declares_max_attempts:
                every = queues.get(EVERY_QUEUE, {}).get("max_attempts", definition.defaults.max_attempts)
                most = queues.get(definition.defaults.queue, {}).get("max_attempts", every)
                definition.defaults = job_options.with_options(definition.defaults, {"max_attempts": most})

    def _settings(self) -> dict[str, QueueSettings]:
        """Of every queue that the program or its configuration speaks of."""
        every = self._preferred.get(EVERY_QUEUE, {})
        names = dict.fromkeys([*self._suggested, *self._queues, *self._preferred])
        if every.keys() - {"max_attempts"}:
            names |= dict.fromkeys(definition.defaults.queue for definition in self.definitions.values())
        settings: dict[str, QueueSettings] = {}
        for name in names:
            if name != EVERY_QUEUE:
                said = {**self._suggested.get(name, {}), **every, **self._queues.get(name, {})}
                words = {**said, **self._preferred.get(name, {})}
                words.pop("max_attempts", None)
                settings[name] = job_options.queue_settings(words)
        return settings

    def job(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        group: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        timeout: float | None = None,
        backoff: BackoffLike | Callable[[int], float] | None = None,
        tags: tuple[str, ...] = (),
        transactional: bool = False,
    ) -> Declare:
        """Declare a handler. Its name is the kind; its options are the defaults of its jobs.

        A job is tried 3 times in all unless something else is said. A `transactional` handler completes its jobs in
        database transactions of its own, with `ctx.complete`.
        """
        words = {word: value for word, value in locals().items() if word not in ("self", "name", "transactional")}
        return Declare(self, name, words, transactional=transactional)

    def cron(self, expression: str, **given: Unpack[ScheduleOptions]) -> DeclareCron:
        """Run a handler by the clock: `@yard.cron("*/5 * * * *", tz="Asia/Seoul")`, also above `@yard.job(…)`.

        The schedule has the handler's name; a second schedule of the same handler needs a name of its own. `jobyard up`
        and `jobyard scheduler` write it to the store and fire it; in a program, `async with yard.scheduler():` does.
        Its jobs have the queue, group, priority, retries, timeout, backoff and tags of the handler where no option
        says otherwise; a handler that declares neither has 3 retries and 300 s. `max_retry` counts the attempts after
        the first: max_attempts = max_retry + 1.
        """
        options = {word: value for word, value in given.items() if value is not None}
        return DeclareCron(self, {"expression": expression, **options})

    def add_cron(self, schedule: Schedule) -> None:
        if schedule.name in self.crons:
            raise taken_twice(schedule.name)
        self.crons[schedule.name] = schedule

    # Open and close

    async def open(self) -> None:
        """Safe from several tasks at once: the first opens, the others wait for it; the last to leave closes."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open_store())
        self._depth += 1
        try:
            await asyncio.shield(self._opening)
        except BaseException:
            await self.close()
            raise

    async def _open_store(self) -> None:
        await self.store.open()
        for name, settings in self._settings().items():
            await self.store.configure(name, settings)

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
        """Another store for a while, opened and with the declared queues: what `jobyard.testing` stands on."""
        before = self.store, self.clock, self._depth, self._opening
        self._use(store)
        self.clock, self._depth, self._opening = clock, 0, None
        try:
            async with self:
                yield
        finally:
            self._use(before[0])
            self.clock, self._depth, self._opening = before[1:]

    def blocking(self) -> Blocking:
        """For synchronous programs: see `Blocking`."""
        return Blocking(self)

    # Enqueue

    async def enqueue_many(self, *calls: Call[R]) -> list[Handle[R]]:
        """All calls in one step, or none; calls that meet in the same moment share a transaction anyway."""
        transactions = {id(call.transaction): call.transaction for call in calls}
        if len(transactions) > 1:
            raise BadOption("These calls name different transactions; enqueue them apart.")
        transaction = next(iter(transactions.values()), None)
        answers = await self.store.insert([call.new_job for call in calls], transaction)
        return [
            Handle(self, answer.id, call.handler, created=answer.created)
            for call, answer in zip(calls, answers, strict=True)
        ]

    async def enqueue(self, kind: str, payload: Any = None, **given: Unpack[JobOptions]) -> Handle[Any]:
        """By name, as other doors do it: the payload is an object with the handler's parameters."""
        self.kinds.get(kind)
        definition = self.definitions[kind]
        chosen = Enqueue[Any, Any](self, definition.handler, job_options.with_options(definition.defaults, given))
        return (await self.enqueue_many(chosen.call_with({} if payload is None else payload)))[0]

    # Run

    def worker(
        self,
        *,
        concurrency: int = 2,
        queues: Sequence[str] = (),
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        shutdown_timeout: float = 30.0,
        name: str | None = None,
    ) -> Worker:
        """A worker in this process: `async with yard.worker(concurrency=8): …`. No queues named means all."""
        if isinstance(queues, str):
            raise BadOption(f'queues is a list of names: write queues=["{queues}"].')
        self._require_transactions()
        options.check_integer("concurrency", concurrency, 1, MAX_CONCURRENCY)
        options.check_positive_seconds("lease_seconds", lease_seconds)
        options.check_seconds("shutdown_timeout", shutdown_timeout)
        name = name or worker_name()
        feed = LiveEventPublisher(self.store, name)
        executor: Executor = PythonExecutor(self.kinds, self.max_payload_bytes)
        companions: list[Companion] = [feed]
        if self.sandbox is not None:
            sandbox = self.sandbox.make(self.store, name, concurrency)
            executor = sandbox.wrap(executor)
            companions.append(sandbox)
        return Worker(
            self.store,
            executor if self._tracing is None else self._tracing.executor(executor, self.store),
            CompositeObserver(feed, self.observer),
            queues=[options.check_name("queue", queue) for queue in queues],
            concurrency=concurrency,
            lease_seconds=lease_seconds,
            shutdown_seconds=shutdown_timeout,
            name=name,
            companions=companions,
        )

    @asynccontextmanager
    async def scheduler(self, *, shortest_interval: float = SHORTEST_INTERVAL_SECONDS) -> AsyncIterator[Scheduler]:
        """A scheduler in this process: `async with yard.scheduler():`. Any number may run; each instant fires once."""
        schedules = Schedules(self.store, options.check_positive_seconds("shortest_interval", shortest_interval))
        await declare(schedules, origin_of(self.name), list(self.crons.values()))
        scheduler = Scheduler(self.store, self.observer)
        await scheduler.start()
        try:
            yield scheduler
        finally:
            await scheduler.stop()

    def _require_transactions(self) -> None:
        """Better refused at the start than by the first job."""
        names = self.kinds.transactional()
        if names and not self.store.has_transactions:
            raise NotPossible(
                f"{', '.join(names)}: a transactional handler needs a store with transactions that it can join "
                f"(PostgreSQL, SQLite); {self.store.url} has none. Choose another store, or return the result instead."
            )

    # Operate and read

    async def set_limit(self, queue: str, group: str, limit: int) -> None:
        """Give a group its own limit: 0 blocks it, 1 makes it serial."""
        await self.operate.set_limit(queue, group, limit)

    async def remove_limit(self, queue: str, group: str) -> None:
        await self.operate.remove_limit(queue, group)

    async def pause(self, queue: str, group: str | None = None) -> None:
        """Start no more jobs of the queue, or of one group; running ones go on."""
        await self.operate.pause(queue, group)

    async def resume(self, queue: str, group: str | None = None) -> None:
        await self.operate.pause(queue, group, paused=False)

    async def signal(self, job_id: str, name: str, data: Any = None) -> bool:
        options.check_name("signal", name)
        return await self.store.signal(job_id, name, to_json(data, "signal data", self.max_payload_bytes))

    async def explain(self, job_id: str) -> Explanation:
        """Why the job waits."""
        return explain(await self.store.standing(job_id))

    async def get(self, job_id: str) -> Job:
        return await self.read.job(job_id)

    async def find(self, where: Filter | None = None, limit: int = 50, cursor: str | None = None) -> Page:
        return await self.store.find(where or Filter(), options.check_integer("limit", limit, 1, 10_000), cursor)

    async def queues(self) -> list[QueueInfo]:
        return await self.store.queues()

    async def groups(self, queue: str) -> list[GroupInfo]:
        return await self.store.groups(queue)


class Declare:
    """The decorator that `yard.job(…)` answers."""

    def __init__(self, yard: Jobyard, name: str | None, words: dict[str, Any], *, transactional: bool) -> None:
        self._yard = yard
        self._transactional = transactional
        self._name = name
        self._words = words

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]
    ) -> Definition[Context, P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[BlockingContext, P], R]) -> Definition[BlockingContext, P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Definition[Any, Any, Any]:
        chosen, retry_after = declared(self._words)
        name = options.check_name("kind", self._name or function.__name__)
        kind = Handler(name, function, retry_after, transactional=self._transactional)
        self._yard.kinds.add(kind)
        definition: Definition[Any, Any, Any] = Definition(self._yard, kind, chosen, function)
        definition.declares_max_attempts = self._words["max_attempts"] is not None
        self._yard.definitions[kind.name] = definition
        return definition
