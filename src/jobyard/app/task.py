"""A decorated function: still callable as it was, and a way to enqueue it with checked arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from jobyard.domain.ids import new_id
from jobyard.domain.job import Job, NewJob, Unique
from jobyard.domain.retry import DEFAULT_BACKOFF
from jobyard.executors.python.handlers import Handler
from jobyard.executors.python.payload import to_json
from jobyard.operations.job_options import BackoffLike, Options, with_options
from jobyard.ports.admin_store import Action

if TYPE_CHECKING:
    from jobyard.app.jobyard import Jobyard

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
C = TypeVar("C")


class Handle(Generic[R_co]):
    """An enqueued job. `created` is False when a unique key was held: `id` is then the holder's."""

    def __init__(self, yard: Jobyard, job_id: str, kind: Handler, *, created: bool) -> None:
        self._yard = yard
        self._kind = kind
        self.id = job_id
        self.created = created

    async def result(self, timeout: float | None = None) -> R_co:
        """The handler's result; raises JobFailed, JobTimedOut, JobCancelled or, after the time, ResultNotReady."""
        data = await self._yard.read.result(self.id, timeout)
        typed: R_co = self._kind.decode_result(data)
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

    __slots__ = ("kind", "new_job", "transaction")

    def __init__(self, kind: Handler, new_job: NewJob, transaction: Any) -> None:
        self.kind = kind
        self.new_job = new_job
        self.transaction = transaction


class Enqueue(Generic[P, R]):
    """A kind of job with its options."""

    def __init__(self, yard: Jobyard, kind: Handler, options: Options) -> None:
        self._yard = yard
        self.kind = kind
        self.defaults = options

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Check the arguments and make a job of them, for `yard.enqueue_many`."""
        return self.call_with(self.kind.bind(args, kwargs))

    def call_with(self, payload: Any) -> Call[R]:
        """The same from a payload, as the command line and other doors have it."""
        options, most = self.defaults, self._yard.max_payload_bytes
        private = None if options.private is None else to_json(options.private, "private payload", most)
        data = self.kind.encode(payload, most)
        return Call(self.kind, options.new_job(new_id(), self.kind.name, data, private), options.transaction)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        return (await self._yard.enqueue_many(self.call(*args, **kwargs)))[0]


class Definition(Enqueue[P, R], Generic[C, P, R]):
    """What `@yard.job` makes of a function."""

    def __init__(
        self, yard: Jobyard, kind: Handler, options: Options, function: Callable[Concatenate[C, P], Any]
    ) -> None:
        super().__init__(yard, kind, options)
        self._function = function
        self.says_max_attempts = False  # else a configuration may
        functools.update_wrapper(self, function)

    def __call__(self, ctx: C, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The function as it was written: call it directly in tests."""
        return self._function(ctx, *args, **kwargs)

    def options(
        self,
        *,
        queue: str | None = None,
        group: str | None = None,
        priority: int | None = None,
        delay: float | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        timeout: float | None = None,
        backoff: BackoffLike | None = None,
        unique: str | Unique | None = None,
        tags: tuple[str, ...] | list[str] | None = None,
        private: Any = None,
        transaction: Any = None,
    ) -> Enqueue[P, R]:
        """The same kind with other options for these calls; what is not given stays as declared."""
        given = {word: value for word, value in locals().items() if word != "self" and value is not None}
        return Enqueue(self._yard, self.kind, with_options(self.defaults, given))


def declared(words: dict[str, Any]) -> tuple[Options, Callable[[int], float] | None]:
    """The options of a declaration; a back-off that is a function stays with the handler."""
    given = {word: value for word, value in words.items() if value is not None}
    retry_after: Callable[[int], float] | None = None
    if callable(given.get("backoff")):
        retry_after = given.pop("backoff")
    return with_options(Options(backoff=DEFAULT_BACKOFF), given), retry_after
