"""`jobyard config`: the configuration, and where each value comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import click
import msgspec
from rich.markup import escape

from jobyard.cli.command_group import CommandGroup
from jobyard.cli.session import Session, async_command
from jobyard.config import LoadedConfig
from jobyard.config.keys import Key, Path, find, parse_number
from jobyard.config.settings import LOG_LEVEL, SETTINGS
from jobyard.config.store_url import shown

DEFAULT = "default"

HIDDEN = "***"


@click.group(cls=CommandGroup)
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
        if len(path) > 1 and path != ("store", "queues") and path not in found.given:
            section = values.get(path[0], {})
            default = (
                parse_number(setting.default) if setting is LOG_LEVEL or path[0] == "queues" else section.get(path[1])
            )
            yield ConfigValue(setting.key, masked(path, default), DEFAULT)
        elif path in found.given:
            yield _given(found, path)
    known = {tuple(setting.key.split(".")) for setting in SETTINGS}
    for path in sorted(found.given):
        if path not in known:
            yield _given(found, path)


def _given(found: LoadedConfig, path: Path) -> ConfigValue:
    given = found.given[path]
    return ConfigValue(".".join(path), masked(path, msgspec.to_builtins(given.value)), given.origin)


def masked(path: Path, value: Any) -> Any:
    """
    >>> masked(("store", "url"), "redis://:secret@host:6379/0")
    'redis://host:6379/0'
    >>> masked(("runners", "github_token"), "ghp_1"), masked(("runners", "webhook_secrets"), ("new", "old"))
    ('***', '***')
    """
    if path == ("runners", "profiles"):
        return without_variables(value)
    key = find(path)
    if not (isinstance(key, Key) and key.secret):
        return value
    if value in (None, ()):
        return None
    return shown(value) if isinstance(value, str) and "://" in value else HIDDEN


def without_variables(value: Any) -> Any:
    """Profiles without the values of environment variables in their pod templates: they may be passwords.

    >>> without_variables({"spec": {"containers": [{"env": [{"name": "KEY", "value": "secret"}], "image": "a"}]}})
    {'spec': {'containers': [{'env': [{'name': 'KEY', 'value': '***'}], 'image': 'a'}]}}
    """
    if isinstance(value, list | tuple):
        return [without_variables(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {key: without_variables(each) for key, each in value.items()}
    for variable in found["env"] if isinstance(found.get("env"), list) else ():
        if isinstance(variable, dict) and variable.get("value"):
            variable["value"] = HIDDEN
    return found


def as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(map(as_text, value))
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
