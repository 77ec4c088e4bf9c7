"""`jobyard explain`: why a job is waiting."""

from __future__ import annotations

import click
from rich.markup import escape

from jobyard.cli.job_ids import whole_id
from jobyard.cli.render.output import state
from jobyard.cli.session import Session, async_command

MAX_DIGITS = 18  # of the id of a GitHub job


@click.command()
@click.argument("job_id")
@async_command
async def explain(session: Session, job_id: str) -> None:
    """Show why a job is waiting, as a sentence and as stable codes.

    The beginning of an id is enough if no other job has it. A number is the id of a GitHub job that waits for a runner.

    \b
    Example:
      jobyard explain 01890a5d-ac96-774b-bcce-b302099a8057
      jobyard explain 48612345678
    """
    if job_id.isascii() and job_id.isdigit() and len(job_id) <= MAX_DIGITS:
        await explain_github_job(session, int(job_id))
        return
    async with session.operations() as operations:
        answer = await operations.explain(await whole_id(operations, job_id))
    if session.as_json:
        session.print_json(answer)
        return
    session.print_markup(f"{state(answer.state)}  {escape(answer.sentence)}")
    is_single = len(answer.causes) == 1  # the sentence has said it
    for cause in answer.causes:
        session.print_markup(f"  [yellow]{cause.code}[/]" + ("" if is_single else f"  {escape(cause.sentence)}"))


async def explain_github_job(session: Session, job_id: int) -> None:
    from jobyard.cli.commands.runners import show_github_job  # noqa: PLC0415  # its packages are an extra

    await show_github_job(session, job_id)
