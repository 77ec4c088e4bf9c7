"""`jobyard config`: the configuration, and where each value comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import click
import msgspec
from rich.markup import escape

from jobyard.cli.session import Session, async_command
from jobyard.config import LoadedConfig
from jobyard.config.keys import Key, Path, find, number
from jobyard.config.settings import LOG_LEVEL, SETTINGS
from jobyard.config.store_url import shown

DEFAULT = "default"


@click.group()
def config() -> None:
    """Show the configuration.

    \b
    Example:
      jobyard config show --origin
    """


@config.command()
@click.option(
    "--origin", is_flag=True, help="Also show where each value comes from: a line of the file, a variable, a flag."
)
@async_command
async def show(session: Session, origin: bool) -> None:
    """Print every value, without secrets.

    \b
    Example:
      jobyard config show --origin
      jobyard --config /etc/jobyard.yaml config show --json
    """
    values = list(every_value(session.found))
    file = None if session.found.file is None else str(session.found.file)
    shown_fields = ("key", "value", "origin") if origin else ("key", "value")
    listed = [{field: getattr(each, field) for field in shown_fields} for each in values]
    rows = ([escape(as_text(value)) for value in each.values()] for each in listed)
    headings = [f"~{field}" for field in shown_fields]
    session.print_table({"file": file, "values": listed}, headings, rows, "No values.")


class ConfigValue(NamedTuple):
    key: str
    value: Any
    origin: str


def every_value(found: LoadedConfig) -> Iterator[ConfigValue]:
    """All values in the order of the settings, then those of queues, by name."""
    values = msgspec.to_builtins(found.configuration)
    for setting in SETTINGS:
        path = tuple(setting.key.split(".")) if setting.key else ()
        if path and path != ("store", "queues") and path not in found.given:
            section = values.get(path[0], {})
            default = number(setting.default) if setting is LOG_LEVEL or path[0] == "queues" else section.get(path[1])
            yield ConfigValue(setting.key, masked(path, default), DEFAULT)
        elif path in found.given:
            yield _given(found, path)
    known = {tuple(setting.key.split(".")) for setting in SETTINGS}
    for path in sorted(found.given):
        if path not in known:
            yield _given(found, path)


def _given(found: LoadedConfig, path: Path) -> ConfigValue:
    given = found.given[path]
    return ConfigValue(".".join(path), masked(path, given.value), given.origin)


def masked(path: Path, value: Any) -> Any:
    """
    >>> masked(("store", "url"), "redis://:secret@host:6379/0")
    'redis://host:6379/0'
    """
    key = find(path)
    return shown(value) if isinstance(key, Key) and key.secret and isinstance(value, str) else value


def as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
