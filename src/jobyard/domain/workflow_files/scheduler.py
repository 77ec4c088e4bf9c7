"""What a run of a workflow file does next, from the definition, the params and how its steps ended.

    scheduler = RunScheduler(definition, params, run, states)  # states: of the steps that have ended before, if any
    while (news := scheduler.next()).end is None:
        ...  # record news.settled, and start news.ready; each step is handed out once
        scheduler.settle(step_id, completed(output))           # or failed(reason), when one of them has ended

A step starts after all its needs have ended. A step whose need was skipped is skipped too, unless its `when` refers to
that need and is true. After a step has failed no further step starts; when the running ones have ended, the
`on_failure` steps run, and then the run has failed. The same calls lead to the same decisions.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from jobyard.domain.instant import Instant, rfc3339
from jobyard.domain.workflow_files.definition import OnItemFailure, StepDefinition, WorkflowDefinition
from jobyard.domain.workflow_files.evaluation import ReferenceScope, evaluate_condition, type_name
from jobyard.domain.workflow_files.nodes import Expression, as_text
from jobyard.domain.workflow_files.references import references
from jobyard.domain.workflow_files.step_state import (
    PENDING,
    RUNNING,
    StepState,
    StepStatus,
    completed,
    failed,
    skipped,
)
from jobyard.domain.workflow_files.templates import evaluate
from jobyard.errors import ExpressionError

MAX_ITEMS = 100_000


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What `run.` refers to."""

    id: str
    started_at: Instant
    platform: str | None = None


class ReadyStep:
    """A step to start now. With `for_each`, `items` is the list, and each item has its own input."""

    def __init__(self, step: StepDefinition, scope: ReferenceScope, items: list[Any] | None) -> None:
        self.step = step
        self.items = items
        self._scope = scope
        self._only = None if items is not None else self._evaluate(scope)

    @property
    def id(self) -> str:
        return self.step.id

    def input(self, index: int = 0) -> dict[str, Any]:
        """The input of the handler, of the item at this index if there are items. Do not change it.

        Inputs of items are made on demand, because the list may be long; then it may raise ExpressionError, and the
        item has failed.
        """
        if self.items is None:
            assert self._only is not None
            return self._only
        roots = {**self._scope.roots, "item": self.items[index], "index": index}
        return self._evaluate(ReferenceScope(roots, self._scope.steps))

    def _evaluate(self, scope: ReferenceScope) -> dict[str, Any]:
        found = evaluate(self.step.input, scope)
        if not isinstance(found, dict):
            raise ExpressionError(f"The input of step {self.id} must be an object, not {type_name(found)}.")
        return found


class WorkflowCompleted(msgspec.Struct, frozen=True):
    output: Any


class WorkflowFailed(msgspec.Struct, frozen=True):
    step: str | None  # the first in the file that failed; None: the output cannot be evaluated
    reason: str


class NextSteps(msgspec.Struct, frozen=True):
    """What is new since the last call."""

    ready: tuple[ReadyStep, ...]
    settled: Mapping[str, StepState]  # ended without a run: skipped, failed, or completed without items
    end: WorkflowCompleted | WorkflowFailed | None


def items_state(step: StepDefinition, items: Iterable[StepState]) -> StepState:
    """The state of a step with `for_each`, from those of its items in their order."""
    outputs: list[Any] = []
    for index, item in enumerate(items):
        if item.status is StepStatus.COMPLETED:
            outputs.append(item.output)
        elif step.on_item_failure is OnItemFailure.CONTINUE:
            outputs.append({"error": item.reason})
        else:
            return failed(f"Item {index}: {item.reason}")
    return completed(outputs)


class RunScheduler:
    """One run. A call costs as much as there is news, not as there are steps."""

    def __init__(
        self,
        definition: WorkflowDefinition,
        params: Mapping[str, Any],
        run: RunInfo,
        states: Mapping[str, StepState] | None = None,
    ) -> None:
        """`params` are those of `check_params`. A step that is RUNNING in `states` is not handed out again."""
        self._definition = definition
        self._states = {step.id: (states or {}).get(step.id, PENDING) for step in definition.all_steps()}
        self._values = {name: _values(state) for name, state in self._states.items()}
        self._scope = ReferenceScope({"params": dict(params), "run": _run_values(run)}, self._values)
        self._failure: WorkflowFailed | None = None
        self._is_stopping = False
        self._end: WorkflowCompleted | WorkflowFailed | None = None
        self._ready: list[ReadyStep] = []
        self._settled: dict[str, StepState] = {}
        self._enter(definition.steps)

    @property
    def states(self) -> Mapping[str, StepState]:
        """The state of every step, those of `on_failure` included."""
        return self._states

    def settle(self, step_id: str, state: StepState) -> None:
        """Record how a step that was handed out has ended."""
        status = self._states[step_id].status
        if status is not StepStatus.RUNNING or not state.status.has_ended:
            raise ValueError(f"Cannot settle step {step_id} as {state.status}: it is {status}.")
        self._set(step_id, state)

    def next(self) -> NextSteps:
        """What is new: steps to start, steps that ended without a run, and the end of the run."""
        while self._end is None:
            if self._due:
                self._decide(self._phase[heapq.heappop(self._due)])
            elif self._unfinished:
                break
            else:
                self._finish_phase()
        for ready in self._ready:
            self._states[ready.id] = RUNNING
            self._values[ready.id] = _values(RUNNING)
        news = NextSteps(tuple(self._ready), self._settled, self._end)
        self._ready, self._settled = [], {}
        return news

    def _enter(self, phase: tuple[StepDefinition, ...]) -> None:
        """Begin with the steps of the workflow, or with those of `on_failure`."""
        self._phase = phase
        self._positions = {step.id: position for position, step in enumerate(phase)}
        self._unfinished = sum(not self._states[step.id].status.has_ended for step in phase)
        self._followers: dict[str, list[str]] = {step.id: [] for step in phase}
        self._waiting: dict[str, int] = {}
        # Positions, so that decisions come in the order of the file.
        self._due: list[int] = []
        for step in phase:
            needs = [need for need in step.needs if not self._states[need].status.has_ended]
            self._waiting[step.id] = len(needs)
            for need in needs:
                self._followers[need].append(step.id)
            self._make_due(step.id)
        failure = self._first_failure()
        if failure is not None and failure.step is not None:
            self._stop_starting(failure.step)

    def _make_due(self, name: str) -> None:
        if self._waiting[name] == 0 and self._states[name].status is StepStatus.PENDING:
            heapq.heappush(self._due, self._positions[name])

    def _decide(self, step: StepDefinition) -> None:
        try:
            reason = self._reason_to_skip(step)
            if reason is not None:
                self._settle_now(step.id, skipped(reason))
                return
            items = None if step.for_each is None else self._items(step)
            if items == []:
                self._settle_now(step.id, completed([]))
                return
            self._ready.append(ReadyStep(step, self._scope, items))
        except ExpressionError as error:
            self._settle_now(step.id, failed(str(error)))

    def _reason_to_skip(self, step: StepDefinition) -> str | None:
        named = _steps_in(step.when)
        for need in step.needs:
            status = self._states[need].status
            if status is not StepStatus.COMPLETED and need not in named:
                return f"Step {need} {'failed' if status is StepStatus.FAILED else 'was skipped'}."
        if step.when is not None and not evaluate_condition(step.when, self._scope):
            return f"The condition is false: {as_text(step.when)}"
        return None

    def _items(self, step: StepDefinition) -> list[Any]:
        assert step.for_each is not None
        items = evaluate(step.for_each, self._scope)
        if not isinstance(items, list):
            raise ExpressionError(f"for_each of step {step.id} must be a list, not {type_name(items)}.")
        if len(items) > MAX_ITEMS:
            raise ExpressionError(f"for_each of step {step.id} has {len(items):,} items, more than {MAX_ITEMS:,}.")
        return items

    def _settle_now(self, name: str, state: StepState) -> None:
        self._settled[name] = state
        self._set(name, state)

    def _set(self, name: str, state: StepState) -> None:
        self._states[name] = state
        self._values[name] = _values(state)
        self._unfinished -= 1
        if state.status is StepStatus.FAILED:
            self._stop_starting(name)
        for follower in self._followers[name]:
            self._waiting[follower] -= 1
            self._make_due(follower)

    def _stop_starting(self, name: str) -> None:
        """After a failure, skip what has not started; a failed `on_failure` step stops only those that need it."""
        if self._is_stopping or self._phase is not self._definition.steps:
            return
        self._is_stopping = True
        for step in self._phase:
            if self._states[step.id].status is StepStatus.PENDING:
                self._settle_now(step.id, skipped(f"Step {name} failed."))
        self._due, self._ready = [], []

    def _finish_phase(self) -> None:
        if self._failure is not None:
            self._end = self._failure
            return
        self._failure = self._first_failure()
        if self._failure is None:
            try:
                self._end = WorkflowCompleted(evaluate(self._definition.output, self._scope))
            except ExpressionError as error:
                self._failure = WorkflowFailed(None, f"Cannot evaluate the output: {error}")
            else:
                return
        failure = {"step": self._failure.step or "output", "error": self._failure.reason}
        self._scope = ReferenceScope({**self._scope.roots, "failure": failure}, self._values)
        self._enter(self._definition.on_failure)

    def _first_failure(self) -> WorkflowFailed | None:
        for step in self._definition.steps:
            state = self._states[step.id]
            if state.status is StepStatus.FAILED:
                return WorkflowFailed(step.id, state.reason)
        return None


def _steps_in(condition: Expression | None) -> set[str | int]:
    """The steps that a condition refers to."""
    if condition is None:
        return set()
    return {each.keys[0] for each in references(condition) if each.root == "steps"}


def _values(state: StepState) -> dict[str, Any]:
    if state.status is StepStatus.COMPLETED:
        return {"status": str(state.status), "output": state.output}
    return {"status": str(state.status)}


def _run_values(run: RunInfo) -> dict[str, Any]:
    platform = {} if run.platform is None else {"platform": run.platform}
    return {"id": run.id, "started_at": rfc3339(run.started_at), **platform}
