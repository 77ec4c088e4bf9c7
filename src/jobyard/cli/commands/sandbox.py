"""`jobyard sandbox`: the state of the sandbox, and its self-test by attacks."""

from __future__ import annotations

from pathlib import Path

import click

from jobyard.cli.command_group import CommandGroup
from jobyard.cli.session import Session, async_command
from jobyard.sandbox.protocol import Tier

socket_option = click.option(
    "--socket",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The socket of a running daemon (jobyard sandboxd).",
)


@click.group(cls=CommandGroup)
def sandbox() -> None:
    """Show the state of the sandbox; run its self-test.

    \b
    Example:
      jobyard sandbox selftest
      jobyard sandbox status --socket /run/jobyard/sandbox.sock
    """


@sandbox.command()
@socket_option
@click.option(
    "--tier", type=click.Choice([str(tier) for tier in Tier]), help="Use this tier.  [default: the best available]"
)
@click.option("--only", default="", metavar="WORDS", help="Numbers, parts of names, or languages: 1,9,fork,javascript.")
@click.option("--without", type=click.Choice(["seccomp", "namespaces"]), help="Disable a layer, to test the others.")
@async_command
async def selftest(session: Session, socket: Path | None, tier: str | None, only: str, without: str | None) -> None:
    """Run the attack suite against the sandbox.

    Fork bombs, memory bombs, access to files, processes, the network and the kernel: each must end as expected, and
    leave no process, control group, mount or file behind. Starts its own daemon, or attacks the one at --socket,
    without the attacks that kill a daemon. Exit code 1 if an attack was not contained.

    \b
    Example:
      jobyard sandbox selftest
      jobyard sandbox selftest --tier B --only fork,memory
    """
    from jobyard.cli.sandbox_selftest import attack  # noqa: PLC0415  # imported only here: it loads all attacks

    if socket is not None and (tier or without):
        raise click.UsageError("Pass --tier and --without only without --socket.")
    await attack(session, socket, tier, without, [word.strip() for word in only.split(",") if word.strip()])


@sandbox.command()
@socket_option
@async_command
async def status(session: Session, socket: Path | None) -> None:
    """Show the tier and its reason, the languages and the pool.

    Of the daemon at --socket or in the configuration; otherwise a daemon is started for a moment, to see what this
    machine supports. Exit code 1 if it cannot run programs.

    \b
    Example:
      jobyard sandbox status --socket /run/jobyard/sandbox.sock
    """
    from jobyard.cli.sandbox_selftest import print_status  # noqa: PLC0415  # imported only here: it loads all attacks

    configured = session.configuration.sandbox.socket
    await print_status(session, socket or (Path(configured) if configured else None))
