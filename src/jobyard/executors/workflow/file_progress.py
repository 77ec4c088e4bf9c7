"""Live states of the steps of a workflow file: named steps and the progress of its job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobyard.domain.job import Progress, Step
from jobyard.domain.workflow_files.definition import StepDefinition, WorkflowDefinition
from jobyard.domain.workflow_files.step_state import StepState, StepStatus
from jobyard.errors import LeaseLost
from jobyard.ports.executor import Attempt

# The first change is reported at once, those of this time after it together: steps may end faster than a store writes.
REPORT_SECONDS = 0.1
# A run must not wait longer for its last report than for its result, and one that is stopped not nearly as long.
FLUSH_SECONDS = 5.0
STOP_SECONDS = 1.0
# The states of all steps are part of the progress up to this many steps, so that it stays small enough for events.
MAX_LISTED_STEPS = 60
MAX_LISTED_RUNNING = 10
# Further steps are in the history of the job only: stores read the reported steps of a job with each report.
MAX_REPORTED_STEPS = 200
MAX_NAMED = 3
# Words of reported steps: see `jobyard.domain.job.Step`.
_REPORTED = {StepStatus.COMPLETED: "passed", StepStatus.FAILED: "failed", StepStatus.INTERRUPTED: "failed"}


@dataclass(slots=True)
class _LiveStep:
    kind: str
    status: StepStatus = StepStatus.PENDING
    items: int | None = None
    items_ended: int = 0
    items_failed: int = 0
    percents: dict[int, float] = field(default_factory=dict)  # of running items, or of the step itself under -1
    message: str = ""

    @property
    def share(self) -> float:
        """How much of a running step is done, from 0 to 1."""
        done = self.items_ended + sum(self.percents.values()) / 100
        return done / (self.items or 1)

    def detail(self) -> dict[str, Any]:
        """How far it is."""
        found: dict[str, Any] = {"message": self.message} if self.message else {}
        if self.items is not None:
            found |= {"items": self.items, "items_ended": self.items_ended, "items_failed": self.items_failed}
        elif self.percents:
            found["percent"] = round(self.percents[-1], 1)
        return found

    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = {"kind": self.kind}
        if self.items is not None and self.status.has_ended:
            found |= {"items": self.items, "items_failed": self.items_failed}
        return found


class FileProgress:
    """Reports what changed in the background, so that no step waits for a report."""

    def __init__(self, attempt: Attempt, definition: WorkflowDefinition, states: Mapping[str, StepState]) -> None:
        self._attempt = attempt
        self._main = frozenset(step.id for step in definition.steps)
        self._steps = {step.id: _LiveStep(step.kind) for step in definition.all_steps()}
        self._running: dict[str, None] = {}
        self._completed = self._skipped = 0  # of the main steps
        self._has_failed = False
        self._reported: set[str] = set()
        for name, state in states.items():
            self._set(name, state.status)
        # Steps to report. Another report of a running step would move its beginning: it is reported once.
        self._changed: dict[str, None] = {}
        self._has_advanced = False
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def _set(self, name: str, status: StepStatus) -> None:
        self._steps[name].status = status
        if status is StepStatus.RUNNING:
            self._running[name] = None
        else:
            self._running.pop(name, None)
            if name in self._main:
                self._completed += status is StepStatus.COMPLETED
                self._skipped += status is StepStatus.SKIPPED
                self._has_failed = self._has_failed or status in (StepStatus.FAILED, StepStatus.INTERRUPTED)

    def started(self, step: StepDefinition, items: int | None) -> None:
        self._steps[step.id].items = items
        self._set(step.id, StepStatus.RUNNING)
        self._report(step.id)

    def item_ended(self, step_id: str, index: int, state: StepState, *, is_news: bool = True) -> None:
        live = self._steps[step_id]
        live.percents.pop(index, None)
        live.items_ended += 1
        live.items_failed += state.status is StepStatus.FAILED
        if is_news:
            self._advance()

    def advanced(self, step_id: str, index: int | None, progress: Progress) -> None:
        """A handler has reported progress."""
        live = self._steps[step_id]
        live.percents[-1 if index is None else index] = progress.percent
        live.message = progress.message[:200]
        self._advance()

    def ended(self, states: Mapping[str, StepState]) -> None:
        for name, state in states.items():
            self._set(name, state.status)
            self._report(name)

    def repeat(self, names: Iterable[str]) -> None:
        """Report ended steps again whose last report was lost with its worker."""
        for name in names:
            self._report(name)

    def _report(self, name: str) -> None:
        self._changed[name] = None
        self._advance()

    def _advance(self) -> None:
        self._has_advanced = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        while self._has_advanced:
            changed, self._changed, self._has_advanced = self._changed, {}, False
            steps = [step for step in map(self._step, changed) if step is not None]
            try:
                for step in steps[:-1]:
                    await self._attempt.report(step=step)
                await self._attempt.report(progress=self.progress(), step=steps[-1] if steps else None)
            except LeaseLost:
                return  # the next checkpoint ends the attempt
            if self._closing.is_set():
                continue
            try:
                await asyncio.wait_for(self._closing.wait(), REPORT_SECONDS)
            except TimeoutError:
                continue
        self._task = None

    async def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Send what is left, but wait for a bounded time only."""
        self._closing.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=seconds)
        await self._stop()

    async def interrupt(self) -> None:
        """The attempt is stopped: say which steps were running then, and send nothing more."""
        for name in list(self._running):
            self._set(name, StepStatus.INTERRUPTED)
            self._report(name)
        try:
            await self.close(STOP_SECONDS)
        except asyncio.CancelledError:
            await self._stop()
            raise

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # a report that failed must not end the run

    def _step(self, name: str) -> Step | None:
        live = self._steps[name]
        has_room = len(self._reported) < MAX_REPORTED_STEPS or live.status is StepStatus.FAILED
        if live.status is StepStatus.SKIPPED or not (has_room or name in self._reported):
            return None
        self._reported.add(name)
        status = _REPORTED.get(live.status, "running")
        return Step(name=name, status=status, attempt=self._attempt.lease.attempt, data=live.data())

    def progress(self) -> Progress:
        """The share of the steps that are done, as `count_finished` counts them, with the names of those that run.

        Steps of `on_failure` do not count: the run has failed when they run.
        """
        finished = self._completed + (0 if self._has_failed else self._skipped)
        total, running = len(self._main), list(self._running)
        begun = sum(self._steps[name].share for name in running if name in self._main)
        message = f"{finished} of {total} steps"
        if running:
            more = f" and {len(running) - MAX_NAMED} more" if len(running) > MAX_NAMED else ""
            message += f", running {', '.join(running[:MAX_NAMED])}{more}"
        details = {name: self._steps[name].detail() for name in running[:MAX_LISTED_RUNNING]}
        data: dict[str, Any] = {"finished": finished, "total": total, "running": details}
        if len(self._steps) <= MAX_LISTED_STEPS:
            data["steps"] = {
                name: str(live.status) for name, live in self._steps.items() if live.status is not StepStatus.PENDING
            }
        return Progress(percent=round(100 * (finished + begun) / total, 1), message=message, data=data)
