"""Command-line flags made from the tables of settings, job options and schedule options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import click
from click.core import ParameterSource

from jobyard.cli.times import time_value
from jobyard.config.settings import PREFIX, SETTINGS, Setting
from jobyard.domain.instant import rfc3339
from jobyard.domain.options import Option
from jobyard.errors import BadOption

Command = Callable[..., Any]


def setting_flag(setting: Setting, *names: str, **more: Any) -> Callable[[Command], Command]:
    """The flag of a setting, with its variable, default and help text; `more` overrides them."""
    shown = {"default": setting.default, "show_default": True} if setting.default else {}
    given = {"envvar": setting.variable, "help": setting.doc, **shown, **more}
    return click.option(*(names or (str(setting.flag),)), cls=SettingOption, **given)


class SettingOption(click.Option):
    """A flag with a variable. A generic variable, such as PORT, is read by the configuration: the file overrides it."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        own = isinstance(self.envvar, str) and self.envvar.startswith(PREFIX)
        return super().resolve_envvar_value(ctx) if own else None


def settings_given(context: click.Context) -> dict[str, tuple[str, Any]]:
    """The settings that flags of the running command override: by key, the flag and its value."""
    by_flag = {each.flag: each.key for each in SETTINGS if each.flag and each.key and not each.secret}
    found = {}
    for parameter in context.command.params:
        flag = next((each for each in parameter.opts if each in by_flag), None)
        is_given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if flag is not None and is_given:
            found[by_flag[flag]] = (flag, context.params[parameter.name or ""])
    return found


def limit_flag(most: int, default: int, what: str) -> Callable[[Command], Command]:
    help_text = f"The maximum number of {what}."
    return click.option("--limit", type=click.IntRange(1, most), default=default, show_default=True, help=help_text)


def option_flags(
    options: Iterable[Option], *, by_field: bool = False, defaults: Mapping[str, Any] | None = None
) -> Callable[[Command], Command]:
    """One flag per option, given to the command by name or by field; `defaults`, by field, are shown in the help."""

    def add(command: Command) -> Command:
        for option in reversed([option for option in options if option.in_cli]):
            parameter = option.field if by_field else option.name
            command = _flag(option, parameter, (defaults or {}).get(option.field))(command)
        return command

    return add


def _flag(option: Option, parameter: str, default: Any) -> Callable[[Command], Command]:
    flag = option.cli_flag
    help_text = option.summary if default is None else f"{option.summary}  [default: {default}]"
    if option.type is tuple:
        return click.option(flag, parameter, multiple=True, metavar=option.metavar, help=help_text)
    if issubclass(option.type, StrEnum):
        return click.option(flag, parameter, type=click.Choice([str(each) for each in option.type]), help=help_text)
    if option.type is datetime:
        return click.option(flag, parameter, callback=_time, metavar=option.metavar, help=help_text)
    return click.option(flag, parameter, type=option.type, metavar=option.metavar, help=help_text)


def given_flags(found: Mapping[str, Any]) -> Any:
    """The options that were given: a flag that is absent is None, or empty if it is repeatable."""
    return {word: value for word, value in found.items() if value is not None and value != ()}


def with_flags(error: BadOption, command: click.Command) -> None:
    """Write the flag of the command where the message begins with the name of an option."""
    flags = {}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for word in (parameter.name or "", *(opt.lstrip("-").replace("-", "_") for opt in parameter.opts)):
                flags[word] = parameter.opts[0]
    for each in (error, *error.others):
        word, space, rest = str(each).partition(" ")
        if word in flags:
            each.args = (f"{flags[word]}{space}{rest}",)


def _time(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    found = time_value(context, parameter, value)
    return None if found is None else rfc3339(found)
