"""`jobyard jobs retry|cancel|delete|prioritise|run-now`: change jobs by id, or all that match a filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from jobyard.cli.filters import describe, filter_options
from jobyard.cli.job_ids import whole_ids
from jobyard.cli.session import Session, async_command
from jobyard.domain.job import State
from jobyard.domain.text import counted
from jobyard.errors import JobNotFound
from jobyard.operations.commands import CHANGE_AT_ONCE, DEAD, RETRIED
from jobyard.operations.protocol import Operations
from jobyard.ports.admin_store import Action, Filter

# The states in which an action is possible, so that the confirmation shows the number of jobs that will change.
ALLOWED_STATES: dict[Action, tuple[State, ...]] = {
    Action.CANCEL: (State.PENDING, State.RUNNING),
    Action.RETRY: RETRIED,
    Action.DELETE: tuple(state for state in State if state is not State.RUNNING),
    Action.PRIORITISE: (State.PENDING,),
    Action.RUN_NOW: (State.PENDING,),
}
# A job that was cancelled on purpose is retried only with --state CANCELLED.
DEFAULT_STATES = ALLOWED_STATES | {Action.RETRY: DEAD}


def narrowed(action: Action, where: Filter) -> Filter:
    if where.states is None:
        return msgspec.structs.replace(where, states=DEFAULT_STATES[action])
    invalid = [state for state in where.states if state not in ALLOWED_STATES[action]]
    if invalid:
        allowed = ", ".join(ALLOWED_STATES[action])
        raise click.UsageError(f"Cannot {action} {invalid[0]} jobs; allowed states: {allowed}.")
    return where


async def change_ids(
    session: Session, operations: Operations, action: Action, ids: tuple[str, ...], **options: Any
) -> None:
    ids = await whole_ids(operations, ids)
    answer = await operations.change(action, ids, **options)
    missing = [job_id for job_id in ids if job_id not in answer.changed and job_id not in answer.unchanged]
    if session.as_json:
        session.print_json({"changed": answer.changed, "unchanged": answer.unchanged, "missing": missing})
    else:
        running, parked = await asked_to_stop(operations, action, answer.changed)
        session.echo(f"{done(action, len(answer.changed), running, parked)}.")
    if answer.unchanged:
        async for job in operations.walk(Filter(ids=answer.unchanged)):
            session.echo_error(f"Error: {await operations.why_unchanged(action, job)}")
    for job_id in missing:
        session.echo_error(f"Error: {JobNotFound.of(job_id)}")
    if answer.unchanged or missing:
        raise click.exceptions.Exit(1)


async def change_matching(
    session: Session, operations: Operations, action: Action, where: Filter, *, yes: bool, **options: Any
) -> None:
    where = narrowed(action, where)
    total = await operations.count(where)
    if total:
        session.confirm(
            f"{action.replace('_', '-').capitalize()} {counted(total, 'job')} ({describe(where)})?", yes=yes
        )
    changed = unchanged = running = parked = 0
    with progress_bar() as progress:
        task = progress.add_task(str(action), total=total)
        async for answer in operations.change_matching(action, where, **options):
            changed += len(answer.changed)
            unchanged += len(answer.unchanged)
            more_running, more_parked = await asked_to_stop(operations, action, answer.changed)
            running, parked = running + more_running, parked + more_parked
            progress.update(task, completed=changed + unchanged)
    if session.as_json:
        session.print_json({"matched": total, "changed": changed, "unchanged": unchanged})
    else:
        why = "their state has changed" + (", or their unique key is taken" if action is Action.RETRY else "")
        left = f" Not changed: {counted(unchanged, 'job')} ({why})." if unchanged else ""
        session.echo(f"{done(action, changed, running, parked)}.{left}")


async def asked_to_stop(operations: Operations, action: Action, ids: Sequence[str]) -> tuple[int, int]:
    """How many of the cancelled jobs have yet to end: running ones, which may still complete, and parked workflows."""
    running = parked = 0
    if action is not Action.CANCEL:
        return running, parked
    for start in range(0, len(ids), CHANGE_AT_ONCE):
        some = Filter(ids=tuple(ids[start : start + CHANGE_AT_ONCE]))
        async for job in operations.walk(some):
            is_parked = job.state is State.PENDING and job.is_workflow  # it ends its child jobs and undoes its steps
            parked += is_parked
            running += job.state is not State.CANCELLED and not is_parked
    return running, parked


def done(action: Action, changed: int, running: int = 0, parked: int = 0) -> str:
    """
    >>> done(Action.CANCEL, 3, 1), done(Action.CANCEL, 1, 1)
    ('Cancelled: 2 jobs; asked to stop: 1 running job', 'Asked to stop: 1 running job')
    >>> done(Action.CANCEL, 1, 0, 1)
    'Asked to end: 1 parked workflow'
    """
    ended = changed - running - parked
    parts = [f"{DONE[action]}: {counted(ended, 'job')}"] if ended or not changed else []
    if running:
        parts.append(f"asked to stop: {counted(running, 'running job')}")
    if parked:
        parts.append(f"asked to end: {counted(parked, 'parked workflow')}")
    text = "; ".join(parts)
    return text[0].upper() + text[1:]


def progress_bar() -> Progress:
    """A progress bar on stderr, shown only on a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


DONE = {
    Action.CANCEL: "Cancelled",
    Action.RETRY: "Retried",
    Action.DELETE: "Deleted",
    Action.PRIORITISE: "Prioritised",
    Action.RUN_NOW: "Due now",
}

yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def _change_command(action: Action, doc: str, *decorators: Callable[..., Any]) -> click.Command:
    async def run(
        session: Session, /, job_ids: tuple[str, ...], all_matching: bool, yes: bool, where: Filter, **options: Any
    ) -> None:
        if bool(job_ids) == all_matching:
            raise click.UsageError("Pass job ids, or filters with --all-matching.")
        if job_ids and where != Filter():
            raise click.UsageError("Pass filters only with --all-matching, not with job ids.")
        async with session.operations() as operations:
            if all_matching:
                await change_matching(session, operations, action, where, yes=yes, **options)
            else:
                await change_ids(session, operations, action, job_ids, **options)

    run.__doc__ = doc
    function = async_command(run)
    for decorator in decorators:
        function = decorator(function)
    function = click.option(
        "--all-matching", is_flag=True, help="Change all jobs that match the filters, after a confirmation."
    )(yes_option(function))
    function = click.argument("job_ids", metavar="[JOB_ID]...", nargs=-1)(filter_options(function))
    return click.command(action.replace("_", "-"))(function)


EXAMPLE = "\n\n\b\nExample:\n  jobyard jobs "

commands = (
    _change_command(
        Action.RETRY,
        "Retry failed jobs.\n\nThey are due now, with attempts from zero, and keep their errors. --all-matching means "
        "FAILED and TIMEOUT; cancelled jobs are retried only with --state CANCELLED."
        f"{EXAMPLE}retry --queue mail --all-matching",
    ),
    _change_command(
        Action.CANCEL,
        "Cancel waiting or running jobs.\n\nWaiting jobs end now; running jobs are asked to stop, "
        "even if their worker is down at the moment."
        f"{EXAMPLE}cancel 01890a5d-ac96-774b-bcce-b302099a8057 --reason 'sent by mistake'",
        click.option("--reason", default="", metavar="TEXT", help="Stored with the job."),
    ),
    _change_command(
        Action.DELETE,
        f"Delete jobs. Running jobs must be cancelled first.{EXAMPLE}delete --state COMPLETED --all-matching",
    ),
    _change_command(
        Action.PRIORITISE,
        "Change the priority of waiting jobs.\n\nHigher runs first, within the group of the job."
        f"{EXAMPLE}prioritise --priority 10 --kind invoice --all-matching",
        click.option("--priority", type=int, required=True, help="The new priority."),
    ),
    _change_command(Action.RUN_NOW, f"Make delayed jobs due now.{EXAMPLE}run-now 01890a5d-ac96-774b-bcce-b302099a8057"),
)
