"""`@yard.cron(…)`, and how declared schedules reach the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from jobyard.app.declarations import declarations_of
from jobyard.app.task import Task
from jobyard.domain.schedule import Schedule
from jobyard.executors.python.context import BlockingContext, Context
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.schedule_options import SCHEDULE_OPTIONS, make_schedule
from jobyard.operations.schedules import Declared, Schedules

if TYPE_CHECKING:
    from jobyard.app.jobyard import Jobyard

log = logging.getLogger("jobyard.scheduler")

F = ParamSpec("F")
P = ParamSpec("P")
R = TypeVar("R")

FILE = "file"


def origin_of(app: str) -> str:
    """
    >>> origin_of("shop.jobs:yard"), origin_of("")
    ('code:shop.jobs:yard', 'code:program')
    """
    return f"code:{app or 'program'}"


class CronDecorator:
    """The decorator that `yard.cron(…)` returns."""

    def __init__(self, yard: Jobyard, given: dict[str, Any]) -> None:
        self._yard = yard
        self._given = given

    @overload
    def __call__(self, function: Task[F, P, R]) -> Task[F, P, R]: ...
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
    def __call__(self, function: Any) -> Task[..., ..., Any]:
        task: Task[..., ..., Any] = function if isinstance(function, Task) else self._yard.job()(function)
        kind, declarations = task.handler.name, declarations_of(self._yard)
        given = {"name": kind, **self._given, "kind": kind}
        declarations.add_schedule(declarations.job_factory.new_schedule(given, SCHEDULE_OPTIONS))
        return task


def of_file(declared: Mapping[str, Mapping[str, Any]], factory: JobFactory) -> list[Schedule]:
    """The schedules of jobyard.yaml. Their kinds may belong to another app; then the handler's options are unknown."""
    return [
        make_schedule({"name": name, **given}, factory.schedule_fields(str(given.get("kind"))))
        for name, given in declared.items()
    ]


async def declare(schedules: Schedules, origin: str, declared: Sequence[Schedule]) -> Declared:
    """Write new and changed schedules to the store, and log the result."""
    found = await schedules.declare(origin, declared)
    where = "jobyard.yaml" if origin == FILE else origin.removeprefix("code:")
    for change, names in (("added", found.added), ("changed", found.changed)):
        if names:
            log.info("schedules of %s %s: %s", where, change, ", ".join(names))
    for name, why in found.refused.items():
        log.error("schedule %s of %s was not written: %s", name, where, why)
    if found.gone:
        log.warning(
            "schedules no longer declared in %s, but still firing: %s; remove one with `jobyard cron remove NAME`",
            where,
            ", ".join(found.gone),
        )
    return found
