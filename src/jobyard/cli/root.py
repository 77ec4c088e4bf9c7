"""The root command: global options, configuration, and errors as one line."""

from __future__ import annotations

import errno
import logging
import os
from typing import Any

import click
from click.core import ParameterSource

from jobyard.cli.command_group import CommandGroup
from jobyard.cli.commands import COMMANDS, load_command
from jobyard.cli.global_options import HELP, hoist
from jobyard.cli.option_flags import setting_flag, with_flags
from jobyard.cli.render.output import echo
from jobyard.cli.session import Session
from jobyard.cli.target import chosen_server
from jobyard.cli.unknown_option import unknown_option
from jobyard.config import Configuration, LoadedConfig, load
from jobyard.config.settings import APP, CONFIG, LOG_FORMAT, LOG_LEVEL, SERVER, STORE, unknown_variables
from jobyard.errors import BadOption, ConfigurationError, JobyardError, Unauthorized, did_you_mean

log = logging.getLogger("jobyard.app")

# Commands that run until they are stopped; their errors belong to their log.
SERVICES = ("up", "server", "worker", "scheduler", "sandboxd")


class CommandError(click.ClickException):
    """One line on stderr and exit code 1: a sentence, or a JSON log line of a service whose logs are JSON."""

    def __init__(self, message: str, context: click.Context) -> None:
        super().__init__(message)
        self._as_json = logs_as_json(context)

    def show(self, file: Any = None) -> None:
        if self._as_json:
            log.critical(self.format_message())  # shown at every log level: it is why the program ends
        else:
            echo(f"Error: {self.format_message()}", file=file, err=file is None)


def logs_as_json(context: click.Context) -> bool:
    """Whether stderr is a stream of JSON log lines: of a service. A person or a script reads that of other commands."""
    session = context.obj
    if not isinstance(session, Session) or session.configuration.log.format != "json":
        return False
    return session.is_service or context.invoked_subcommand in SERVICES


def token_hint(context: click.Context, error: JobyardError) -> str:
    """Why no token was sent, if the server wants one and only a generic name led to it."""
    server = context.obj.server if isinstance(context.obj, Session) else None
    if server is None or not server.is_generic or not isinstance(error, Unauthorized):
        return ""
    return (
        f" A token is not sent to an address that only {server.origin} names: "
        f"pass --server {server.url}, or set {SERVER.variable}."
    )


class RootCommand(CommandGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.add_command(load_command(cmd_name))
        return self.commands.get(cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, hoist(self, ctx, args))
        except click.NoSuchOption as error:
            raise unknown_option(error, self) from None

    def hint(self, ctx: click.Context, word: str) -> str:
        return did_you_mean(word, COMMANDS) or self._elsewhere(ctx, word)

    def _elsewhere(self, ctx: click.Context, word: str) -> str:
        """The commands of that name in groups: `jobyard retry` is `jobyard jobs retry`."""
        groups = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        found = [
            f"{ctx.command_path} {name} {word}"
            for name, group in groups.items()
            if isinstance(group, click.Group) and word in group.commands
        ]
        return f" There is {', '.join(found)}." if found else ""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except JobyardError as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            if isinstance(error, BadOption) and command is not None:
                with_flags(error, command)
            messages = dict.fromkeys(map(str, (error, *getattr(error, "others", ()))))
            raise CommandError("\n".join(messages) + token_hint(ctx, error), ctx) from error
        except click.NoSuchOption as error:
            raise unknown_option(error, self) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise
            log.debug("unexpected error", exc_info=error)
            message = f"unexpected {type(error).__name__}: {error} (--log-level debug shows where)"
            raise CommandError(message, ctx) from error


@click.group(cls=RootCommand, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="jobyard", prog_name="jobyard")
@setting_flag(CONFIG, metavar="FILE")
@setting_flag(STORE, metavar="URL")
@setting_flag(SERVER, metavar="URL")
@setting_flag(APP, metavar="MODULE:ATTRIBUTE")
@setting_flag(LOG_LEVEL, metavar="LEVEL", default=None)
@setting_flag(LOG_FORMAT, metavar="FORMAT")
@click.pass_context
def cli(context: click.Context, /, config: str | None, **flags: str | None) -> None:
    """Run and operate a job queue.

    \b
    Start a worker for your application, then watch it:
      jobyard --app shop.jobs:yard worker --concurrency 8
      jobyard --store sqlite:///jobs.db top

    Every command has --help with an example, and --json for scripts. Without --app, commands work on the store alone.
    The options below may also follow the command: jobyard top --store sqlite:///jobs.db
    """
    given = {
        setting.key: (str(setting.flag), flags[word])
        for word, setting in {"store": STORE, "app": APP, "log_level": LOG_LEVEL, "log_format": LOG_FORMAT}.items()
        if context.get_parameter_source(word) is ParameterSource.COMMANDLINE
    }
    try:
        found = load(os.environ, config or None, given)
        session = Session(found, server=chosen_server(context, found, os.environ))
    except ConfigurationError as error:
        if context.invoked_subcommand != "check" and not context.meta.get(HELP):
            raise
        session = Session(LoadedConfig(Configuration(), {}, None), str(error).splitlines())
    context.obj = session
    # The file and the JOBYARD_SECTION__KEY variables are defaults below the flags of a command and their variables.
    context.default_map = session.defaults()
    session.set_up_logs()
    for warning in unknown_variables(os.environ):
        if logs_as_json(context):
            log.warning(warning)
        else:
            echo(f"Warning: {warning}", err=True)


def main() -> None:
    cli(prog_name="jobyard")
