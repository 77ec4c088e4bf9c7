"""The items of a step with `for_each`: each is stored by itself, and a limited number run side by side."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Any

from jobyard.domain.workflow_files.definition import OnItemFailure, StepDefinition
from jobyard.domain.workflow_files.scheduler import ReadyStep, items_state
from jobyard.domain.workflow_files.step_state import StepState, StepStatus
from jobyard.executors.python.declared_task import DeclaredTask
from jobyard.executors.workflow.cancellation import cancel_all
from jobyard.executors.workflow.file_steps import FileSteps
from jobyard.executors.workflow.journal import MAX_ENTRIES
from jobyard.executors.workflow.records import StepError

# Entries of a history that items may not use, so that the other steps can still be recorded.
RESERVED_ENTRIES = 100


async def perform_items(steps: FileSteps, ready: ReadyStep, task: DeclaredTask, items: list[Any]) -> StepState:
    """Run the items that have not ended. After a failure no further one starts, unless all of them are to run."""
    step, started_at = ready.step, await steps.now()
    states = {index: found for index in range(len(items)) if (found := steps.ended_item(step, index)) is not None}
    todo = deque(index for index in range(len(items)) if index not in states)
    if len(todo) > MAX_ENTRIES - RESERVED_ENTRIES - steps.recorded:
        message = f"for_each has {len(items):,} items, and a run records at most {MAX_ENTRIES:,}. Split the list."
        return await steps.record_items(step, len(items), started_at, StepError("", message))
    running: dict[asyncio.Task[StepState], int] = {}
    is_stopping = any(_stops(step, state) for state in states.values())
    try:
        while running or (todo and not is_stopping):
            while todo and not is_stopping and len(running) < step.at_most:
                index = todo.popleft()
                running[asyncio.create_task(steps.perform(step, task, partial(ready.input, index), index))] = index
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                index = running.pop(ended)
                states[index] = state = ended.result()
                is_stopping = is_stopping or _stops(step, state)
    finally:
        await cancel_all(running)
    if is_stopping:
        index = min(index for index, state in states.items() if _stops(step, state))
        error = StepError("", f"Item {index}: {states[index].reason}")
        return await steps.record_items(step, len(items), started_at, error)
    await steps.record_items(step, len(items), started_at)
    return items_state(step, (states[index] for index in range(len(items))))


def _stops(step: StepDefinition, state: StepState) -> bool:
    return state.status is StepStatus.FAILED and step.on_item_failure is OnItemFailure.FAIL
