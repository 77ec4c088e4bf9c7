"""Runs of workflow files, as their callers see them: the states of steps come from the history of the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from jobyard.api.convert import time_text
from jobyard.api.schemas.jobs import ProgressView
from jobyard.api.schemas.workflows import (
    WorkflowItemCounts,
    WorkflowRunView,
    WorkflowStepDefinition,
    WorkflowStepView,
    WorkflowView,
)
from jobyard.domain.instant import Instant, rfc3339
from jobyard.domain.job import Job, State, Step
from jobyard.domain.state import was_quarantined
from jobyard.domain.workflow_files.definition import StepDefinition, WorkflowDefinition
from jobyard.domain.workflow_files.nodes import Reference, as_text
from jobyard.domain.workflow_files.scheduler import RunInfo, RunScheduler
from jobyard.domain.workflow_files.step_state import (
    PENDING,
    StepState,
    StepStatus,
    count_finished,
    interrupted,
    skipped,
)
from jobyard.domain.workflow_files.templates import TextTemplate
from jobyard.errors import InvalidWorkflow, JobNotFound
from jobyard.executors.workflow.file_records import FILE_WORKFLOW, FileHistory, FilePayload, load_definition
from jobyard.executors.workflow.records import decode
from jobyard.executors.workflow.relay import load_history
from jobyard.ports.store import Store

_decode = msgspec.json.Decoder(FilePayload).decode


class FileRun(msgspec.Struct, frozen=True):
    """A job that runs a workflow file, with its definition and the states of its steps."""

    job: Job
    payload: FilePayload
    definition: WorkflowDefinition
    history: FileHistory
    states: Mapping[str, StepState]


def payload_of(job: Job) -> FilePayload:
    """Raises JobNotFound for a job that runs no workflow file."""
    try:
        if job.kind == FILE_WORKFLOW:
            return _decode(job.payload)
    except msgspec.DecodeError:
        pass
    raise JobNotFound(f"Job {job.id} does not run a workflow file. It is shown by GET /v1/jobs/{job.id}.")


async def step_kinds(job: Job) -> tuple[str, ...]:
    """The kinds of the steps of a run; empty for a job that runs no valid workflow file."""
    try:
        definition = await load_definition(payload_of(job))
    except (JobNotFound, InvalidWorkflow):
        return ()
    return tuple(step.kind for step in definition.all_steps())


async def load_run(store: Store, job: Job) -> FileRun:
    """Raises JobNotFound for a job that runs no workflow file."""
    payload = payload_of(job)
    try:
        definition = await load_definition(payload)
    except InvalidWorkflow as error:
        raise JobNotFound(f"Job {job.id} has no valid workflow: {error}") from None
    entries = {entry.key: decode(entry) for entry in await load_history(store, job.id)}
    history = FileHistory(definition, entries)
    return FileRun(job, payload, definition, history, _states(job, payload, definition, history))


def _states(
    job: Job, payload: FilePayload, definition: WorkflowDefinition, history: FileHistory
) -> dict[str, StepState]:
    """Recorded steps, those that follow from them, and those that are reported as running."""
    recorded = history.states()
    info = RunInfo(id=job.id, started_at=history.started_at or job.created_at, platform=payload.platform)
    scheduler = RunScheduler(definition, payload.params, info, recorded)
    if history.started_at is not None:
        scheduler.next()
    running = {step.name for step in job.steps if step.status == "running"} if job.state is State.RUNNING else set()
    found: dict[str, StepState] = {}
    for name, state in scheduler.states.items():
        # The scheduler calls a step running that may start; it does when a worker says so.
        is_ready = state.status is StepStatus.RUNNING and name not in running
        found[name] = PENDING if is_ready else state
    if not job.state.is_final:
        return found
    begun = {step.name for step in job.steps if step.attempt >= job.attempt}
    if was_quarantined(job.errors):
        # What was ready had begun: the report that says so may have died with the worker.
        begun |= {name for name, state in scheduler.states.items() if state.status is StepStatus.RUNNING}
    return {
        name: state if state.status.has_ended else _unfinished(job.state, has_begun=name in begun)
        for name, state in found.items()
    }


# What happened to a run that ended without the end of all its steps.
_ENDINGS = {State.CANCELLED: "was cancelled", State.TIMEOUT: "timed out"}


def _unfinished(state: State, *, has_begun: bool) -> StepState:
    """The state of a step that had not ended when its run did."""
    if state is State.COMPLETED:
        return skipped("No step failed.")
    what = f"The run {_ENDINGS.get(state, 'failed')}"
    return interrupted(f"{what} while the step ran.") if has_begun else skipped(f"{what} before the step began.")


def run_view(run: FileRun, now: Instant) -> WorkflowRunView:
    job, payload = run.job, run.payload
    end = job.finished_at or now
    started_at = job.started_at
    return WorkflowRunView(
        job_id=job.id,
        workflow_id=payload.workflow_id,
        version=payload.version,
        digest=payload.digest,
        platform=job.queue,
        state=job.state,
        attempt=job.attempt,
        priority=job.priority,
        params=payload.params,
        created_at=rfc3339(job.created_at),
        first_started_at=time_text(run.history.started_at),
        started_at=time_text(started_at),
        finished_at=time_text(job.finished_at),
        elapsed_seconds=None if started_at is None else max(0, end - started_at) / 1000,
        progress=None if job.progress is None else _progress(run),
        steps=tuple(_step_views(run, now)),
        output=None if job.result is None else msgspec.json.decode(job.result),
        reason=job.reason,
        cancel_requested=job.cancel_requested,
    )


def _progress(run: FileRun) -> ProgressView:
    """As the worker reported it last; of a run that has ended, by the states of its steps."""
    reported = run.job.progress
    assert reported is not None
    fields = {name: getattr(reported, name) for name in ("percent", "message", "data")}
    fields["at"] = rfc3339(reported.at)  # text, as the server sends it
    if run.job.state.is_final:
        main = [run.states[step.id].status for step in run.definition.steps]
        finished = count_finished(main, has_failed=run.job.state is not State.COMPLETED)
        fields["percent"] = round(100 * finished / len(main), 1)
        fields["message"] = f"{finished} of {len(main)} steps"
        if isinstance(reported.data, dict):
            fields["data"] = reported.data | {"finished": finished, "running": {}}
    return ProgressView(**fields)


def _step_views(run: FileRun, now: Instant) -> Iterator[WorkflowStepView]:
    reported = {step.name: step for step in run.job.steps}
    details = _running_details(run.job)
    on_failure = {step.id for step in run.definition.on_failure}
    for step in run.definition.all_steps():
        state = run.states[step.id]
        live = reported.get(step.id)
        started_at, finished_at, attempts = _times(run, step, live, state)
        is_running = state.status is StepStatus.RUNNING
        detail = details.get(step.id, {}) if is_running else {}
        ended = now if is_running else finished_at
        yield WorkflowStepView(
            id=step.id,
            kind=step.kind,
            status=state.status,
            on_failure=step.id in on_failure,
            started_at=time_text(started_at),
            finished_at=time_text(finished_at),
            elapsed_seconds=None if started_at is None or ended is None else max(0, ended - started_at) / 1000,
            attempts=attempts,
            items=_items(run, step, detail),
            percent=detail.get("percent"),
            message=detail.get("message", ""),
            reason=state.reason,
        )


def _times(
    run: FileRun, step: StepDefinition, live: Step | None, state: StepState
) -> tuple[Instant | None, Instant | None, int]:
    """When the step started and ended, and its attempts.

    Of a step that has ended, by the history alone: a report may come after the end, or be of an earlier attempt.
    """
    found = run.history.of_step(step)
    if found is not None:
        return found.started_at, found.finished_at, found.attempts
    if live is None or state.status not in (StepStatus.RUNNING, StepStatus.INTERRUPTED):
        return None, None, 0
    is_over = state.status is StepStatus.INTERRUPTED
    finished_at = (live.finished_at or run.job.finished_at) if is_over else None
    return live.started_at or None, finished_at, len(run.history.failures(run.history.key(step))) + 1


def _running_details(job: Job) -> Mapping[str, Mapping[str, Any]]:
    """How far the running steps are, as the worker reported it with the progress of the job."""
    data = job.progress.data if job.progress is not None else None
    found = data.get("running") if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}


def _items(run: FileRun, step: StepDefinition, detail: Mapping[str, Any]) -> WorkflowItemCounts | None:
    if step.for_each is None:
        return None
    total = run.history.total_items(step)
    if total is None and "items" in detail:
        total = detail["items"]
        return WorkflowItemCounts(total=total, ended=detail["items_ended"], failed=detail["items_failed"])
    if total is None:
        return None
    completed, failed = run.history.count_items(step)
    return WorkflowItemCounts(total=total, ended=completed + failed, failed=failed)


def workflow_view(definition: WorkflowDefinition) -> WorkflowView:
    main = {step.id for step in definition.steps}
    steps = tuple(
        WorkflowStepDefinition(
            id=step.id,
            kind=step.kind,
            description=step.description,
            needs=step.needs,
            has_items=step.for_each is not None,
            on_failure=step.id not in main,
        )
        for step in definition.all_steps()
    )
    return WorkflowView(
        id=definition.id,
        version=definition.version,
        description=definition.description,
        digest=definition.digest,
        platform=_platform_text(definition),
        timeout_seconds=definition.timeout_seconds,
        params=definition.params_schema,
        steps=steps,
        text=definition.text,
        format=definition.text_format,
    )


def _platform_text(definition: WorkflowDefinition) -> str | None:
    """The platform as the file has it."""
    match definition.platform:
        case None:
            return None
        case TextTemplate(parts):
            return "".join(part if isinstance(part, str) else f"${{{as_text(part)}}}" for part in parts)
        case Reference() as reference:
            return f"${{{as_text(reference)}}}"
    return str(getattr(definition.platform, "value", None))
