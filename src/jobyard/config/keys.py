"""The keys of the configuration: the check of each value, and how it is read from the text of a variable."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, NamedTuple, TypeAlias

import msgspec

from jobyard.config import platform_keys, runner_keys
from jobyard.config.log_levels import parse_levels
from jobyard.config.sections import MAX_CONCURRENCY, MAX_TCP_SOCKETS
from jobyard.config.store_url import yes_or_no
from jobyard.domain import options
from jobyard.domain.instant import instant, rfc3339
from jobyard.domain.options import Option
from jobyard.errors import BadOption, did_you_mean
from jobyard.executors.sandbox.bounds import MAXIMUMS
from jobyard.operations.schedule_options import BY_FIELD
from jobyard.operations.webhooks.signature import BadSecret, key_of
from jobyard.sandbox.protocol import Tier

_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.\[\]:-]+/?")
MAX_PROCESSES = 1000
MAX_BYTES = 1 << 30

Path: TypeAlias = tuple[str, ...]
# Takes the full name of the key and a value; returns the value to use or raises BadOption.
Check: TypeAlias = Callable[[str, Any], Any]


def _same(text: str) -> Any:
    return text


class Key(NamedTuple):
    """One key: its check, its reader for variables, and whether its value is a secret."""

    check: Check
    from_text: Callable[[str], Any] = _same
    secret: bool = False


def parse_number(text: str) -> Any:
    """
    >>> parse_number("8"), parse_number("0.5"), parse_number("many")
    (8, 0.5, 'many')
    """
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def parse_bool(text: str) -> Any:
    try:
        return yes_or_no(text)
    except ValueError:
        return text


def parse_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def parse_list(text: str) -> Any:
    """
    >>> parse_list("mail, slow")
    ['mail', 'slow']
    """
    return [part.strip() for part in text.split(",") if part.strip()]


def integer(least: int, most: int) -> Key:
    return Key(options.integer(least, most), parse_number)


def _amount(name: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= options.MAX_LIMIT:
        raise BadOption(f"{name} must be a number above 0, not {value!r}.")
    return float(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadOption(f"{name} must be text, not {value!r}.")
    return value.strip()


def _url(name: str, value: Any) -> str:
    if not isinstance(value, str) or "://" not in value:
        raise BadOption(f"{name} must be the URL of a store, such as sqlite:///jobs.db.")
    return value.strip()


def _root_path(name: str, value: Any) -> str:
    """
    >>> _root_path("server.root_path", "/jobs/"), _root_path("server.root_path", "/")
    ('/jobs', '')
    """
    if not isinstance(value, str) or (value and _ROOT_PATH.fullmatch(value) is None):
        raise BadOption(f"{name} must be a path such as /jobs, not {value!r}.")
    return value.rstrip("/")


def _origin(name: str, value: Any) -> str:
    if not isinstance(value, str) or _ORIGIN.fullmatch(value) is None:
        raise BadOption(f"{name} must be an origin such as https://jobs.example.com, without a path, not {value!r}.")
    return value.lower().rstrip("/")


def _names(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise BadOption(f"{name} must be a list of names, not {value!r}.")
    return tuple(options.check_name("queue", each) for each in value)


def _users(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise BadOption(f"{name} must be a list of users, not {value!r}.")
    return tuple(options.check_name("user", str(each)) for each in value)


def _webhook_secret(name: str, value: Any) -> str:
    try:
        key_of(_text(name, value))
    except BadSecret as error:
        raise BadOption(f"{name}: {error}", option=name) from None
    return str(value)


def _level(name: str, value: Any) -> str:
    parse_levels(_text(name, value), "info")
    return str(value)


def _service_name(name: str, value: Any) -> str:
    return options.check_name(name, _text(name, value))


def _one_of(*words: str) -> Check:
    def check(name: str, value: Any) -> str:
        if value not in words:
            raise BadOption(f"{name} must be {' or '.join(words)}, not {value!r}.{did_you_mean(str(value), words)}")
        return str(value)

    return check


def _seconds(name: str, value: Any) -> float:
    return float(options.check_seconds(name, value))


def _positive(name: str, value: Any) -> float:
    return float(options.check_positive_seconds(name, value))


def _run_seconds(name: str, value: Any) -> float:
    most = MAXIMUMS["max_time_seconds"]
    if not _positive(name, value) <= most:
        raise BadOption(f"{name} must be at most {most} seconds, not {value!r}.")
    return float(value)


def _kept(name: str, value: Any) -> int:
    """A number; or, as BullMQ has it, true (remove all) and false (remove none)."""
    if isinstance(value, bool):
        return 0 if value else options.MAX_LIMIT
    return options.check_integer(name, value, 0, options.MAX_LIMIT)


def _kept_text(text: str) -> Any:
    """
    >>> _kept_text("100"), _kept_text("1"), _kept_text("true")
    (100, 1, True)
    """
    found = parse_number(text)
    return parse_bool(text) if isinstance(found, str) else found


def _moment(name: str, value: Any) -> str:
    """RFC 3339 text; YAML may already have parsed it as a date or a time."""
    text = value.isoformat() if isinstance(value, date | datetime) else value
    try:
        return rfc3339(instant(text))
    except (ValueError, TypeError) as error:
        raise BadOption(f"{name} must be a time like 2026-11-16T09:30:00Z, not {value!r}.") from error


SECTIONS: Mapping[str, Mapping[str, Key]] = {
    "store": {"url": Key(_url, secret=True)},
    "worker": {
        "app": Key(_text),
        "concurrency": integer(1, MAX_CONCURRENCY),
        "queues": Key(_names, parse_list),
        "platforms": Key(_names, parse_list),
        "memory_limit": Key(platform_keys.memory_size),
        "lease_seconds": Key(_positive, parse_number),
        "shutdown_timeout": Key(_seconds, parse_number),
        "processes": integer(1, MAX_PROCESSES),
        "health_host": Key(_text),
        "health_port": integer(1, 65535),
    },
    "server": {
        "host": Key(_text),
        "port": integer(0, 65535),
        "root_path": Key(_root_path),
        "environment": Key(_text),
        "public_origin": Key(_origin),
        "tls_cert": Key(_text),
        "tls_key": Key(_text),
        "max_body_bytes": integer(1, MAX_BYTES),
        "requests_per_second": Key(_amount, parse_number),
        "request_burst": integer(1, options.MAX_LIMIT),
        "header_seconds": Key(_positive, parse_number),
        "max_connections": integer(1, options.MAX_LIMIT),
        "max_connections_per_address": integer(1, options.MAX_LIMIT),
        "audit_keep": integer(1, options.MAX_LIMIT),
        "submitters_create_queues": Key(options.check_boolean, parse_bool),
        "lame_duck_seconds": Key(_seconds, parse_number),
        "shutdown_timeout": Key(_seconds, parse_number),
    },
    "scheduler": {
        "enabled": Key(options.check_boolean, parse_bool),
        "shortest_interval_seconds": Key(_positive, parse_number),
        "health_host": Key(_text),
        "health_port": integer(1, 65535),
    },
    "sandbox": {
        "enabled": Key(options.check_boolean, parse_bool),
        "socket": Key(_text),
        "min_tier": Key(_one_of(*Tier)),
        "slots": integer(1, MAX_CONCURRENCY),
        "languages": Key(_text),
        "pool": integer(0, MAX_CONCURRENCY),
        "unix_sockets": Key(options.check_boolean, parse_bool),
        "tcp_sockets": integer(0, MAX_TCP_SOCKETS),
        "allow_users": Key(_users, parse_list),
        "reject_when_unavailable": Key(options.check_boolean, parse_bool),
        "webhook_secret": Key(_webhook_secret, secret=True),
        "webhooks_to_private": Key(options.check_boolean, parse_bool),
        "max_time_seconds": Key(_run_seconds, parse_number),
        **{name: integer(1, most) for name, most in MAXIMUMS.items() if name != "max_time_seconds"},
    },
    "runners": {
        "enabled": Key(options.check_boolean, parse_bool),
        "max_total": integer(0, options.MAX_LIMIT),
        "max_per_org": integer(0, options.MAX_LIMIT),
        "org_limits": Key(runner_keys.org_limits, parse_json),
        "github_url": Key(runner_keys.http_url),
        "github_api_url": Key(runner_keys.http_url),
        "github_token": Key(runner_keys.secret_text, secret=True),
        "github_app_id": Key(runner_keys.app_id),
        "github_private_key": Key(runner_keys.secret_text, secret=True),
        "github_ca_file": Key(_text),
        "webhook_secrets": Key(runner_keys.secrets, runner_keys.split_secrets, secret=True),
        "org_hooks": Key(runner_keys.org_hooks, parse_json),
        "instance": Key(_text),
        "clusters": Key(runner_keys.clusters, parse_json),
        "profiles": Key(runner_keys.profiles, parse_json),
        "tick_seconds": Key(_positive, parse_number),
        "full_seconds": Key(_positive, parse_number),
        "redelivery_seconds": Key(_positive, parse_number),
        "launches": integer(1, MAX_CONCURRENCY),
        "warm_url": Key(runner_keys.http_url),
    },
    "workflows": {"folder": Key(_text)},
    "log": {"level": Key(_level), "format": Key(_one_of("text", "json")), "service_name": Key(_service_name)},
    "alerts": {
        "urls": Key(runner_keys.secrets, runner_keys.split_secrets, secret=True),
        "queue_length": Key(options.optional(options.integer(1, options.MAX_LIMIT)), parse_number),
        "worker_lost": Key(options.check_boolean, parse_bool),
        "interval_seconds": Key(_positive, parse_number),
        "repeat_seconds": Key(_positive, parse_number),
    },
    "tracing": {"enabled": Key(options.check_boolean, parse_bool), "as_link": Key(options.check_boolean, parse_bool)},
}
# The value of each name under `store.queues`, and the keys under each name of `queues`.
STORE_OF_A_QUEUE = Key(_url, secret=True)
LIMIT = Key(options.optional(options.integer(0, options.MAX_LIMIT)), parse_number)
QUEUE: Mapping[str, Key] = {
    "max_running": LIMIT,
    "max_per_group": LIMIT,
    "max_waiting": LIMIT,
    "max_waiting_per_group": LIMIT,
    "keep_completed": Key(_kept, _kept_text),
    "keep_failed": Key(_kept, _kept_text),
    "keep_completed_seconds": Key(_seconds, parse_number),
    "keep_failed_seconds": Key(_seconds, parse_number),
    "keep_at_most": integer(0, options.MAX_LIMIT),
    "max_attempts": integer(1, options.MAX_ATTEMPTS),
}


def _schedule_key(option: Option) -> Key:
    if option.field in ("expression", "timezone"):
        return Key(_text)  # what the text means is checked with the schedule as a whole

    def check(name: str, value: Any) -> Any:
        """The value stays as written: `make_schedule` converts it. YAML reads a time as a date or datetime."""
        if option.type is datetime:
            return options.optional(_moment)(name, value)
        option.check(name, value)
        return value

    read = {"payload": parse_json, "enabled": parse_bool}.get(
        option.name, parse_number if option.type in (int, float) else _same
    )
    return Key(check, read)


# Keys under each name of `schedules`.
SCHEDULE: Mapping[str, Key] = {field: _schedule_key(option) for field, option in BY_FIELD.items() if field != "name"}
# Sections of named entries, each with keys of its own.
NAMED: Mapping[str, tuple[str, Mapping[str, Key]]] = {"queues": ("queue", QUEUE), "schedules": ("schedule", SCHEDULE)}
# The platforms are one value: a platform without settings is a platform too.
PLATFORMS = Key(platform_keys.parse_platforms, platform_keys.platforms_text)
TOP = (*SECTIONS, *NAMED, "platforms")


def find(path: Path) -> Key | Mapping[str, Any]:
    """The key at a path, or the keys below it. Raises BadOption for an unknown one, with a suggestion."""
    match path:
        case ():
            return dict.fromkeys(TOP)
        case ("queues",) | ("schedules",) | ("store", "queues"):
            return {}
        case ("platforms",):
            return PLATFORMS
        case ("store", "queues", name):
            options.check_name("queue", name)
            return STORE_OF_A_QUEUE
        case ("queues" | "schedules" as section, name):
            what, words = NAMED[section]
            options.check_name(what, name)
            return words
        case ("queues" | "schedules" as section, _, word):
            what, words = NAMED[section]
            return _in(words, word, f"a {what}")
        case (section,):
            if section not in SECTIONS:
                raise BadOption(f"Unknown section {section}.{did_you_mean(section, TOP)}")
            return dict(SECTIONS[section]) | ({"queues": None} if section == "store" else {})
        case (section, word):
            return _in(SECTIONS.get(section, {}), word, section)
    raise BadOption(f"Unknown key {'.'.join(path)}.")


def _in(keys: Mapping[str, Key], word: str, where: str) -> Key:
    if word not in keys:
        raise BadOption(f"Unknown key {word} in {where}.{did_you_mean(word, keys)}")
    return keys[word]
