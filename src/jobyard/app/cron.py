"""`@yard.cron(…)`: handlers that the clock calls, and how what is declared reaches the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from jobyard.app.task import Definition
from jobyard.domain.schedule import Schedule
from jobyard.errors import BadOption
from jobyard.executors.python.context import BlockingContext, Context
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.schedule_options import SCHEDULE_OPTIONS, make_schedule
from jobyard.operations.schedules import Declared, Schedules

if TYPE_CHECKING:
    from jobyard.app.jobyard import Jobyard

log = logging.getLogger("jobyard.scheduler")

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")

FILE = "file"


def origin_of(app: str) -> str:
    """
    >>> origin_of("shop.jobs:yard"), origin_of("")
    ('code:shop.jobs:yard', 'code:program')
    """
    return f"code:{app or 'program'}"


class DeclareCron:
    """The decorator that `yard.cron(…)` answers."""

    def __init__(self, yard: Jobyard, given: dict[str, Any]) -> None:
        self._yard = yard
        self._given = given

    @overload
    def __call__(  # type: ignore[overload-overlap]  # it is callable, too; the first that fits is meant
        self, function: Definition[C, P, R]
    ) -> Definition[C, P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]
    ) -> Definition[Context, P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[BlockingContext, P], R]) -> Definition[BlockingContext, P, R]: ...
    def __call__(self, function: Any) -> Definition[Any, Any, Any]:
        made: Definition[Any, Any, Any] = function if isinstance(function, Definition) else self._yard.job()(function)
        kind = made.handler.name
        schedule = self._yard.factory.new_schedule({"name": kind, **self._given, "kind": kind}, SCHEDULE_OPTIONS)
        self._yard.add_cron(schedule)
        return made


def of_file(told: Mapping[str, Mapping[str, Any]], factory: JobFactory) -> list[Schedule]:
    """The schedules of jobyard.yaml. Their kinds may belong to another app; then the handler's options are unknown."""
    return [
        make_schedule({"name": name, **given}, factory.schedule_fields(str(given.get("kind"))))
        for name, given in told.items()
    ]


async def declare(schedules: Schedules, origin: str, declared: Sequence[Schedule]) -> Declared:
    """Written where it is new or changed; told to whoever reads the log."""
    found = await schedules.declare(origin, declared)
    where = "jobyard.yaml" if origin == FILE else origin.removeprefix("code:")
    for words, names in (("added", found.added), ("changed", found.changed)):
        if names:
            log.info("schedules %s, as %s declares them: %s", words, where, ", ".join(names))
    for name, why in found.refused.items():
        log.error("schedule %s, declared in %s, was not touched: %s", name, where, why)
    if found.gone:
        log.warning(
            "no longer declared in %s, and still firing: %s; end one with `jobyard cron remove NAME`",
            where,
            ", ".join(found.gone),
        )
    return found


def taken_twice(name: str) -> BadOption:
    return BadOption(f"Two schedules are named {name}. Give one of them another name: @yard.cron(…, name=…).")
