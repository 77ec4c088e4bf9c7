"""Command-line flags made from the tables of job and schedule options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import click

from jobyard.domain.instant import instant, rfc3339
from jobyard.domain.options import Option

Command = Callable[..., Any]


def option_flags(
    options: Iterable[Option], *, by_field: bool = False, defaults: Mapping[str, Any] | None = None
) -> Callable[[Command], Command]:
    """One flag per option, given to the command by name or by field; `defaults`, by field, are shown in the help."""

    def add(command: Command) -> Command:
        for option in reversed([option for option in options if option.in_cli]):
            command = _flag(option, option.field if by_field else option.name, (defaults or {}).get(option.field))(
                command
            )
        return command

    return add


def _flag(option: Option, parameter: str, default: Any) -> Callable[[Command], Command]:
    flag = "--" + option.name.replace("_", "-")
    help_text = option.summary if default is None else f"{option.summary}  [default: {default}]"
    if option.type is tuple:
        return click.option(flag.removesuffix("s"), parameter, multiple=True, metavar=option.metavar, help=help_text)
    if issubclass(option.type, StrEnum):
        return click.option(flag, parameter, type=click.Choice([str(each) for each in option.type]), help=help_text)
    if option.type is datetime:
        return click.option(flag, parameter, callback=_time, metavar=option.metavar, help=help_text)
    return click.option(flag, parameter, type=option.type, metavar=option.metavar, help=help_text)


def given_flags(found: Mapping[str, Any]) -> Any:
    """The options that were given: a flag that is absent is None, or empty if it is repeatable."""
    return {word: value for word, value in found.items() if value is not None and value != ()}


def _time(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else rfc3339(instant(value))
    except ValueError as error:
        raise click.BadParameter(f"{error}.", context, parameter) from error
