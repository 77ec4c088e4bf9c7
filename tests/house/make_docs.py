"""Writes the documents that are made from code: `python -m tests.house.make_docs`."""

from __future__ import annotations

from collections.abc import Iterator

import click
from tests.house.repository import DOCS

from jobyard.main.cli import cli
from jobyard.main.settings import SETTINGS

COMMAND = "`python -m tests.house.make_docs`"
WIDTH = 100


def helps(command: click.Command, words: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """The help of a command and of all below it."""
    context = click.Context(
        command,
        info_name=command.name if parent else words,
        parent=parent,
        help_option_names=None if parent else command.context_settings["help_option_names"],
        terminal_width=WIDTH,
        max_content_width=WIDTH,
    )
    yield words, command.get_help(context)
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from helps(command.commands[name], f"{words} {name}", context)


def command_line() -> str:
    parts = list(helps(cli, "jobyard"))
    lines = ["# Command line", "", f"Made by {COMMAND} from the program's own help.", ""]
    lines += ["| command | |", "|---|---|"]
    for name in sorted(cli.commands):
        lines.append(f"| [{name}](#jobyard-{name}) | {cli.commands[name].get_short_help_str(WIDTH)} |")
    for words, text in parts:
        lines += ["", f"## {words}", "", "```", *(line.rstrip() for line in text.splitlines()), "```"]
    return "\n".join(lines) + "\n"


CONFIGURATION = """# Configuration

Made by {command} from [`main/settings.py`](../src/jobyard/main/settings.py).

A flag wins over its variable, a variable over the default. A `JOBYARD_` variable that is not in this list has no
effect; the program says so, with a "did you mean".

| variable | flag | default | what it does |
|---|---|---|---|
{table}

What a queue allows and keeps (`max_running`, `max_per_group`, `max_waiting`, `keep_completed`, …) is declared in the
program with `yard.queue(…)` and written to the store when it opens; limits of groups are set at run time
([command line](cli.md)).
"""


def configuration() -> str:
    table = [
        f"| `{setting.variable}` | {f'`{setting.flag}`' if setting.flag else ''} "
        f"| {f'`{setting.default}`' if setting.default else ''} | {setting.doc} |"
        for setting in SETTINGS
    ]
    return CONFIGURATION.format(command=COMMAND, table="\n".join(table))


MADE = {DOCS / "cli.md": command_line, DOCS / "configuration.md": configuration}


def main() -> None:
    for path, make in MADE.items():
        path.write_text(make(), "utf-8")


if __name__ == "__main__":
    main()
