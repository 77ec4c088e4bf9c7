"""`jobyard sandbox`: how well programs are held here, and the attacks that show it."""

from __future__ import annotations

from pathlib import Path

import click

from jobyard.cli.session import Session, async_command
from jobyard.sandbox.protocol import Tier

socket_option = click.option(
    "--socket", type=click.Path(path_type=Path), metavar="PATH", help="Of a daemon that runs (jobyard sandboxd)."
)


@click.group()
def sandbox() -> None:
    """Look at the sandbox; attack it.

    \b
    Example:
      jobyard sandbox selftest
      jobyard sandbox status --socket /run/jobyard/sandbox.sock
    """


@sandbox.command()
@socket_option
@click.option("--tier", type=click.Choice([str(tier) for tier in Tier]), help="Use this one.  [default: the best here]")
@click.option("--only", default="", metavar="WORDS", help="Numbers, parts of names or languages: 1,9,fork,javascript.")
@click.option(
    "--without",
    type=click.Choice(["seccomp", "namespaces"]),
    help="Leave a layer out, to see that the others hold.",
)
@async_command
async def selftest(session: Session, socket: Path | None, tier: str | None, only: str, without: str | None) -> None:
    """Attack the sandbox and show what came of it.

    Fork bombs, memory bombs, reaching for files, processes, the network and the kernel: each must end as expected, and
    leave no process, no control group, no mount and no file behind. Starts a daemon of its own, or attacks the one that
    --socket names; the attacks that kill a daemon are then left out. Exit code 1 when anything was not held.

    \b
    Example:
      jobyard sandbox selftest
      jobyard sandbox selftest --tier B --only fork,memory
    """
    from jobyard.cli.sandbox_selftest import attack  # noqa: PLC0415  # other commands need none of it

    if socket is not None and (tier or without):
        raise click.UsageError("--tier and --without are for a daemon of its own: leave out --socket.")
    await attack(session, socket, tier, without, [word.strip() for word in only.split(",") if word.strip()])


@sandbox.command()
@socket_option
@async_command
async def status(session: Session, socket: Path | None) -> None:
    """Tell the tier in use and why, the languages and the pool.

    Of the daemon that --socket or the configuration names; else one is started for a moment, to see what this machine
    can offer. Exit code 1 when it refuses to run anything.

    \b
    Example:
      jobyard sandbox status --socket /run/jobyard/sandbox.sock
    """
    from jobyard.cli.sandbox_selftest import look  # noqa: PLC0415  # other commands need none of it

    configured = session.configuration.sandbox.socket
    await look(session, socket or (Path(configured) if configured else None))
