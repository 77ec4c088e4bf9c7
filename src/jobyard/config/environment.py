"""Configuration values from environment variables: short names, JOBYARD_SECTION__KEY, and files with secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote

from jobyard.config.file import ConfigProblem, SourcedValue
from jobyard.config.keys import NAMED, SECTIONS, TOP, Key, Path, find, parse_json
from jobyard.config.settings import COMPLETION, PREFIX, REDIS_DB, REDIS_HOST, REDIS_PORT, SEPARATOR, SETTINGS
from jobyard.errors import BadOption, ConfigurationError
from jobyard.operations.secrets import secret

FILE = "_FILE"
SHORT: Mapping[str, Path] = {
    setting.variable: tuple(setting.key.split("."))
    for setting in SETTINGS
    if setting.key and SEPARATOR not in setting.variable
}


def read_environment(
    environment: Mapping[str, str], names: Mapping[str, Iterable[str]] | None = None
) -> tuple[list[SourcedValue], list[ConfigProblem]]:
    """The values of all variables; later ones win. `names` are queues and schedules, spelt as in the file."""
    given: list[SourcedValue] = []
    problems: list[ConfigProblem] = []
    spelt = {section: {_plain(name): name for name in known} for section, known in (names or {}).items()}
    for name in sorted(environment):
        if name.startswith(PREFIX) and SEPARATOR in name and not name.endswith(COMPLETION) and environment[name]:
            try:
                given += _sectioned(name, environment, spelt)
            except (BadOption, ConfigurationError) as error:
                problems.append(ConfigProblem(name, str(error)))
    for name, path in SHORT.items():
        key = find(path)
        assert isinstance(key, Key)
        try:
            text = secret(name, environment) if key.secret else environment.get(name, "")
        except ConfigurationError as error:
            problems.append(ConfigProblem(f"{name}{FILE}", str(error)))
            continue
        if text:
            origin = name if environment.get(name) else name + FILE
            given.append(SourcedValue(path, key.from_text(text), origin))
    return given, problems


def _sectioned(
    name: str, environment: Mapping[str, str], spelt: Mapping[str, Mapping[str, str]]
) -> Iterator[SourcedValue]:
    """JOBYARD_WORKER__CONCURRENCY, JOBYARD_QUEUES__MAIL__MAX_RUNNING, JOBYARD_STORE__URL_FILE."""
    parts = name.removeprefix(PREFIX).lower().split(SEPARATOR)
    is_file = parts[-1].endswith(FILE.lower())
    if is_file:
        parts[-1] = parts[-1].removesuffix(FILE.lower())
    if len(parts) == 3 and (parts[0] in NAMED or parts[:2] == ["store", "queues"]):
        place = 2 if parts[0] == "store" else 1
        known = spelt.get(parts[place - 1], {})
        every = parts[place] == "all" and "queues" in parts[:2]
        parts[place] = "*" if every else known.get(parts[place], parts[place])
    path = tuple(parts)
    key = find(path)
    if is_file and not (isinstance(key, Key) and key.secret):
        raise BadOption(f"{'.'.join(path)} is not a secret. Set {name.removesuffix(FILE)} instead.")
    text = secret(name.removesuffix(FILE), environment) if is_file else environment[name]
    if isinstance(key, Key):
        yield SourcedValue(path, key.from_text(text), name)
    elif path in (("store", "queues"), ("queues",)):
        yield from _map(path, text, name)
    else:
        example = next(iter(SECTIONS.get(path[0], {"…": None}))) if path[0] in TOP else "…"
        raise BadOption(f"This is a section. Name one of its keys, as in {name}{SEPARATOR}{example.upper()}.")


def _map(path: Path, text: str, name: str) -> Iterator[SourcedValue]:
    value = parse_json(text)
    if not isinstance(value, dict):
        raise BadOption(f'{".".join(path)} must be a JSON object with names of queues, such as {{"mail": …}}.')
    for each, below in value.items():
        key = find((*path, each))
        if isinstance(key, Key):
            yield SourcedValue((*path, each), below, name)
        elif isinstance(below, dict):
            for word, setting in below.items():
                find((*path, each, word))
                yield SourcedValue((*path, each, word), setting, name)
        else:
            raise BadOption(f"{'.'.join(path)}.{each} must be a JSON object with settings.")


def is_generic(origin: str, environment: Mapping[str, str]) -> bool:
    """Whether a value comes from a variable that is not jobyard's own, such as PORT or REDIS_HOST.

    >>> is_generic("PORT", {"PORT": "80"}), is_generic("JOBYARD_SERVER__PORT", {}), is_generic("--port", {})
    (True, False, False)
    """
    name = origin.partition(",")[0].removesuffix(FILE)
    return not name.startswith(PREFIX) and (name in environment or name + FILE in environment)


def redis_address(environment: Mapping[str, str]) -> SourcedValue | None:
    """The store URL from REDIS_HOST, REDIS_PORT and REDIS_DB; the password is read when the store is made."""
    host = environment.get(REDIS_HOST.variable)
    if not host:
        return None
    numbers: list[int] = []
    for setting, most in ((REDIS_PORT, 65535), (REDIS_DB, 1_000_000)):
        text = environment.get(setting.variable) or setting.default
        if not text.isdecimal() or int(text) > most:
            raise ConfigurationError(
                f"{setting.variable} must be a number up to {most}, not {text!r}. "
                f"Correct it, or set JOBYARD_STORE, or unset {REDIS_HOST.variable}."
            )
        numbers.append(int(text))
    port, database = numbers
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else quote(host, safe="[]:.-_")
    origin = ", ".join(each.variable for each in (REDIS_HOST, REDIS_PORT, REDIS_DB) if environment.get(each.variable))
    return SourcedValue(("store", "url"), f"redis://{shown}:{port}/{database}", origin)


def _plain(name: str) -> str:
    """
    >>> _plain("test-execution")
    'test_execution'
    """
    return re.sub(r"[^a-z0-9]", "_", name.lower())
