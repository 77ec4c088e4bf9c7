"""The configuration from all its sources: checked as a whole, and every value with where it came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path as File
from typing import Any, NamedTuple

import msgspec

from jobyard.config.environment import read_environment, redis_address
from jobyard.config.file import Given, Trouble, read_file
from jobyard.config.keys import NAMED, Key, Path, find
from jobyard.config.sections import Configuration
from jobyard.errors import BadOption, ConfigurationError
from jobyard.operations.schedule_options import make_schedule

USUAL_FILE = "jobyard.yaml"
STORE_URL: Path = ("store", "url")


class Found(NamedTuple):
    configuration: Configuration
    given: Mapping[Path, Given]  # what is not here has its default
    file: File | None

    def says(self, *path: str) -> bool:
        return path in self.given


def load(
    environment: Mapping[str, str], file: str | None = None, flags: Mapping[str, tuple[str, Any]] | None = None
) -> Found:
    """Flags are by key ("store.url"), each with its name and value. One ConfigurationError says all that is wrong."""
    chosen = _file(file)
    given, trouble = ([], []) if chosen is None else read_file(chosen)
    later: list[Given] = []
    for more, wrong in (read_environment(environment, _names(given)), _flags(flags or {})):
        later += more
        trouble += wrong
    if not any(each.path == STORE_URL for each in later):
        # It belongs to the environment, so it wins over the file; a whole URL, there or as a flag, says more.
        address = redis_address(environment)
        given += [] if address is None else [address]
    given += later
    found: dict[Path, Given] = {}
    for each in given:
        # One that is overridden must be right as well: it is a mistake that waits.
        try:
            found[each.path] = each._replace(value=_checked(each))
        except (BadOption, ConfigurationError) as error:
            trouble.append(Trouble(each.origin, str(error)))
    trouble += [] if trouble else _schedules(found)
    if trouble:
        raise ConfigurationError("\n".join(map(str, trouble)))
    return Found(build(found), found, chosen)


def _names(given: Iterable[Given]) -> dict[str, list[str]]:
    """Of queues and schedules, as they are written."""
    found: dict[str, list[str]] = {section: [] for section in NAMED}
    for each in given:
        if each.path[0] in NAMED:
            found[each.path[0]].append(each.path[1])
        elif each.path[:2] == ("store", "queues"):
            found["queues"].append(each.path[2])
    return found


def _file(name: str | None) -> File | None:
    if name:
        if not File(name).is_file():
            raise ConfigurationError(f"There is no configuration file {name}.")
        return File(name)
    usual = File(USUAL_FILE)
    return usual if usual.is_file() else None


def _flags(flags: Mapping[str, tuple[str, Any]]) -> tuple[list[Given], list[Trouble]]:
    return [Given(tuple(key.split(".")), value, name) for key, (name, value) in flags.items()], []


def _checked(given: Given) -> Any:
    key = find(given.path)
    assert isinstance(key, Key)
    return key.check(".".join(given.path), given.value)


def _schedules(found: Mapping[Path, Given]) -> Iterator[Trouble]:
    """What is wrong with a schedule as a whole, at the first line that speaks of it."""
    for name, words in build(found).schedules.items():
        try:
            make_schedule({"name": name, **words})
        except BadOption as error:
            where = next(given.origin for path, given in found.items() if path[:2] == ("schedules", name))
            yield Trouble(where, f"schedules.{name}: {error}")


def build(found: Mapping[Path, Given]) -> Configuration:
    sections: dict[str, dict[str, Any]] = {}
    for path, given in found.items():
        below = sections
        for part in path[:-1]:
            below = below.setdefault(part, {})
        below[path[-1]] = given.value
    made: dict[str, Any] = {}
    for field in msgspec.structs.fields(Configuration):
        told = sections.get(field.name, {})
        made[field.name] = told if field.name in NAMED else type(field.default)(**told)
    return Configuration(**made)
