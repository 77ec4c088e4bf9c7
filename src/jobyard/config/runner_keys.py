"""The keys of section `runners`: checks of its profiles, clusters and secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from jobyard.domain import options
from jobyard.domain.runners.cluster import Cluster, KubernetesCluster, ProcessCluster
from jobyard.domain.runners.profile import RunnerProfile, RunnerTimeouts
from jobyard.domain.type_words import readable
from jobyard.errors import BadOption, did_you_mean

_UNKNOWN_FIELD = re.compile(r"unknown field `(\w+)`")
_PART = re.compile(r"\.(\w+)|\[(\d+)\]")
BACKENDS = tuple(str(struct.__struct_config__.tag) for struct in (KubernetesCluster, ProcessCluster))
_FIELDS = {
    name
    for struct in (RunnerProfile, RunnerTimeouts, KubernetesCluster, ProcessCluster)
    for name in struct.__struct_fields__
}


def convert(name: str, value: Any, type_: Any) -> Any:
    """The value as a struct. Raises BadOption with the path of what is wrong."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        message = str(error)
        unknown = _UNKNOWN_FIELD.search(message)
        hint = did_you_mean(unknown[1], _FIELDS) if unknown else ""
        where = message.partition(" - at `$")[2].rstrip("`")
        reason = readable(message.partition(" - at `")[0].removeprefix("Object "))
        expected, got, _ = reason.partition(", got ")
        wrong = _value_at(value, where) if got else None
        if isinstance(wrong, str | int | float):
            reason = f"{expected}, got {options.shown(wrong)}"
        raise BadOption(f"{name}{where}: {reason}.{hint}", option=name) from None


def _value_at(value: Any, path: str) -> Any:
    """The value at a path of msgspec; None if the path does not say which.

    >>> _value_at([{"timeouts": {"idle": "abc"}}], "[0].timeouts.idle")
    'abc'
    """
    if "[...]" in path:
        return None
    for name, index in _PART.findall(path):
        value = value[name] if name else value[int(index)]
    return value


def profiles(name: str, value: Any) -> tuple[RunnerProfile, ...]:
    if not isinstance(value, list | tuple):
        raise BadOption(f"{name} must be a list of profiles, each with a name and labels.", option=name)
    found: list[RunnerProfile] = convert(name, list(value), list[RunnerProfile])
    for number, profile in enumerate(found):
        where = f"{name}[{number}]"
        options.check_name(f"{where}.name", profile.name)
        if not profile.labels or not all(label.strip() for label in profile.labels):
            raise BadOption(f"{where}.labels needs at least one label, none of them blank.", option=name)
        if profile.warm < 0 or (profile.max_running is not None and profile.max_running < 0):
            raise BadOption(f"{where}: warm and max_running cannot be negative.", option=name)
        if any(getattr(profile.timeouts, field) <= 0 for field in RunnerTimeouts.__struct_fields__):
            raise BadOption(f"{where}.timeouts must be above 0 seconds.", option=name)
    names = [profile.name for profile in found]
    if twice := sorted({each for each in names if names.count(each) > 1}):
        raise BadOption(f"{name} has two profiles named {twice[0]}.", option=name)
    return tuple(found)


def clusters(name: str, value: Any) -> dict[str, Cluster]:
    if not isinstance(value, Mapping):
        raise BadOption(f"{name} must be a mapping of names to clusters, each with a backend.", option=name)
    found: dict[str, Cluster] = {}
    for key, given in value.items():
        options.check_name(f"{name} name", key)
        one = {"backend": "kubernetes", **given} if isinstance(given, Mapping) else given
        backend = one.get("backend") if isinstance(one, Mapping) else None
        if isinstance(one, Mapping) and backend not in BACKENDS:
            where, allowed = f"{name}.{key}.backend", " or ".join(BACKENDS)
            hint = did_you_mean(str(backend)[:50], BACKENDS)
            raise BadOption(f"{where} must be {allowed}, not {options.shown(backend)}.{hint}", option=name)
        found[key] = convert(f"{name}.{key}", one, Cluster)
    return found


def org_limits(name: str, value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise BadOption(f"{name} must be a mapping of organizations to limits.", option=name)
    return {
        options.check_name("organization", org): options.check_integer(f"{name}.{org}", limit, 0, options.MAX_LIMIT)
        for org, limit in value.items()
    }


def org_hooks(name: str, value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise BadOption(f"{name} must be a mapping of organizations to ids of their webhooks.", option=name)
    return {
        options.check_name("organization", org): options.check_integer(f"{name}.{org}", hook, 1, 1 << 53)
        for org, hook in value.items()
    }


def secrets(name: str, value: Any) -> tuple[str, ...]:
    """One secret, or several while they are rotated. The message never contains a value."""
    given = [value] if isinstance(value, str) else value
    is_valid = isinstance(given, list | tuple) and given and all(isinstance(each, str) and each for each in given)
    if not is_valid:
        raise BadOption(f"{name} must be a secret, or a list of secrets.", option=name)
    return tuple(given)


def secret_text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadOption(f"{name} must be text.", option=name)
    return value.strip()


def app_id(name: str, value: Any) -> int | str:
    """The number of a GitHub App, or its client id."""
    is_text = isinstance(value, str) and value.strip()
    if isinstance(value, bool) or not (isinstance(value, int) or is_text):
        raise BadOption(f"{name} must be the id of a GitHub App, not {value!r}.", option=name)
    return value if isinstance(value, int) else int(value) if value.isdecimal() else value.strip()


def http_url(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.startswith(("http://", "https://")) or "@" in value:
        raise BadOption(f"{name} must be an address like https://github.example.com.", option=name)
    return value.rstrip("/")


def split_secrets(text: str) -> Any:
    """Secrets in a variable or a file: one per line.

    >>> split_secrets("new\\nold\\n")
    ['new', 'old']
    """
    return [line.strip() for line in text.splitlines() if line.strip()]
