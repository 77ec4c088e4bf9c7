"""Writes the documents that are made from code: `python -m tests.house.make_docs`."""

from __future__ import annotations

from collections.abc import Iterator

import click
from tests.house.repository import DOCS

from jobyard.cli import cli
from jobyard.config.settings import SETTINGS, STORE_QUEUES

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

Made by {command} from [`config/settings.py`](../src/jobyard/config/settings.py).

A flag wins over variables, a variable over the file, the file over the default. The file is `jobyard.yaml` in the
current folder, or the one that `--config` names; it needs `pip install 'jobyard[server]'`. `jobyard check` says what is
wrong with all of it, `jobyard config show --origin` where each value came from.

| variable | in the file | flag | default | what it does |
|---|---|---|---|---|
{table}

Every key of the file has a variable, also where another is named here: `JOBYARD_` and the parts of the key with two
underscores between them, as in `JOBYARD_WORKER__CONCURRENCY`. Where both are set, the short one wins. A secret may
come from a file: {secrets} with `_FILE` at their end name one. An unknown key is an error; an unknown `JOBYARD_`
variable without two underscores is a warning; both with a "did you mean".

## Queues

What a queue allows and keeps is declared in the program with `yard.queue(…)`, or in the file, which wins; it is written
to the store when it opens. Limits of groups are set at run time ([command line](cli.md)).

```yaml
store:
  url: postgresql://jobyard@db/jobs
  queues:
    mail: redis://mail-redis:6379/0    # this queue lives in a store of its own
queues:
  "*":                                 # every queue that says nothing else, here or in the program
    keep_completed: 1000
  test-execution:
    max_running: 100                   # empty or absent: no limit
    max_per_group: 10
    max_waiting: 10000
    max_waiting_per_group: 1000
    keep_completed: 100
    keep_failed: 50
    keep_seconds: 3600
    max_attempts: 5                    # for handlers of this queue that do not say it themselves
worker:
  app: shop.jobs:yard
  concurrency: 8
  queues: [test-execution, mail]
server:
  host: 127.0.0.1
  port: 8080
scheduler:
  shortest_interval_seconds: 10
schedules:                             # see howto/cron.md; * and @ need the quotation marks
  nightly:
    expression: "0 2 * * *"
    timezone: Asia/Seoul
    kind: report
    payload: {{days: 1}}
log:
  level: info,store=debug
  format: json
```

As variables: `JOBYARD_QUEUES__TEST_EXECUTION__MAX_RUNNING=100`. The name of the queue is found as the file writes it,
else it is taken in small letters; `JOBYARD_QUEUES__ALL__…` is `*`. Schedules likewise, as in
`JOBYARD_SCHEDULES__NIGHTLY__EXPRESSION`. What a schedule may say: [schedules](howto/cron.md#what-it-says).
"""


def configuration() -> str:
    def code(text: str | None) -> str:
        return f"`{text}`" if text else ""

    table = [
        f"| {' | '.join(map(code, (each.variable, each.key, each.flag, each.default)))} | {each.doc} |"
        for each in SETTINGS
    ]
    secrets = ", ".join(
        code(setting.variable) for setting in SETTINGS if setting.secret and setting is not STORE_QUEUES
    )
    return CONFIGURATION.format(command=COMMAND, table="\n".join(table), secrets=secrets)


MADE = {DOCS / "cli.md": command_line, DOCS / "configuration.md": configuration}


def main() -> None:
    for path, make in MADE.items():
        path.write_text(make(), "utf-8")


if __name__ == "__main__":
    main()
