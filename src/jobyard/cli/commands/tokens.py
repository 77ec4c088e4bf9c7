"""`jobyard tokens`: who may use the API."""

from __future__ import annotations

import click
from rich.markup import escape

from jobyard.cli.render.output import print_table
from jobyard.cli.session import Session, async_command
from jobyard.domain.access import Role
from jobyard.domain.instant import rfc3339
from jobyard.errors import BadOption


@click.group()
def tokens() -> None:
    """Create, list and revoke API tokens.

    \b
    Example:
      jobyard tokens create ci --role submitter
      jobyard tokens list
    """


@tokens.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([str(role) for role in Role]),
    default=str(Role.VIEWER),
    show_default=True,
    help="viewer sees; submitter hands in and sees its own jobs; operator changes jobs and queues; admin tokens too.",
)
@click.option("--queue", "queues", multiple=True, metavar="QUEUE", help="Only this queue; repeatable.  [default: all]")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group; repeatable.  [default: all]")
@click.option(
    "--expire-seconds", type=float, metavar="SECONDS", help="It ends after so many seconds.  [default: never]"
)
@async_command
async def create(
    session: Session,
    name: str,
    role: str,
    queues: tuple[str, ...],
    groups: tuple[str, ...],
    expire_seconds: float | None,
) -> None:
    """Create a token and print it, this once.

    NAME says whose it is. The store keeps only a hash: a lost token is replaced, not found again.

    \b
    Example:
      jobyard tokens create ci --role submitter --queue test-execution
    """
    async with session.operations(creates_store=True) as operations:
        info, text = await operations.create_token(
            name, role, queues=queues, groups=groups, expire_seconds=expire_seconds
        )
    if session.as_json:
        session.print_json({"token": text, "info": info})
        return
    session.echo(text)
    session.echo_error(f"This is the only time it is shown. Revoke it with: jobyard tokens revoke {info.id}")


@tokens.command("list")
@async_command
async def list_tokens(session: Session) -> None:
    """List the valid tokens; their secrets are known to nobody.

    \b
    Example:
      jobyard tokens list
    """
    async with session.operations() as operations:
        found = await operations.tokens()
    if session.as_json:
        session.print_json({"tokens": found})
        return
    rows = (
        (
            each.id,
            escape(each.name),
            str(each.role),
            escape(", ".join(each.queues)) or "all",
            escape(", ".join(each.groups)) or "all",
            rfc3339(each.created_at)[:16] + "Z",
            "never" if each.expires_at is None else rfc3339(each.expires_at)[:16] + "Z",
        )
        for each in found
    )
    headings = ("id", "~name", "role", "~queues", "~groups", "created", "expires")
    print_table(session.console, headings, rows, "No token. Create one: jobyard tokens create NAME --role admin")


@tokens.command()
@click.argument("token_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@async_command
async def revoke(session: Session, token_id: str, yes: bool) -> None:
    """Revoke a token; servers let it in no more within a second.

    \b
    Example:
      jobyard tokens revoke 3f2a90c1d4e5 --yes
    """
    async with session.operations() as operations:
        known = {each.id: each for each in await operations.tokens()}
        if token_id not in known:
            # Somebody may have pasted the whole token: it must not be repeated on a screen.
            raise BadOption("There is no token with that id; `jobyard tokens list` shows the ids.")
        session.confirm(f"Revoke the token {token_id} ({known[token_id].name}, {known[token_id].role})?", yes=yes)
        revoked = await operations.revoke_token(token_id)
    if session.as_json:
        session.print_json({"id": token_id, "revoked": revoked})
    else:
        session.echo(f"Token {token_id} is revoked.")
