"""The platforms of the configuration, and sizes of memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from jobyard.domain.options import MAX_LIMIT, check_integer, check_name, choice
from jobyard.domain.platforms import Platform, WorkerClass, known_platforms
from jobyard.errors import BadOption, did_you_mean

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
MAX_MEMORY = 1 << 50
FIELDS = ("max_running", "class")


def parse_platforms(where: str, value: Any) -> dict[str, Platform]:
    """A list of names, or a mapping of names to settings. Raises BadOption.

    >>> parse_platforms("platforms", ["ably"])
    {'ably': Platform(max_running=1, worker_class=None)}
    """
    if isinstance(value, list | tuple):
        value = dict.fromkeys(check_name(where, name) for name in value)
    if not isinstance(value, Mapping):
        raise BadOption(f"{where} must be a list of names, or a mapping of names to settings, not {value!r}.")
    return {check_name(where, name): _platform(f"{where}.{name}", given) for name, given in value.items()}


def _platform(where: str, given: Any) -> Platform:
    if isinstance(given, Platform):
        return given
    if given is None:
        return Platform()
    if not isinstance(given, Mapping):
        raise BadOption(f"{where} must be a mapping with {' and '.join(FIELDS)}, not {given!r}.")
    for word in given:
        if word not in FIELDS:
            raise BadOption(f"Unknown key {word} in {where}.{did_you_mean(str(word), FIELDS)}")
    most, worker_class = given.get("max_running", 1), given.get("class")
    return Platform(
        max_running=None if most is None else check_integer(f"{where}.max_running", most, 0, MAX_LIMIT),
        worker_class=None if worker_class is None else choice(WorkerClass)(f"{where}.class", worker_class),
    )


def check_platforms(platforms: Iterable[str], chosen: Iterable[str]) -> None:
    """Raise BadOption for a name that is not a platform, with the known ones."""
    known = known_platforms(platforms)
    for name in chosen:
        if name not in known:
            raise BadOption(
                f"Unknown platform {name}. Known platforms: {', '.join(known)}.{did_you_mean(name, known)} "
                "A new one is added under platforms in jobyard.yaml, or in JOBYARD_PLATFORMS."
            )


def platforms_text(text: str) -> Any:
    """The text of a variable: names separated by commas, or JSON.

    >>> platforms_text("ably, kurly"), platforms_text('{"ably": {"class": "api"}}')
    (['ably', 'kurly'], {'ably': {'class': 'api'}})
    """
    if text.lstrip().startswith(("{", "[")):
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return text
    return [part.strip() for part in text.split(",") if part.strip()]


def memory_size(name: str, value: Any) -> int:
    """Bytes; 0 is no limit. Units are powers of 1024, as those of Docker and Kubernetes (Gi).

    >>> memory_size("memory_limit", "4G") == 4 << 30, memory_size("memory_limit", "512MiB") == 512 << 20
    (True, True)
    """
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is not None:
        value = round(float(found[1]) * UNITS[found[2].upper()])
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_MEMORY:
        raise BadOption(f"{name} must be a size such as 4G or 512M, or 0 for no limit, not {value!r}.")
    return value
