"""The root command: global options, errors as one line, settings checked."""

from __future__ import annotations

import errno
import importlib.metadata
import logging
import os
from typing import Any

import click
from click.core import ParameterSource

from jobyard.errors import JobyardError
from jobyard.main.cli.logs import set_up_logs
from jobyard.main.cli.render import echo
from jobyard.main.cli.session import Session
from jobyard.main.settings import APP, LOG_LEVEL, STORE, unknown_variables

log = logging.getLogger("jobyard.main")


class Refused(click.ClickException):
    """One clear line and exit code 1."""

    def show(self, file: Any = None) -> None:
        echo(f"error: {self.format_message()}", file=file, err=file is None)


class Root(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except JobyardError as error:
            raise Refused(str(error)) from error
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise
            log.debug("unexpected error", exc_info=error)
            raise Refused(f"unexpected {type(error).__name__}: {error} (--log-level debug shows where)") from error


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(importlib.metadata.version("jobyard"), prog_name="jobyard")
@click.option("--store", metavar="URL", envvar=STORE.variable, default=STORE.default, help=STORE.doc, show_default=True)
@click.option("--app", metavar="MODULE:ATTRIBUTE", envvar=APP.variable, help=APP.doc)
@click.option("--log-level", metavar="LEVEL", envvar=LOG_LEVEL.variable, help=LOG_LEVEL.doc)
@click.pass_context
def cli(context: click.Context, store: str, app: str | None, log_level: str | None) -> None:
    """Run, feed and operate a job queue.

    \b
    Start a worker for your application, then look at what it does:
      jobyard --app shop.jobs:yard worker --concurrency 8
      jobyard --store sqlite:///jobs.db top

    Every command has --help with an example, and --json for programs. Without --app, commands work on the store alone.
    """
    is_given = context.get_parameter_source("store") is not ParameterSource.DEFAULT
    context.obj = Session(store, app or None, store_is_given=is_given, log_level=log_level)
    set_up_logs(log_level)
    for warning in unknown_variables(os.environ):
        echo(f"warning: {warning}", err=True)


def _add_commands() -> None:
    from jobyard.main.cli import (  # noqa: PLC0415  # they need nothing of the root, it needs all of them
        bench,
        change,
        check,
        dead,
        doctor,
        enqueue,
        explain,
        groups,
        jobs,
        limits,
        migrate,
        queues,
        running,
        top,
        worker,
    )

    for command in (
        worker.worker,
        enqueue.enqueue,
        jobs.jobs,
        queues.queues,
        groups.groups,
        limits.limits,
        explain.explain,
        dead.dead,
        running.running,
        running.workers,
        top.top,
        check.check,
        doctor.doctor,
        migrate.migrate,
        bench.bench,
    ):
        cli.add_command(command)
    for command in change.commands:
        jobs.jobs.add_command(command)


_add_commands()


def main() -> None:
    cli(prog_name="jobyard")
