"""Options of the root command behind a command: `jobyard up --store …` is `jobyard --store … up`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import click

HELP = "jobyard.help"  # in the context's meta: whether --help was asked for


def hoist(root: click.Group, context: click.Context, words: Sequence[str]) -> list[str]:
    """The words with the options of the root before the command; of an option given twice, the last one still wins.

    An option that the command has itself stays where it is, and so does everything behind `--`, and behind the first
    argument of a command that passes the rest to a program.
    """
    command: click.Command = root
    before: list[str] = []
    behind: list[str] = []
    left = iter(words)
    for word in left:
        if word == "--":
            behind += [word, *left]
        elif (own := _option(command, context, word)) is not None:
            context.meta[HELP] = context.meta.get(HELP, False) or word in context.help_option_names
            target = before if command is root else behind
            target += _with_value(own, word, left)
        elif (option := _option(root, context, word)) is not None and not option.is_eager:
            before += _with_value(option, word, left)
        else:
            behind.append(word)
            if word.startswith("-"):
                continue
            if isinstance(command, click.Group):
                command = command.get_command(context, word) or click.Command(word)
            elif not command.context_settings.get("allow_interspersed_args", True):
                behind += left
    return before + behind


def _option(command: click.Command, context: click.Context, word: str) -> click.Option | None:
    """The option that the word names, as `--name`, `--name=value` or `-n`."""
    name = word.partition("=")[0] if word.startswith("--") else word
    if not name.startswith("-"):
        return None
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option) and name in (*parameter.opts, *parameter.secondary_opts):
            return parameter
    return None


def _with_value(option: click.Option | None, word: str, left: Iterator[str]) -> list[str]:
    if option is None or option.is_flag or option.count or (word.startswith("--") and "=" in word):
        return [word]
    return [word, *islice(left, option.nargs)]
