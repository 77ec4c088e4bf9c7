"""`@yard.cron(…)`: handlers that the clock calls, and how what is declared reaches the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

import msgspec

from jobyard.app.task import Definition
from jobyard.domain.schedule import DEFAULT_TIMEOUT_SECONDS, Schedule
from jobyard.errors import BadOption
from jobyard.executors.python.context import BlockingContext, Context
from jobyard.operations.schedules import Declared, Schedules, definition

if TYPE_CHECKING:
    from jobyard.app.jobyard import Jobyard

log = logging.getLogger("jobyard.scheduler")

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")

FILE = "file"
DEFAULT_RETRIES = 3


def origin_of(app: str) -> str:
    """
    >>> origin_of("shop.jobs:yard"), origin_of("")
    ('code:shop.jobs:yard', 'code:program')
    """
    return f"code:{app or 'program'}"


class DeclareCron:
    """The decorator that `yard.cron(…)` answers."""

    def __init__(self, yard: Jobyard, name: str | None, words: dict[str, Any]) -> None:
        self._yard = yard
        self._name = name
        self._words = words

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
        self._yard.add_cron(scheduled(made, self._name or made.kind.name, self._words))
        return made


def scheduled(job: Definition[Any, Any, Any], name: str, words: Mapping[str, Any]) -> Schedule:
    """What is not said of the schedule is as the handler declares it."""
    own = job.defaults
    given = {
        "queue": own.queue,
        "group": own.group,
        "priority": own.priority,
        "max_retry": own.max_attempts - 1 if job.says_max_attempts else DEFAULT_RETRIES,
        "timeout_seconds": own.timeout_seconds or DEFAULT_TIMEOUT_SECONDS,
        **{word: value for word, value in words.items() if value is not None},
    }
    payload = given.pop("payload", {})
    # Refused here, where it is written, rather than by the first job.
    data = job.kind.encode(payload)
    return definition({"name": name, "kind": job.kind.name, "payload": msgspec.json.decode(data), **given})


def of_file(told: Mapping[str, Mapping[str, Any]]) -> list[Schedule]:
    """What jobyard.yaml says under `schedules`."""
    return [definition({"name": name, **words}) for name, words in told.items()]


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
