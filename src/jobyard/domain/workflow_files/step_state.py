"""The state of a step within one run."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class StepStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"  # for good: its attempts are used up, or its input cannot be evaluated
    SKIPPED = "skipped"

    @property
    def has_ended(self) -> bool:
        return self not in (StepStatus.PENDING, StepStatus.RUNNING)


class StepState(msgspec.Struct, frozen=True, omit_defaults=True):
    status: StepStatus
    output: Any = None  # of a completed step: a JSON value
    reason: str = ""  # why it failed or was skipped


PENDING = StepState(StepStatus.PENDING)
RUNNING = StepState(StepStatus.RUNNING)


def completed(output: Any = None) -> StepState:
    return StepState(StepStatus.COMPLETED, output)


def failed(reason: str) -> StepState:
    return StepState(StepStatus.FAILED, reason=reason)


def skipped(reason: str) -> StepState:
    return StepState(StepStatus.SKIPPED, reason=reason)
