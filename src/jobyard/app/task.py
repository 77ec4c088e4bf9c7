"""Tasks: decorated functions that can be enqueued with checked arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, TypedDict, TypeVar, Unpack, overload

from jobyard.app.declarations import declarations_of
from jobyard.app.handle import JobHandle
from jobyard.domain.job_options import DEFAULTS, BackoffLike, CheckedOptions, JobOptions, Seconds, with_options
from jobyard.domain.options import check_name
from jobyard.errors import BadOption, did_you_mean
from jobyard.executors.python.caller_transaction import driver_connection
from jobyard.executors.python.context import BlockingContext, Context
from jobyard.executors.python.handlers import Handler
from jobyard.executors.python.prepared_job import PreparedJob
from jobyard.executors.workflow.context import WorkflowContext

if TYPE_CHECKING:
    from jobyard.app.jobyard import Jobyard

# How Celery, Dramatiq and Procrastinate enqueue.
OTHER_ENQUEUES = frozenset({"delay", "apply_async", "send", "send_with_options", "defer", "defer_async"})

F = ParamSpec("F")  # of the function as written, with the context if it takes one
P = ParamSpec("P")  # of its jobs: without the context
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class HandlerOptions(TypedDict, total=False):
    """Keyword arguments of `@yard.job`: the defaults of a handler's jobs. Durations are seconds, or a timedelta."""

    name: str | None  # the kind of its jobs; the name of the function by default
    queue: str | None
    group: str | None
    priority: int | None
    max_attempts: int | None
    timeout: Seconds | None
    backoff: BackoffLike | Callable[[int], float] | None  # a function takes the number of failures
    tags: tuple[str, ...] | list[str] | None
    transactional: bool


class BoundTask(Generic[P, R]):
    """A task with options for its next jobs: `task.options(priority=5)` (Procrastinate: configure)."""

    def __init__(self, yard: Jobyard, handler: Handler, defaults: CheckedOptions) -> None:
        self._yard = yard
        self.handler = handler
        self.defaults = defaults

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.handler.name}>"

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue one job with these arguments. Raises BadInput if the handler cannot take them."""
        return (await self._yard.enqueue_many(self.call(*args, **kwargs)))[0]

    def call(self, *args: P.args, **kwargs: P.kwargs) -> PreparedJob[R]:
        """Check the arguments and prepare a job, for `yard.enqueue_many`."""
        handler, options = self.handler, self.defaults
        payload = handler.bind(args, kwargs)
        new_job = declarations_of(self._yard).job_factory.build(handler.name, handler, payload, options)
        return PreparedJob(handler, new_job, options.transaction)


class Task(BoundTask[P, R], Generic[F, P, R]):
    """A function that `@yard.job` has declared as a handler. Calling it runs the function itself, as in a test."""

    def __init__(self, yard: Jobyard, handler: Handler, defaults: CheckedOptions, function: Callable[F, Any]) -> None:
        super().__init__(yard, handler, defaults)
        self._function = function
        self.declares_max_attempts = False  # else the configuration may set it
        functools.update_wrapper(self, function)

    def __call__(self, *args: F.args, **kwargs: F.kwargs) -> Any:
        return self._function(*args, **kwargs)

    if not TYPE_CHECKING:  # a type checker would accept every attribute

        def __getattr__(self, name: str) -> NoReturn:
            word = self.__dict__.get("__name__", "task")
            hint = f" Write await {word}.enqueue(…), or wait({word}.enqueue(…)) with wait = yard.blocking()."
            hint = hint if name in OTHER_ENQUEUES else ""
            raise AttributeError(f"Task {word} has no attribute {name}.{hint}", name=name, obj=self)

    def options(self, **given: Unpack[JobOptions]) -> BoundTask[P, R]:
        """The same task with other options; an option that is not given stays as declared."""
        if given.get("transaction") is not None:
            given["transaction"] = driver_connection(given["transaction"])
        return BoundTask(self._yard, self.handler, with_options(self.defaults, given))

    def job_handle(self, job_id: str) -> JobHandle[R]:
        """A handle of a job of this task that was enqueued before."""
        return JobHandle(self._yard, job_id, self.handler)


class _Decorator:
    def __init__(self, yard: Jobyard, options: HandlerOptions) -> None:
        for word in options.keys() - HandlerOptions.__annotations__.keys():
            hint = did_you_mean(word, HandlerOptions.__annotations__)
            raise BadOption(f"Unknown handler option {word}.{hint}", option=word)
        self._yard = yard
        self._options = options

    def declare(self, function: Callable[..., Any], *, is_workflow: bool = False) -> Any:
        given: dict[str, Any] = {word: value for word, value in self._options.items() if value is not None}
        name = check_name("name", given.pop("name", None) or getattr(function, "__name__", ""))
        transactional = given.pop("transactional", False)
        # A backoff that is a function stays with the handler: the store cannot hold it.
        backoff_function = given.pop("backoff") if callable(given.get("backoff")) else None
        handler = Handler(name, function, backoff_function, transactional=transactional, is_workflow=is_workflow)
        task: Task[..., ..., Any] = Task(self._yard, handler, with_options(DEFAULTS, given), function)
        task.declares_max_attempts = "max_attempts" in given
        declarations_of(self._yard).add_task(task)
        return task


class JobDecorator(_Decorator):
    """The decorator that `yard.job(…)` returns."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]
    ) -> Task[Concatenate[Context, P], P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[BlockingContext, P], R]
    ) -> Task[Concatenate[BlockingContext, P], P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Task[P, P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Task[..., ..., Any]:
        declared: Task[..., ..., Any] = self.declare(function)
        return declared


class WorkflowDecorator(_Decorator):
    """The decorator that `yard.workflow(…)` returns."""

    def __call__(
        self, function: Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R]]
    ) -> Task[Concatenate[WorkflowContext, P], P, R]:
        declared: Task[Concatenate[WorkflowContext, P], P, R] = self.declare(function, is_workflow=True)
        return declared
