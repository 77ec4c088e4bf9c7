"""The hint for an option that a command does not have: the option that was probably meant."""

from __future__ import annotations

from collections.abc import Iterator

import click

from jobyard.errors import did_you_mean

# Words that other tools use for the same option.
SAME = ({"--tz", "--timezone", "--time-zone", "--zone"}, {"--limit", "--count"})


def unknown_option(error: click.NoSuchOption, root: click.Group) -> click.UsageError:
    """The same error with a hint; the options of the root command may follow each command."""
    context, name = error.ctx, error.option_name
    hint = ""
    if context is not None:
        known = [*_names(context.command), *_names(root)]
        hint = _elsewhere(context, name) or _similar(name, known)
    return click.UsageError(f'No such option "{name}".{hint}', context)


def _similar(name: str, known: list[str]) -> str:
    same = [word for words in SAME if name in words for word in known if word in words]
    if same:
        return f' Did you mean "{same[0]}"?'
    # Without the dashes, which would make all options similar.
    return did_you_mean(name[2:], [word[2:] for word in known]).replace('"', '"--', 1)


def _elsewhere(context: click.Context, name: str) -> str:
    """The list of a group that shows a list without a subcommand: `jobyard jobs` has fewer options."""
    command = context.command
    if not isinstance(command, click.Group) or not command.invoke_without_command:
        return ""
    listing = command.get_command(context, "list")
    if listing is None or name not in _names(listing):
        return ""
    return f" `{context.command_path} list` has it."


def _names(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden and not parameter.is_eager:
            yield from (name for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("--"))
