"""`jobyard runners`: GitHub jobs, the runners for them, and organizations."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import click
import msgspec
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from jobyard.api.schemas.runners import RunnerJobView
from jobyard.app.process_manager import wait_up_to
from jobyard.cli.command_group import CommandGroup
from jobyard.cli.commands.top import stop_on_key, stop_on_signals
from jobyard.cli.option_flags import limit_flag
from jobyard.cli.render.output import plain, print_table, table
from jobyard.cli.render.runners import (
    JOB_HEADINGS,
    ORG_HEADINGS,
    POD_HEADINGS,
    in_order,
    job_page,
    job_row,
    org_row,
    pod_row,
    summary_lines,
)
from jobyard.cli.runner_access import runner_operations, spelled
from jobyard.cli.session import Session, async_command, json_option
from jobyard.domain.instant import Instant
from jobyard.domain.runners.explain import Capacity, OrgCapacity, reach
from jobyard.domain.runners.runner import RunnerState
from jobyard.domain.text import counted
from jobyard.errors import Forbidden
from jobyard.operations.queries import take
from jobyard.operations.runners import RunnerOperations

NO_ORGS = "No organization has jobs, runners or a limit."
REFRESH_SECONDS = 1.0
JOB_STATES = ("held_back", "queued", "in_progress", "unserved")


@click.group(cls=CommandGroup, invoke_without_command=True)
@json_option
@click.pass_context
def runners(context: click.Context) -> None:
    """Show and manage GitHub runners: jobs, runners, organizations.

    Without a subcommand: how many runners the limits allow, and a table of organizations. The limit of an organization
    is that of a group of the queue runners: `jobyard limits set runners ORG 25`.

    \b
    Example:
      jobyard runners
      jobyard runners jobs --org acme
      jobyard limits set runners acme 25
    """
    if context.invoked_subcommand is None:
        _summary()


@async_command
async def _summary(session: Session) -> None:
    async with runner_operations(session) as operations:
        found = await operations.runner_orgs()
    if session.as_json:
        session.print_json(found)
        return
    for line in summary_lines(found):
        session.print_markup(line if session.is_terminal else escape(plain(line)))
    print_table(session.console, ORG_HEADINGS, map(org_row, in_order(found.items)), NO_ORGS)


@runners.command()
@async_command
async def orgs(session: Session) -> None:
    """List organizations with their limits, runners and jobs, by name.

    \b
    Example:
      jobyard runners orgs --json
    """
    async with runner_operations(session) as operations:
        found = await operations.runner_orgs()
    session.print_table({"orgs": found.items}, ORG_HEADINGS, map(org_row, found.items), NO_ORGS)


@runners.command()
@click.option("--org", metavar="NAME", help="Only jobs of this organization.")
@click.option("--state", type=click.Choice(JOB_STATES), help="Only jobs in this state.")
@click.option("--profile", metavar="NAME", help="Only jobs of this runner profile.")
@limit_flag(100_000, 200, "jobs")
@click.option("--watch", is_flag=True, help="Refresh until q or Ctrl-C.")
@async_command
async def jobs(session: Session, /, limit: int, watch: bool, **where: str | None) -> None:
    """List unfinished GitHub jobs in the order of launch, with the reason why each waits.

    \b
    States:
      queued       GitHub wants a runner for it; it waits, or a runner is coming
      held_back    GitHub holds it back: an environment gate, a concurrency group, max-parallel
      in_progress  a runner has it
      unserved     no profile has all of its labels; those of the last day

    \b
    Example:
      jobyard runners jobs --org acme --state queued
      jobyard runners jobs --watch
    """
    async with runner_operations(session) as operations:
        if watch and not session.as_json:
            await _watch_jobs(session, operations, limit, where)
            return
        found = await take(operations.runner_jobs(**where), limit)
    session.print_table({"jobs": found}, JOB_HEADINGS, _job_rows(found), "No GitHub jobs match.")
    if len(found) == limit:
        session.echo_error(f"Only the first {counted(limit, 'job')}: pass --limit for more.")


def _job_rows(found: list[RunnerJobView]) -> list[tuple[str, ...]]:
    now = _now()
    return [job_row(job, now) for job in found]


async def _watch_jobs(session: Session, operations: RunnerOperations, limit: int, where: dict[str, Any]) -> None:
    stop = asyncio.Event()
    with stop_on_signals(stop):
        if not session.is_terminal:
            while not stop.is_set():
                found = await take(operations.runner_jobs(**where), limit)
                print_table(session.console, JOB_HEADINGS, _job_rows(found), "")
                await wait_up_to(REFRESH_SECONDS, stop)
            return
        console = session.console
        with stop_on_key("q", stop), Live(console=console, screen=True, auto_refresh=False) as live:
            while not stop.is_set():
                lines = [Text.from_markup(line) for line in summary_lines(await operations.runner_orgs())]
                found = await take(operations.runner_jobs(**where), max(1, min(limit, console.height - 5)))
                live.update(Group(*lines, table(JOB_HEADINGS, _job_rows(found), console.width)), refresh=True)
                await wait_up_to(REFRESH_SECONDS, stop)


@runners.command()
@click.argument("job_id", type=click.IntRange(1))
@async_command
async def job(session: Session, job_id: int) -> None:
    """Show a GitHub job: where it stands, why it waits, and its timeline.

    JOB_ID is the id on GitHub: the number at the end of the job's address.

    \b
    Example:
      jobyard runners job 48612345678
    """
    await show_github_job(session, job_id)


async def show_github_job(session: Session, job_id: int) -> None:
    async with runner_operations(session) as operations:
        found = await operations.runner_job(job_id)
    if session.as_json:
        session.print_json(found)
        return
    for line in job_page(found, _now()):
        session.print_markup(line)


@runners.command()
@click.option("--org", metavar="NAME", help="Only runners of this organization.")
@click.option("--state", type=click.Choice([each.value for each in RunnerState]), help="Only runners in this state.")
@limit_flag(100_000, 500, "runners")
@async_command
async def pods(session: Session, org: str | None, state: str | None, limit: int) -> None:
    """List runners with their states, by name.

    \b
    Example:
      jobyard runners pods --state idle
    """
    async with runner_operations(session) as operations:
        found = await take(operations.runner_pods(org=org, state=state), limit)
    now = _now()
    session.print_table({"pods": found}, POD_HEADINGS, (pod_row(pod, now) for pod in found), "No runners.")


@runners.command()
@click.argument("repo", metavar="ORG/REPO")
@click.argument("job_id", type=click.IntRange(1))
@async_command
async def requeue(session: Session, repo: str, job_id: int) -> None:
    """Enter a job again that GitHub still has queued.

    GitHub is asked first: a job that has ended, or that a runner has, is not entered.

    \b
    Example:
      jobyard runners requeue acme/shop 48612345678
    """
    if repo.count("/") != 1 or not all(repo.split("/")):
        raise click.BadParameter(f"{repo!r} is not ORG/REPO.", param_hint="ORG/REPO")
    async with runner_operations(session) as operations:
        found = await operations.requeue_runner_job(repo, job_id)
    session.report(msgspec.to_builtins(found), f"Job {job_id} ({found.job_name}) is queued: {found.sentence}")


def _limits(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for value in values:
        org, _equals, limit = value.partition("=")
        if not (org and limit.isascii() and limit.isdigit()):
            raise click.BadParameter(f"{value!r} is not ORG=LIMIT.")
        found[org] = int(limit)
    return found


@runners.command("what-if")
@click.option("--max-total", type=click.IntRange(0), help="Another limit of all runners.")
@click.option("--max-per-org", type=click.IntRange(0), help="Another limit of organizations without their own.")
@click.option(
    "--org", "limits", multiple=True, callback=_limits, metavar="ORG=LIMIT", help="A limit of its own; repeatable."
)
@async_command
async def what_if(session: Session, max_total: int | None, max_per_org: int | None, limits: dict[str, int]) -> None:
    """Show how many runners could run with other limits; nothing is changed.

    \b
    Example:
      jobyard runners what-if --max-per-org 30 --org acme=50
    """
    async with runner_operations(session) as operations:
        found = await operations.runner_orgs()
    if found.totals is None:
        raise Forbidden("The token is restricted to groups and cannot see the limits of all organizations.")
    known = [org.name for org in found.items]
    given = {spelled(org, known): limit for org, limit in limits.items()}
    notes = [note for _, note in given if note]
    own = {org.name: org.own_limit for org in found.items if org.own_limit is not None}
    own |= {name: limit for (name, _), limit in given.items()}
    capacity = Capacity(
        max_total=found.totals.max_total if max_total is None else max_total,
        max_per_org=found.totals.max_per_org if max_per_org is None else max_per_org,
        orgs={name: OrgCapacity(limit=limit, own_limit=limit) for name, limit in own.items()},
    )
    new = reach(capacity, {org.name for org in found.items} | own.keys())
    document = {"reachable": new.runners, "sentence": new.sentence, "now": found.totals.reachable, "notes": notes}
    session.report(document, "\n".join([f"{new.sentence}.", f"Now: {found.totals.sentence}.", *notes]))


def _now() -> Instant:
    return round(time.time() * 1000)
