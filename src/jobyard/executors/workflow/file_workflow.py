"""The workflow that runs workflow files: it asks the scheduler what is next, and runs steps side by side."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from jobyard.domain.job import Job
from jobyard.domain.workflow_files.definition import StepDefinition, WorkflowDefinition
from jobyard.domain.workflow_files.scheduler import (
    ReadyStep,
    RunInfo,
    RunScheduler,
    WorkflowCompleted,
    WorkflowFailed,
)
from jobyard.domain.workflow_files.source import Format
from jobyard.domain.workflow_files.step_state import StepState, StepStatus, failed, interrupted, skipped
from jobyard.errors import ExpressionError, StepFailed, UnknownKind
from jobyard.executors.python.declared_task import DeclaredTask
from jobyard.executors.python.handlers import Handler
from jobyard.executors.python.payload import to_json
from jobyard.executors.workflow.cancellation import cancel_all
from jobyard.executors.workflow.context import WorkflowContext, parts_of
from jobyard.executors.workflow.file_items import perform_items
from jobyard.executors.workflow.file_progress import FileProgress
from jobyard.executors.workflow.file_records import (
    FILE_WORKFLOW,
    STARTED_KEY,
    FileHistory,
    FilePayload,
    load_definition,
)
from jobyard.executors.workflow.file_steps import FileSteps
from jobyard.executors.workflow.records import MAX_RESULT_BYTES, WorkflowRecord
from jobyard.executors.workflow.run import MissingKind, WorkflowRun
from jobyard.executors.workflow.steps import StepRunner

# Steps without an order between them that run at the same time; the others wait for one of them to end.
MAX_STEPS_AT_ONCE = 64


def file_workflow(tasks: Mapping[str, DeclaredTask]) -> Handler:
    """The handler of runs of workflow files, whose steps call these tasks. Its parameters are those of FilePayload."""

    async def run_file(
        ctx: WorkflowContext,
        workflow_id: str,
        version: int,
        digest: str,
        text: str,
        params: dict[str, Any],
        platform: str | None = None,
        file: str = "",
        format: Format = Format.JSON,
    ) -> Any:
        run, steps = parts_of(ctx)
        payload = FilePayload(
            workflow_id=workflow_id, version=version, digest=digest, text=text, params=params, file=file, format=format
        )
        definition = await load_definition(payload)
        file_run = _FileRun(run, steps, tasks, definition, params, platform)
        run.on_failure = file_run.run_failure_steps
        await run.require_going_on()  # if it is being ended: its steps have stopped
        return await file_run.result()

    return Handler(FILE_WORKFLOW, run_file, is_workflow=True)


class _FileRun:
    """One attempt of a run."""

    def __init__(
        self,
        run: WorkflowRun,
        steps: StepRunner,
        tasks: Mapping[str, DeclaredTask],
        definition: WorkflowDefinition,
        params: dict[str, Any],
        platform: str | None,
    ) -> None:
        self._run = run
        self._runner = steps
        self._tasks = tasks
        self._definition = definition
        self._params = params
        self._platform = platform

    async def result(self) -> Any:
        """The output of the run. Raises StepFailed, or ExpressionError if the output cannot be evaluated."""
        history, job = await self._open()
        states = history.states()
        self._require_known_kinds(self._definition.all_steps(), states)
        if job is not None:
            self._progress.repeat(states.keys() - {step.name for step in job.steps if step.status != "running"})
        end = await self._until_end()
        if isinstance(end, WorkflowCompleted):
            to_json(end.output, f"output of workflow {self._definition.id}", MAX_RESULT_BYTES)  # an error that names it
            return end.output
        if end.step is None:
            raise ExpressionError(end.reason)
        error = history.error_of(end.step)
        kind, message = ("", end.reason) if error is None else (error.type, error.message)
        raise StepFailed.of(end.step, kind, message)

    async def run_failure_steps(self, reason: str, is_deadly: bool) -> list[str]:
        """Run the `on_failure` steps of a run that was quarantined or timed out; returns what of them failed."""
        history, _ = await self._open()
        states = history.states()
        own = self._definition.on_failure
        has_failed = any(
            step.id in states and states[step.id].status is StepStatus.FAILED for step in self._definition.steps
        )
        if is_deadly or has_failed:  # they were running
            owed = [step.id for step in own if step.id not in states]
            return [f"on_failure steps not finished: {', '.join(owed)}"] if owed else []
        self._require_known_kinds(own, states)
        self._interrupt_steps(reason)
        await self._until_end()
        ended = ((step.id, self._scheduler.states[step.id]) for step in own)
        return [
            f"on_failure step {name} failed: {each.reason}" for name, each in ended if each.status is StepStatus.FAILED
        ]

    def _interrupt_steps(self, reason: str) -> None:
        """The steps that were ready had begun, and do not run again; the run fails with them."""
        news = self._scheduler.next()
        self._progress.ended(news.settled)
        for ready in news.ready:
            self._scheduler.settle(ready.id, failed(reason))
        self._progress.ended({ready.id: interrupted(reason) for ready in news.ready})

    async def _open(self) -> tuple[FileHistory, Job | None]:
        with self._run.working():
            history, job = await self._open_history()
        states = history.states()
        self._progress = FileProgress(self._run.attempt, self._definition, states)
        self._steps = FileSteps(self._run, self._runner, history, self._progress)
        info = RunInfo(id=self._run.attempt.lease.job_id, started_at=history.started_at or 0, platform=self._platform)
        self._scheduler = RunScheduler(self._definition, self._params, info, states)
        return history, job

    async def _until_end(self) -> WorkflowCompleted | WorkflowFailed:
        try:
            end = await self._run_steps()
        except BaseException:
            await self._progress.interrupt()
            raise
        with self._run.working():
            await self._progress.close()
        return end

    async def _open_history(self) -> tuple[FileHistory, Job | None]:
        """What earlier attempts recorded, and the job if there were any; the first one records that the run started."""
        journal = self._run.journal
        journal.mark_all_read()
        history = FileHistory(self._definition, journal.entries)
        if history.started_at is None:
            await journal.record(STARTED_KEY, WorkflowRecord(kind="started"))
            return history, None
        job = await self._run.store.get(self._run.attempt.lease.job_id)
        begin = None if job is None else history.next_round_key(job)
        if begin is not None:
            await journal.record(begin, WorkflowRecord(kind="round"))
            history = FileHistory(self._definition, journal.entries)
        return history, job

    def _require_known_kinds(self, steps: Iterable[StepDefinition], ended: Mapping[str, StepState]) -> None:
        for step in steps:
            if step.id not in ended and step.kind not in self._tasks:
                raise MissingKind(UnknownKind.of(step.kind, self._tasks))

    async def _run_steps(self) -> WorkflowCompleted | WorkflowFailed:
        running: dict[asyncio.Task[StepState], str] = {}
        waiting: deque[ReadyStep] = deque()
        try:
            while True:
                news = self._scheduler.next()
                self._progress.ended(news.settled)
                if news.end is not None:
                    return news.end
                waiting += news.ready
                while waiting and len(running) < MAX_STEPS_AT_ONCE:
                    ready = waiting.popleft()
                    running[asyncio.create_task(self._perform(ready))] = ready.id
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=running.__getitem__):
                    self._settle(running.pop(task), task.result(), waiting)
        finally:
            await cancel_all(running)

    def _settle(self, step_id: str, state: StepState, waiting: deque[ReadyStep]) -> None:
        self._scheduler.settle(step_id, state)
        self._progress.ended({step_id: state})
        if state.status is not StepStatus.FAILED or step_id not in {step.id for step in self._definition.steps}:
            return
        while waiting:  # no further step starts after a failure
            late = waiting.popleft().id
            self._scheduler.settle(late, skipped(f"Step {step_id} failed."))
            self._progress.ended({late: self._scheduler.states[late]})

    async def _perform(self, ready: ReadyStep) -> StepState:
        step, task = ready.step, self._tasks[ready.step.kind]
        self._progress.started(step, None if ready.items is None else len(ready.items))
        if ready.items is None:
            return await self._steps.perform(step, task, ready.input)
        return await perform_items(self._steps, ready, task, ready.items)
