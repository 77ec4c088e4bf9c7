"""`jobyard workflows`: list, show, check, run and draw workflow files."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

import click
from rich.markup import escape

from jobyard.api.schemas.workflows import WorkflowRunView, WorkflowView
from jobyard.api.workflow_graph.svg import render_graph
from jobyard.cli.command_group import CommandGroup
from jobyard.cli.commands.top import stop_on_signals
from jobyard.cli.job_ids import PREFIX, whole_id
from jobyard.cli.render.history import show_history
from jobyard.cli.render.json import as_json
from jobyard.cli.render.output import number
from jobyard.cli.render.workflow import Show, live_run, show_run, show_workflow
from jobyard.cli.session import Session, async_command
from jobyard.cli.workflow_folder import read_workflows, workflow_folder
from jobyard.cli.workflow_params import read_params
from jobyard.config.workflow_files import FORMATS, read_workflow
from jobyard.domain.job import Job, State
from jobyard.domain.text import counted
from jobyard.domain.workflow_files.definition import WorkflowDefinition
from jobyard.domain.workflow_files.parse import parse_workflow
from jobyard.domain.workflow_files.source import Format
from jobyard.domain.workflow_files.step_state import StepState
from jobyard.errors import BadInput, JobNotFound, UnknownWorkflow
from jobyard.executors.workflow.file_records import FILE_WORKFLOW, load_definition
from jobyard.operations.protocol import Operations
from jobyard.operations.workflow_runs import payload_of, workflow_view

# How often a run is read while it is waited for.
REFRESH_SECONDS = 0.4
# Why a run waits is read this often.
EXPLAIN_SECONDS = 2.0
INTERRUPTED = 130
# Child jobs of a workflow function whose states are read one by one; the latest ones.
MAX_CHILDREN = 50


@click.group(cls=CommandGroup)
def workflows() -> None:
    """List, show, check, run and draw workflow files.

    The files are those of workflows.folder, or of the folder workflows; with --server, those of the server.

    \b
    Example:
      jobyard workflows check
      jobyard workflows run scan -p platform=ably
      jobyard workflows graph scan --output scan.svg
    """


@workflows.command("list")
@async_command
async def list_workflows(session: Session) -> None:
    """List the workflow files.

    The steps of on_failure are not counted, as in the progress of a run.

    \b
    Example:
      jobyard workflows list
    """
    found = await _all(session)
    rows = (
        (
            escape(each.id),
            str(each.version),
            escape(each.platform or "-"),
            number(sum(not step.on_failure for step in each.steps)),
            escape(", ".join(each.params["properties"])) or "-",
            escape(each.description),
        )
        for each in found
    )
    headings = ("~workflow", ">version", "~platform", ">steps", "~params", "~description")
    session.print_table({"workflows": found}, headings, rows, "No workflow files.")


@workflows.command()
@click.argument("workflow_or_job", metavar="WORKFLOW|JOB")
@async_command
async def show(session: Session, workflow_or_job: str) -> None:
    """Show a workflow file, one of its runs, or the history of a workflow function.

    By the id of a workflow: its params and steps. By the id of a job, or the beginning of it: the state, time and
    progress of each step of that run, and why a step failed or did not run. Of a workflow function: what it has
    recorded (steps, waits, child jobs, undo steps), and what it waits for.

    \b
    Example:
      jobyard workflows show scan
      jobyard workflows show 01890a5d-ac96-774b-bcce-b302099a8057
    """
    definition = _named_or_job(workflow_or_job, await _all(session))
    if definition is not None:
        if session.as_json:
            session.print_json(definition)
        else:
            show_workflow(session.console, definition)
        return
    async with session.operations() as operations:
        job = await operations.job(await whole_id(operations, workflow_or_job))
        if job.is_workflow and job.kind != FILE_WORKFLOW:
            await _show_function(session, operations, job)
            return
        run = await operations.workflow_run(job.id)
    if session.as_json:
        session.print_json(run)
    else:
        show_run(session.console, run)


async def _show_function(session: Session, operations: Operations, job: Job) -> None:
    history = [each async for each in operations.history(job.id, with_results=True)]
    waits = "" if job.waiting_for is None else (await operations.explain(job.id)).sentence
    if session.as_json:
        session.print_json({"job": job, "waits": waits, "history": history})
        return
    children: dict[str, State] = {}
    for child_id in [each.child_id for each in history if each.child_id is not None][-MAX_CHILDREN:]:
        with contextlib.suppress(JobNotFound):
            children[child_id] = (await operations.job(child_id)).state
    show_history(session.console, job, history, children, waits, await operations.now())


@workflows.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@async_command
async def check(session: Session, files: tuple[Path, ...]) -> None:
    """Check workflow files: all problems, each with its file, its place and what to do.

    FILES are files or folders; without them, the workflow folder is checked. With an application, the kinds of steps
    are checked too, and the names of their inputs against the parameters of the handlers. Exit code 1 if a file is
    invalid.

    \b
    Example:
      jobyard --app shop.jobs:yard workflows check
      jobyard workflows check workflows/scan.json
    """
    app = session.app() if session.app_name is not None else None
    found = read_workflows(session.configuration, app, files or None)
    if session.as_json:
        session.print_json({"workflows": list(found.definitions), "problems": found.problems})
    else:
        for problem in found.problems:
            session.echo(problem)
        where = "" if files else f" in {workflow_folder(session.configuration) or 'workflows'}"
        valid = counted(len(found.definitions), "valid workflow")
        session.echo(f"{valid}{where}, {counted(len(found.problems), 'problem')}.")
    if found.problems:
        raise click.exceptions.Exit(1)


@workflows.command()
@click.argument("workflow")
@click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="A param of the run; repeatable.")
@click.option("--params", "file", metavar="FILE", help="A JSON object with params; - reads standard input.")
@click.option("--platform", metavar="NAME", help="The platform, if not the one that the file and the params lead to.")
@click.option("--priority", type=int, help="Runs with a higher priority start first on their platform.")
@click.option("--no-wait", is_flag=True, help="Print the id of the job, and do not wait for its end.")
@async_command
async def run(
    session: Session,
    workflow: str,
    params: tuple[str, ...],
    file: str | None,
    platform: str | None,
    priority: int | None,
    no_wait: bool,
) -> None:
    """Run a workflow and show the states of its steps until it has ended.

    A VALUE is text if the param is declared so, else JSON. On a terminal the steps are a table that is redrawn,
    elsewhere each change is a line. The output is printed as JSON at the end. Exit code 1 if the run does not complete.
    Ctrl-C ends this command, and not the run.

    \b
    Example:
      jobyard workflows run scan -p platform=ably -p limit=10
      jobyard workflows run scan --params params.json --no-wait
    """
    definition = _named(workflow, await _all(session))
    given = read_params(params, file, definition.params)
    async with session.operations(creates_store=True) as operations:
        job_id = await operations.run_workflow(workflow, given, platform=platform, priority=priority)
        if no_wait:
            session.report({"job_id": job_id}, job_id)
            return
        stop = asyncio.Event()
        with stop_on_signals(stop), live_run(session.console, is_shown=not session.as_json) as show:
            found = await _follow(operations, job_id, show, stop)
    if not found.state.is_final:
        session.echo_error(f"The run goes on. To see it: jobyard workflows show {job_id}")
        raise click.exceptions.Exit(INTERRUPTED)
    if session.as_json:
        session.print_json(found)
    elif found.state is State.COMPLETED:
        session.echo(as_json(found.output, indent=-1))
    if found.state is not State.COMPLETED:
        session.echo_error(f"Error: The run of {workflow} is {found.state}: {found.reason}")
        raise click.exceptions.Exit(1)


async def _follow(operations: Operations, job_id: str, show: Show, stop: asyncio.Event) -> WorkflowRunView:
    """Show the run until it is final, or `stop` is set."""
    loop = asyncio.get_running_loop()
    waits, explained_at = "", -EXPLAIN_SECONDS
    while True:
        found = await operations.workflow_run(job_id)
        if found.state is not State.PENDING:
            waits, explained_at = "", -EXPLAIN_SECONDS
        elif loop.time() - explained_at >= EXPLAIN_SECONDS:
            waits, explained_at = (await operations.explain(job_id)).sentence, loop.time()
        show(found, waits)
        if found.state.is_final or stop.is_set():
            return found
        try:
            await asyncio.wait_for(stop.wait(), REFRESH_SECONDS)
        except TimeoutError:
            continue


@workflows.command()
@click.argument("target", metavar="WORKFLOW|FILE|JOB")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write to this file instead of standard output.")
@async_command
async def graph(session: Session, target: str, output: Path | None) -> None:
    """Draw the steps of a workflow, or of a run with their states, as an SVG image.

    \b
    Example:
      jobyard workflows graph scan --output scan.svg
      jobyard workflows graph 01890a5d-ac96-774b-bcce-b302099a8057 > run.svg
    """
    definition, states = await _drawn(session, target)
    image = render_graph(definition, states)
    if output is not None:
        _write(output, image)
        session.report({"workflow": definition.id, "file": str(output)}, f"Wrote {output}.")
    elif session.as_json:
        session.print_json({"workflow": definition.id, "svg": image})
    else:
        session.echo(image.rstrip("\n"))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise BadInput(f"Cannot write {path}: {error.strerror}.") from error


def _is_file(target: str) -> bool:
    return Path(target).suffix in FORMATS


async def _drawn(session: Session, target: str) -> tuple[WorkflowDefinition, Mapping[str, StepState] | None]:
    """The workflow to draw, and the states of its steps if it is a run."""
    if _is_file(target):
        return read_workflow(Path(target)), None
    known = _named_or_job(target, await _all(session))
    if known is not None:
        return parse_workflow(known.text, file=known.id, text_format=Format(known.format)), None
    async with session.operations() as operations:
        found = await operations.workflow_run(await whole_id(operations, target))
        job = await operations.job(found.job_id)
    definition = await load_definition(payload_of(job))
    return definition, {step.id: StepState(step.status, None, step.reason) for step in found.steps}


async def _all(session: Session) -> list[WorkflowView]:
    """The workflow files of the server, or of the folder; only the valid ones."""
    if session.server is not None:
        async with session.operations() as operations:
            return list(await operations.workflows())
    found = read_workflows(session.configuration, None)
    if found.problems:
        session.echo_error(f"{counted(len(found.problems), 'problem')} in workflow files: run jobyard workflows check.")
    return [workflow_view(found.definitions[name]) for name in sorted(found.definitions)]


def _named_or_job(word: str, found: list[WorkflowView]) -> WorkflowView | None:
    """The workflow of this name; None if there is none and the word may be the id of a job."""
    is_job = PREFIX.fullmatch(word.lower()) is not None
    return None if is_job and all(each.id != word for each in found) else _named(word, found)


def _named(name: str, found: list[WorkflowView]) -> WorkflowView:
    for each in found:
        if each.id == name:
            return each
    raise UnknownWorkflow.of(name, [each.id for each in found])
