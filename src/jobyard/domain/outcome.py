"""What a run may say. Outcomes are values; exceptions are for faults."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Done(msgspec.Struct, frozen=True, gc=False):
    """The work is done; `result` is a JSON document."""

    result: bytes = b"null"


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The handler raised. `retry=False` ends the job although attempts are left."""

    message: str
    type: str | None = None
    traceback: str | None = None
    retry: bool = True
    retry_after_seconds: float | None = None  # overrides the back-off


class TimedOut(msgspec.Struct, frozen=True):
    """The attempt ran longer than its timeout."""

    message: str


class Snooze(msgspec.Struct, frozen=True):
    """Again later; the attempt is not counted."""

    seconds: float


class Cancel(msgspec.Struct, frozen=True):
    """End the job as CANCELLED."""

    reason: str


class Handoff(msgspec.Struct, frozen=True):
    """The work goes on outside: the job stays RUNNING and keeps its slot; a reconciler judges it from now on."""

    external_id: str


class Park(msgspec.Struct, frozen=True):
    """Give the slot back and wait for a signal, or for so many seconds at the most; the attempt is not counted."""

    signal: str
    seconds: float | None = None


class Release(msgspec.Struct, frozen=True):
    """The worker stops and hands the job back untouched: due at once, the attempt is not counted."""


Outcome: TypeAlias = Done | Failed | TimedOut | Snooze | Cancel | Handoff | Park | Release
