"""One job as a page of text."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from rich.console import Console
from rich.markup import escape

from jobyard.cli.render.json import without_internals
from jobyard.cli.render.output import duration, name, print_markup, progress, reason, state, when
from jobyard.domain.instant import Instant, rfc3339
from jobyard.domain.job import Job, State
from jobyard.domain.text import visible
from jobyard.executors.workflow.file_records import FILE_WORKFLOW

STEP_MARKS = {"passed": "[green]✓[/]", "failed": "[red]✗[/]", "running": "[cyan]…[/]"}
LINE_COLOURS = {"warning": "yellow", "error": "red", "debug": "dim"}


def show_job(console: Console, job: Job, now: Instant, waits: str = "") -> None:
    """`waits`: why a parked job waits, as a sentence."""
    job = without_internals(job)
    for part in (_facts(job, waits), _steps(job), _log(job), _errors(job), _timeline(job, now)):
        for line in part:
            print_markup(console, line)


def _facts(job: Job, waits: str) -> Iterator[str]:
    yield f"[bold]{visible(escape(job.kind))}[/] {escape(job.id)}  {state(job.state)}"
    if job.reason:
        yield _fact("reason", name(reason(job)))
    if job.cancel_requested is not None:
        yield _fact("asked to stop", escape(job.cancel_requested or "yes"))
    yield _fact("queue", f"{escape(job.queue)}   group {name(job.group)}   priority {job.priority}")
    tries = f"{job.attempt} of {job.max_attempts}"
    tries += f"   worker deaths {job.deaths}" if job.deaths else ""
    yield _fact("attempt", tries + (f"   timeout {job.timeout_seconds:g} s" if job.timeout_seconds else ""))
    if job.worker:
        yield _fact("worker", escape(job.worker))
    if job.external_id:
        yield _fact("handed off to", escape(job.external_id))
    if job.waiting_for and job.state is State.PENDING:
        yield _fact("parked", escape(waits or f"until the signal {job.waiting_for}"))
    if job.is_workflow:
        yield _fact("its steps", f"jobyard workflows show {escape(job.id)}")
    if job.unique_key:
        yield _fact("unique key", escape(job.unique_key))
    if job.tags:
        yield _fact("tags", escape(", ".join(job.tags)))
    yield _fact("payload", _payload(job))
    if job.result is not None:
        yield _fact("result", _json(job.result))
    if job.progress is not None:
        yield _fact("progress", progress(job, 20))


def _steps(job: Job) -> Iterator[str]:
    if job.steps:
        yield "\n[bold]Steps[/]"
    for step in job.steps:
        took = f"  {duration((step.finished_at - step.started_at) / 1000)}" if step.finished_at else ""
        data = "" if step.data is None else f"  {escape(msgspec.json.encode(step.data).decode())}"
        mark = STEP_MARKS.get(step.status, "·")
        yield f"  {mark} {escape(step.name)} [dim]attempt {step.attempt}, {escape(step.status)}{took}[/]{data}"


def _log(job: Job) -> Iterator[str]:
    if job.log:
        yield "\n[bold]Log[/]"
    for line in job.log:
        colour = LINE_COLOURS.get(line.level, "default")
        yield f"  [dim]{_clock(line.at)}[/] [{colour}]{escape(line.level):7}[/] {escape(line.message)}"


def _errors(job: Job) -> Iterator[str]:
    if job.errors:
        yield "\n[bold]Failed attempts[/]"
    for error in job.errors:
        yield f"  [red]{error.attempt}[/] {error.ending}  {escape(error.summary)}"
        yield f"    [dim]{rfc3339(error.at)}  on {name(error.worker)}[/]"
        for line in (error.traceback or "").rstrip().splitlines():
            yield f"    [dim]{escape(line)}[/]"


def _timeline(job: Job, now: Instant) -> Iterator[str]:
    yield "\n[bold]Timeline[/]"
    yield _fact("created", when(job.created_at, now))
    if job.state is State.PENDING:
        yield _fact("due", when(job.run_at, now))
    if job.started_at is not None:
        waited = duration((job.started_at - job.created_at) / 1000)
        yield _fact("started", f"{when(job.started_at, now)}, {waited} after it was created")
    if job.finished_at is not None:
        ran = "" if job.started_at is None else f", ran {duration((job.finished_at - job.started_at) / 1000)}"
        yield _fact("finished", when(job.finished_at, now) + ran)


def _fact(what: str, value: str) -> str:
    return f"  {what:<14}{visible(value)}"


def _payload(job: Job) -> str:
    """A run of a workflow file without the text of the file, which would hide the rest."""
    if job.kind != FILE_WORKFLOW:
        return _json(job.payload)
    payload = {key: value for key, value in job.payload_value().items() if key != "text"}
    return _json(msgspec.Raw(msgspec.json.encode(payload)))


def _json(raw: msgspec.Raw) -> str:
    return escape(bytes(raw).decode())


def _clock(instant: Instant) -> str:
    return rfc3339(instant)[11:23]
