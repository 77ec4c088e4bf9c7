"""Branches of a workflow, run side by side with keys that do not depend on their timing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from jobyard.executors.workflow.cancellation import cancel_all
from jobyard.executors.workflow.journal import Operation, Scope, current_scope
from jobyard.executors.workflow.records import WorkflowRecord
from jobyard.executors.workflow.run import WorkflowRun, contained_exit

# How long the branches beside one that failed are replayed. They stand still only if their code was changed.
REPLAY_SECONDS = 5.0


async def run_side_by_side(
    run: WorkflowRun, awaitables: Iterable[Any], at_most: int | None, operation: Operation
) -> list[Any]:
    """The results in order. The first failure cancels the other branches and is raised, the same in every replay."""
    run.journal.begin(operation.key)
    results: dict[int, Any] = {}
    failures: dict[int, Exception] = {}
    running: dict[asyncio.Task[Any], int] = {}
    # Drawn in the task of the workflow: a step of a generator gets its key when it is drawn.
    source = enumerate(awaitables)
    is_exhausted = False
    scope = current_scope.get()
    scope.gathers += 1
    try:
        while not is_exhausted or running:
            while not is_exhausted and (at_most is None or len(running) < at_most):
                index, awaitable = next(source, (-1, None))
                if awaitable is None:
                    is_exhausted = True
                else:
                    running[asyncio.create_task(_branch(awaitable, f"{operation.key}/{index}/"))] = index
            if running:
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    _collect(task, running.pop(task), results, failures)
            if failures:
                run.journal.forget_not_begun()
            if failures and (raised := _raised(operation, failures)) is not None:
                await _record_failure(run, operation, raised)
                await _replay_rest(run, running, operation.key)
                raise failures[raised]
    finally:
        scope.gathers -= 1
        await cancel_all(running)
        if isinstance(awaitables, tuple | list):
            _close_all(each for _, each in source)
    if failures:
        raise failures[min(failures)]
    return [results[index] for index in range(len(results))]


def _collect(task: asyncio.Task[Any], index: int, results: dict[int, Any], failures: dict[int, Exception]) -> None:
    try:
        results[index] = task.result()
    except Exception as error:
        failures[index] = error


def _close_all(left: Iterable[Any]) -> None:
    """What a failure has left without room to begin: Python would warn that it was never awaited."""
    for each in left:
        if asyncio.iscoroutine(each):
            each.close()


def _raised(operation: Operation, failures: dict[int, Exception]) -> int | None:
    """The branch whose failure is raised: the first, or the one that was first in the attempt that recorded it."""
    if operation.stored is None:
        return min(failures)
    return operation.stored.record.first if operation.stored.record.first in failures else None


async def _record_failure(run: WorkflowRun, operation: Operation, index: int) -> None:
    """In a replay another branch may fail sooner, because what it waited for has happened meanwhile."""
    if operation.stored is None and not run.is_ending:
        with run.working():
            record = WorkflowRecord(kind=operation.kind, name=operation.name, position=operation.position, first=index)
            await run.journal.record(operation.key, record)


async def _replay_rest(run: WorkflowRun, running: Iterable[asyncio.Task[Any]], key: str) -> None:
    """Let the other branches reach what they have recorded: undo steps, and operations that must be asked for."""
    tasks, until = set(running), time.monotonic() + REPLAY_SECONDS
    while tasks and run.journal.has_unread_below(f"{key}/") and time.monotonic() < until:
        with run.working():
            _, tasks = await asyncio.wait(tasks, timeout=0.01, return_when=asyncio.FIRST_COMPLETED)


async def _branch(awaitable: Any, path: str) -> Any:
    current_scope.set(Scope(path))
    with contained_exit():
        return await awaitable
