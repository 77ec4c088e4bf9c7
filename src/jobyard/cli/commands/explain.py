"""`jobyard explain`: why a job is waiting."""

from __future__ import annotations

import click
from rich.markup import escape

from jobyard.cli.render.output import state
from jobyard.cli.session import Session, async_command


@click.command()
@click.argument("job_id")
@async_command
async def explain(session: Session, job_id: str) -> None:
    """Show why a job is waiting, as a sentence and as stable codes.

    \b
    Example:
      jobyard explain 01890a5d-ac96-774b-bcce-b302099a8057
    """
    async with session.operations() as operations:
        answer = await operations.explain(job_id)
    if session.as_json:
        session.print_json(answer)
        return
    session.print_markup(f"{state(answer.state)}  {escape(answer.sentence)}")
    for cause in answer.causes:
        session.print_markup(f"  [yellow]{cause.code}[/]  {escape(cause.sentence)}")
