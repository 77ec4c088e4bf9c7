"""Outcomes of an attempt. Outcomes are values; exceptions are for faults."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from jobyard.domain.history import Wake


class Done(msgspec.Struct, frozen=True, gc=False):
    """The work is done; `result` is a JSON document."""

    result: bytes = b"null"


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The handler raised. `retry=False` ends the job although attempts are left."""

    message: str
    type: str | None = None
    traceback: str | None = None
    retry: bool = True
    retry_after_seconds: float | None = None  # overrides the backoff


class TimedOut(msgspec.Struct, frozen=True):
    """The attempt ran longer than its timeout. `retry=False` ends the job although attempts are left."""

    message: str
    retry: bool = True


class Snooze(msgspec.Struct, frozen=True):
    """Run again later; the attempt is not counted."""

    seconds: float


class Cancel(msgspec.Struct, frozen=True):
    """End the job as CANCELLED."""

    reason: str


class Handoff(msgspec.Struct, frozen=True):
    """The work continues outside: the job stays RUNNING and keeps its slot, and a reconciler decides its outcome."""

    external_id: str


class Park(msgspec.Struct, frozen=True):
    """Free the slot and wait for a signal, at most `seconds`; the attempt is not counted.

    A workflow waits until one of `wake` holds; `signal` then says for what, and takes no signal.
    """

    signal: str
    seconds: float | None = None
    wake: tuple[Wake, ...] = ()


class Release(msgspec.Struct, frozen=True):
    """The worker stops and hands the job back: due at once, and the attempt is not counted."""


Outcome: TypeAlias = Done | Failed | TimedOut | Snooze | Cancel | Handoff | Park | Release
