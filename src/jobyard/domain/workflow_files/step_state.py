"""The state of a step within one run."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec


class StepStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"  # for good: its attempts are used up, or its input cannot be evaluated
    SKIPPED = "skipped"  # it did not begin
    INTERRUPTED = "interrupted"  # it was running when the run was cancelled, timed out or lost its worker for good

    @property
    def has_ended(self) -> bool:
        return self not in (StepStatus.PENDING, StepStatus.RUNNING)


class StepState(msgspec.Struct, frozen=True, omit_defaults=True):
    status: StepStatus
    output: Any = None  # of a completed step: a JSON value
    reason: str = ""  # why it failed, was skipped or interrupted


PENDING = StepState(StepStatus.PENDING)
RUNNING = StepState(StepStatus.RUNNING)


def completed(output: Any = None) -> StepState:
    return StepState(StepStatus.COMPLETED, output)


def failed(reason: str) -> StepState:
    return StepState(StepStatus.FAILED, reason=reason)


def skipped(reason: str) -> StepState:
    return StepState(StepStatus.SKIPPED, reason=reason)


def interrupted(reason: str) -> StepState:
    return StepState(StepStatus.INTERRUPTED, reason=reason)


def count_finished(statuses: Iterable[StepStatus], *, has_failed: bool) -> int:
    """The steps that are done. A skipped one counts unless the run ended badly, because it may be skipped for that.

    >>> count_finished([StepStatus.COMPLETED, StepStatus.SKIPPED, StepStatus.PENDING], has_failed=False)
    2
    >>> count_finished([StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.SKIPPED], has_failed=True)
    1
    """
    done = {StepStatus.COMPLETED} if has_failed else {StepStatus.COMPLETED, StepStatus.SKIPPED}
    return sum(status in done for status in statuses)
