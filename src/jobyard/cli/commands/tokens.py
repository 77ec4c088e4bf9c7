"""`jobyard tokens`: API tokens."""

from __future__ import annotations

import click
from rich.markup import escape

from jobyard.cli.command_group import CommandGroup
from jobyard.cli.session import Session, absolute_option, async_command, json_option
from jobyard.domain.access import Role
from jobyard.errors import NotFound


@click.group(cls=CommandGroup, invoke_without_command=True)
@json_option
@absolute_option
@click.pass_context
def tokens(context: click.Context) -> None:
    """Create, list, rotate and revoke API tokens.

    \b
    Example:
      jobyard tokens
      jobyard tokens create ci --role submitter
    """
    if context.invoked_subcommand is None:
        context.invoke(list_tokens)


@tokens.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([str(role) for role in Role]),
    default=str(Role.VIEWER),
    show_default=True,
    help="viewer: read; submitter: submit, read its own jobs; operator: change jobs and queues; admin: also tokens.",
)
@click.option("--queue", "queues", multiple=True, metavar="QUEUE", help="Only this queue; repeatable.  [default: all]")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group; repeatable.  [default: all]")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Only this kind; repeatable.  [default: all, or those declared in the queues of the token]",
)
@click.option("--expire-seconds", type=float, metavar="SECONDS", help="Expire after this time.  [default: never]")
@async_command
async def create(
    session: Session,
    name: str,
    role: str,
    queues: tuple[str, ...],
    groups: tuple[str, ...],
    kinds: tuple[str, ...],
    expire_seconds: float | None,
) -> None:
    """Create a token and print it.

    NAME says what it is for. The token is shown only once; the store keeps only a hash of it.

    \b
    Example:
      jobyard tokens create ci --role submitter --queue test-execution
    """
    async with session.operations(creates_store=True) as operations:
        info, text = await operations.create_token(
            name, role, queues=queues, groups=groups, kinds=kinds, expire_seconds=expire_seconds
        )
    if session.as_json:
        session.print_json({"token": text, "info": info})
        return
    session.echo(text)
    session.echo_error(f"The token is not shown again. To revoke it: jobyard tokens revoke {info.id}")


@tokens.command("list")
@absolute_option
@async_command
async def list_tokens(session: Session) -> None:
    """List the valid tokens, without their secrets.

    \b
    Example:
      jobyard tokens list
    """
    async with session.operations() as operations:
        found, now = await operations.tokens(), await operations.now()
    rows = (
        (
            each.id,
            escape(each.name),
            str(each.role),
            escape(", ".join(each.queues)) or "all",
            escape(", ".join(each.groups)) or "all",
            escape(", ".join(each.kinds)) or "all",
            session.moment(each.created_at, now),
            session.moment(each.expires_at, now),
            session.moment(each.last_used_at, now),
        )
        for each in found
    )
    headings = ("id", "~name", "role", "~queues", "~groups", "~kinds", "created", "expires", "last used")
    empty = "No tokens. Create one: jobyard tokens create NAME --role admin"
    session.print_table({"tokens": found}, headings, rows, empty)


@tokens.command()
@click.argument("token_id", metavar="ID")
@click.option(
    "--overlap-seconds",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="Accept the old secret for this time.",
)
@async_command
async def rotate(session: Session, token_id: str, overlap_seconds: float) -> None:
    """Give a token a new secret and print it; id, role and scope stay.

    \b
    Example:
      jobyard tokens rotate 3f2a90c1d4e5 --overlap-seconds 3600
    """
    async with session.operations() as operations:
        rotated = await operations.rotate_token(token_id, overlap_seconds)
    if rotated is None:
        raise NotFound("Token not found. `jobyard tokens list` shows the ids.")
    info, text = rotated
    if session.as_json:
        session.print_json({"token": text, "info": info})
        return
    session.echo(text)
    session.echo_error("The token is not shown again.")


@tokens.command()
@click.argument("token_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@async_command
async def revoke(session: Session, token_id: str, yes: bool) -> None:
    """Revoke a token; servers reject it within a second.

    \b
    Example:
      jobyard tokens revoke 3f2a90c1d4e5 --yes
    """
    async with session.operations() as operations:
        known = {each.id: each for each in await operations.tokens()}
        if token_id not in known:
            # The argument may be the whole token by mistake, so it is not printed.
            raise NotFound("Token not found. `jobyard tokens list` shows the ids.")
        session.confirm(f"Revoke the token {token_id} ({known[token_id].name}, {known[token_id].role})?", yes=yes)
        revoked = await operations.revoke_token(token_id)
    session.report({"id": token_id, "revoked": revoked}, f"Token {token_id} is revoked.")
