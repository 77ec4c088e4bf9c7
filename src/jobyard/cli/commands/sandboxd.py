"""`jobyard sandboxd`: the daemon that holds programs, as a service of its own."""

from __future__ import annotations

import os
import pwd
import sys
from typing import Any

import click
import msgspec

from jobyard.app.sandbox import daemon_command, daemon_environment
from jobyard.cli.session import Session, json_option
from jobyard.config.sandbox_settings import LANGUAGES, MIN_TIER, POOL, SLOTS, SOCKET
from jobyard.errors import ConfigurationError
from jobyard.sandbox.protocol import Tier

USUAL_SOCKET = "/run/jobyard/sandbox.sock"


@click.command()
@click.option("--socket", metavar="PATH", envvar=SOCKET.variable, help=f"Where it listens.  [default: {USUAL_SOCKET}]")
@click.option("--min-tier", type=click.Choice([*Tier]), envvar=MIN_TIER.variable, help=MIN_TIER.doc)
@click.option("--slots", type=click.IntRange(1), envvar=SLOTS.variable, help="How many programs it runs at a time.")
@click.option("--languages", metavar="FILE", envvar=LANGUAGES.variable, help=LANGUAGES.doc)
@click.option("--pool", type=click.IntRange(0), envvar=POOL.variable, help=POOL.doc)
@json_option
@click.pass_obj
def sandboxd(session: Session, /, **given: Any) -> None:
    """Hold programs that workers of this machine are to run.

    Workers find it by `sandbox.socket`; without that, each worker starts one of its own. It knows no store and takes
    nothing of this program's environment. SIGTERM ends it, and every program with it.

    \b
    Example:
      jobyard sandboxd --socket /run/jobyard/sandbox.sock --min-tier A --slots 4
    """
    told = {name: value for name, value in given.items() if value is not None}
    section = msgspec.structs.replace(session.configuration.sandbox, **told)
    path = section.socket or USUAL_SOCKET
    command = daemon_command(section, path, os.cpu_count() or 1)
    for user in section.allow_users:
        command += ["--allow-uid", str(uid_of(user))]
    if session.as_json:
        session.print_json({"socket": path})
    sys.stdout.flush()
    environment = daemon_environment(os.environ)
    # The same process goes on as the daemon, without anything that this one has loaded.
    os.execve(command[0], command, environment | session.notify.inherited())  # noqa: S606


def uid_of(user: str) -> int:
    try:
        return int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ConfigurationError(f"sandbox.allow_users: there is no user {user} on this machine.") from None
