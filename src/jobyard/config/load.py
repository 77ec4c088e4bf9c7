"""Loads the configuration from all sources, checks it as a whole, and keeps the origin of every value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path as File
from typing import Any, NamedTuple

import msgspec

from jobyard.config.environment import is_generic, read_environment, redis_address
from jobyard.config.file import ConfigProblem, SourcedValue, read_file
from jobyard.config.keys import NAMED, Key, Path, find
from jobyard.config.platform_keys import check_platforms
from jobyard.config.sections import Configuration
from jobyard.config.settings import CONFIG
from jobyard.errors import BadOption, ConfigurationError
from jobyard.operations.schedule_options import make_schedule

USUAL_FILE = "jobyard.yaml"
STORE_URL: Path = ("store", "url")
WORKER_APP: Path = ("worker", "app")
WORKER_PLATFORMS: Path = ("worker", "platforms")
WORKER_QUEUES: Path = ("worker", "queues")


class LoadedConfig(NamedTuple):
    """The configuration, and the origin of every value that is not a default."""

    configuration: Configuration
    given: Mapping[Path, SourcedValue]
    file: File | None

    def has(self, *path: str) -> bool:
        return path in self.given

    def names_store_by(self) -> str:
        """The flag, the variable, or the place in the file that names the store; empty if nothing does."""
        return self.given[STORE_URL].origin if STORE_URL in self.given else ""

    def names_app_by(self) -> str:
        """The same of the application."""
        return self.given[WORKER_APP].origin if WORKER_APP in self.given else ""


def load(
    environment: Mapping[str, str], file: str | None = None, flags: Mapping[str, tuple[str, Any]] | None = None
) -> LoadedConfig:
    """`flags` are by key ("store.url"): name and value. Raises one ConfigurationError that lists all problems."""
    chosen = _file(file)
    given, problems = ([], []) if chosen is None else read_file(chosen)
    for more, wrong in (read_environment(environment, _names(given)), _flags(flags or {})):
        given += more
        problems += wrong
    # Names that other programs use too have the least weight: they may be meant for those.
    given.sort(key=lambda each: not is_generic(each.origin, environment))
    if not any(each.path == STORE_URL for each in given):
        address = redis_address(environment)
        given += [] if address is None else [address]
    found: dict[Path, SourcedValue] = {}
    for each in given:
        # Check overridden values too: such a mistake shows when the override is removed.
        try:
            found[each.path] = each._replace(value=_checked(each))
        except (BadOption, ConfigurationError) as error:
            problems.append(ConfigProblem(each.origin, str(error)))
    problems += [] if problems else [*_schedules(found), *_platforms(found)]
    if problems:
        raise ConfigurationError("\n".join(map(str, problems)))
    return LoadedConfig(build(found), found, chosen)


def _names(given: Iterable[SourcedValue]) -> dict[str, list[str]]:
    """The names of queues and schedules, as spelt in the file."""
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
            raise ConfigurationError(f"Configuration file {name} not found. Check {CONFIG.flag} or {CONFIG.variable}.")
        return File(name)
    usual = File(USUAL_FILE)
    if usual.is_dir():  # Docker creates one for a bind mount whose source does not exist
        raise ConfigurationError(f"Cannot read {USUAL_FILE}: it is a folder. Remove it, or mount a file that exists.")
    return usual if usual.is_file() else None


def _flags(flags: Mapping[str, tuple[str, Any]]) -> tuple[list[SourcedValue], list[ConfigProblem]]:
    return [SourcedValue(tuple(key.split(".")), value, name) for key, (name, value) in flags.items()], []


def _checked(given: SourcedValue) -> Any:
    key = find(given.path)
    assert isinstance(key, Key)
    return key.check(".".join(given.path), given.value)


def _schedules(found: Mapping[Path, SourcedValue]) -> Iterator[ConfigProblem]:
    """Problems of a schedule as a whole, at the first line that mentions it."""
    for name, fields in build(found).schedules.items():
        try:
            make_schedule({"name": name, **fields})
        except BadOption as error:
            where = next(given.origin for path, given in found.items() if path[:2] == ("schedules", name))
            yield ConfigProblem(where, f"schedules.{name}: {error}")


def _platforms(found: Mapping[Path, SourcedValue]) -> Iterator[ConfigProblem]:
    """Problems of the platforms of a worker: unknown names, or queues beside them."""
    chosen = found.get(WORKER_PLATFORMS)
    if chosen is None or not chosen.value:
        return
    try:
        check_platforms(build(found).platforms, chosen.value)
    except BadOption as error:
        yield ConfigProblem(chosen.origin, str(error))
    queues = found.get(WORKER_QUEUES)
    if queues is not None and queues.value:
        yield ConfigProblem(queues.origin, f"Set worker.queues or worker.platforms ({chosen.origin}), not both.")


def build(found: Mapping[Path, SourcedValue]) -> Configuration:
    sections: dict[str, dict[str, Any]] = {}
    for path, given in found.items():
        below = sections
        for part in path[:-1]:
            below = below.setdefault(part, {})
        below[path[-1]] = given.value
    made: dict[str, Any] = {}
    for field in msgspec.structs.fields(Configuration):
        values = sections.get(field.name, {})
        is_map = field.name in NAMED or field.name == "platforms"
        made[field.name] = values if is_map else type(field.default)(**values)
    return Configuration(**made)
