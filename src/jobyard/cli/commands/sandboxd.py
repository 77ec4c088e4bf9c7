"""`jobyard sandboxd`: the sandbox daemon as a separate service."""

from __future__ import annotations

import os
import pwd
import sys
from typing import Any

import click
import msgspec

from jobyard.app.sandbox import daemon_command, daemon_environment
from jobyard.cli.option_flags import setting_flag
from jobyard.cli.session import Session, json_option
from jobyard.config.sections import MAX_TCP_SOCKETS
from jobyard.config.settings import (
    SANDBOX_LANGUAGES,
    SANDBOX_MIN_TIER,
    SANDBOX_POOL,
    SANDBOX_SLOTS,
    SANDBOX_SOCKET,
    SANDBOX_TCP_SOCKETS,
    SANDBOX_UNIX_SOCKETS,
)
from jobyard.errors import ConfigurationError
from jobyard.sandbox.protocol import Tier

DEFAULT_SOCKET = "/run/jobyard/sandbox.sock"


@click.command()
@setting_flag(SANDBOX_SOCKET, metavar="PATH", help=f"The socket path.  [default: {DEFAULT_SOCKET}]")
@setting_flag(SANDBOX_MIN_TIER, type=click.Choice([*Tier]), default=None)
@setting_flag(SANDBOX_SLOTS, type=click.IntRange(1), help="How many programs run at the same time.")
@setting_flag(SANDBOX_LANGUAGES, metavar="FILE")
@setting_flag(SANDBOX_POOL, type=click.IntRange(0))
@setting_flag(SANDBOX_UNIX_SOCKETS, is_flag=True, default=None)
@setting_flag(SANDBOX_TCP_SOCKETS, type=click.IntRange(0, MAX_TCP_SOCKETS))
@json_option
@click.pass_obj
def sandboxd(session: Session, /, **given: Any) -> None:
    """Run the sandbox daemon for the workers of this machine.

    Workers find it by `sandbox.socket`; without that, each worker starts its own. The daemon has no access to the store
    and inherits no environment variables. SIGTERM ends it and all its programs.

    \b
    Example:
      jobyard sandboxd --socket /run/jobyard/sandbox.sock --min-tier A --slots 4
    """
    options = {name: value for name, value in given.items() if value is not None}
    section = msgspec.structs.replace(session.configuration.sandbox, **options)
    path = section.socket or DEFAULT_SOCKET
    command = daemon_command(section, path, os.cpu_count() or 1)
    for user in section.allow_users:
        command += ["--allow-uid", str(uid_of(user))]
    if session.as_json:
        session.print_json({"socket": path})
    sys.stdout.flush()
    environment = daemon_environment(os.environ)
    # Replaces this process, so that the daemon holds nothing that was loaded here.
    os.execve(command[0], command, environment | session.notify.inherited())  # noqa: S606


def uid_of(user: str) -> int:
    try:
        return int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ConfigurationError(f"sandbox.allow_users: user {user} does not exist on this machine.") from None
