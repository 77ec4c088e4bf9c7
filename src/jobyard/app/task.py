"""A decorated function: still callable as it was, and a way to enqueue it with checked arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack

from jobyard.domain.job import Job, NewJob
from jobyard.domain.job_options import CheckedOptions, JobOptions, with_options
from jobyard.domain.retry import DEFAULT_BACKOFF
from jobyard.executors.python.handlers import Handler
from jobyard.ports.admin_store import Action

if TYPE_CHECKING:
    from jobyard.app.jobyard import Jobyard

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
C = TypeVar("C")


class Handle(Generic[R_co]):
    """An enqueued job. `created` is False when a unique key was held: `id` is then the holder's."""

    def __init__(self, yard: Jobyard, job_id: str, handler: Handler, *, created: bool) -> None:
        self._yard = yard
        self._handler = handler
        self.id = job_id
        self.created = created

    async def result(self, timeout: float | None = None) -> R_co:
        """The handler's result; raises JobFailed, JobTimedOut, JobCancelled or, after the time, ResultNotReady."""
        data = await self._yard.read.result(self.id, timeout)
        typed: R_co = self._handler.decode_result(data)
        return typed

    async def job(self) -> Job:
        return await self._yard.read.job(self.id)

    async def cancel(self, reason: str = "") -> None:
        await self._yard.operate.change_one(Action.CANCEL, self.id, reason=reason)

    async def signal(self, name: str, data: Any = None) -> bool:
        """Wake the job if it is parked on this signal, else remember it for when it parks."""
        return await self._yard.signal(self.id, name, data)

    def __repr__(self) -> str:
        return f"<Handle {self.id}>"


class Call(Generic[R_co]):
    """A job that is ready to be enqueued, alone or with others."""

    __slots__ = ("handler", "new_job", "transaction")

    def __init__(self, handler: Handler, new_job: NewJob, transaction: Any) -> None:
        self.handler = handler
        self.new_job = new_job
        self.transaction = transaction


class Enqueue(Generic[P, R]):
    """A kind of job with its options."""

    def __init__(self, yard: Jobyard, handler: Handler, options: CheckedOptions) -> None:
        self._yard = yard
        self.handler = handler
        self.defaults = options

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Check the arguments and make a job of them, for `yard.enqueue_many`."""
        return self.call_with(self.handler.bind(args, kwargs))

    def call_with(self, payload: Any) -> Call[R]:
        """The same from a payload, as the command line and other doors have it."""
        new_job = self._yard.factory.build(self.handler.name, self.handler, payload, self.defaults)
        return Call(self.handler, new_job, self.defaults.transaction)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        return (await self._yard.enqueue_many(self.call(*args, **kwargs)))[0]


class Definition(Enqueue[P, R], Generic[C, P, R]):
    """What `@yard.job` makes of a function."""

    def __init__(
        self, yard: Jobyard, handler: Handler, options: CheckedOptions, function: Callable[Concatenate[C, P], Any]
    ) -> None:
        super().__init__(yard, handler, options)
        self._function = function
        self.declares_max_attempts = False  # else a configuration may
        functools.update_wrapper(self, function)

    def __call__(self, ctx: C, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The function as it was written: call it directly in tests."""
        return self._function(ctx, *args, **kwargs)

    def options(self, **given: Unpack[JobOptions]) -> Enqueue[P, R]:
        """The same kind with other options for these calls; an option that is not given stays as declared."""
        return Enqueue(self._yard, self.handler, with_options(self.defaults, given))


def declared(words: dict[str, Any]) -> tuple[CheckedOptions, Callable[[int], float] | None]:
    """The options of a declaration; a back-off that is a function stays with the handler."""
    given = {word: value for word, value in words.items() if value is not None}
    retry_after: Callable[[int], float] | None = None
    if callable(given.get("backoff")):
        retry_after = given.pop("backoff")
    return with_options(CheckedOptions(backoff=DEFAULT_BACKOFF), given), retry_after
