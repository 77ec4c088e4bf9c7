"""The state machine: an outcome becomes the one legal transition. States change in no other way."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobyard.domain.history import Wake
from jobyard.domain.job import AttemptError, Ending, State
from jobyard.domain.lease import MAX_DEATHS, Lease, LeaseKey
from jobyard.domain.outcome import Cancel, Done, Failed, Handoff, Outcome, Park, Release, Snooze, TimedOut
from jobyard.domain.retry import retry_delay_seconds
from jobyard.domain.text import without_nul
from jobyard.errors import NotPossible

LEGAL: dict[State, frozenset[State]] = {
    State.PENDING: frozenset({State.RUNNING, State.CANCELLED}),
    State.RUNNING: frozenset(
        {State.RUNNING, State.PENDING, State.COMPLETED, State.FAILED, State.TIMEOUT, State.CANCELLED}
    ),
    State.COMPLETED: frozenset(),
    State.FAILED: frozenset({State.PENDING}),  # redriven
    State.TIMEOUT: frozenset({State.PENDING}),
    State.CANCELLED: frozenset({State.PENDING}),
}


def require_legal(old: State, new: State) -> None:
    """
    >>> require_legal(State.PENDING, State.RUNNING)
    >>> require_legal(State.COMPLETED, State.RUNNING)
    Traceback (most recent call last):
      ...
    jobyard.errors.NotPossible: A COMPLETED job cannot become RUNNING.
    """
    if new not in LEGAL[old]:
        raise NotPossible(f"A {old} job cannot become {new}.")


class Transition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The next state of a RUNNING job. Made by `judge` and `judge_expired`; a store applies it unchanged."""

    to: State
    counted: bool = True  # the attempt counts towards max_attempts
    died: bool = False  # one more death of a worker
    delay_seconds: float = 0.0  # to PENDING: due after this delay
    signal: str | None = None  # to PENDING: parked until this signal; due then, or after park_seconds if set
    park_seconds: float | None = None
    wake: tuple[Wake, ...] = ()  # a workflow: parked until one of these holds; `signal` is only shown then
    external_id: str | None = None  # to RUNNING: handed off
    result: bytes | None = None
    reason: str | None = None
    error: AttemptError | None = None

    def __post_init__(self) -> None:
        require_legal(State.RUNNING, self.to)
        if self.reason is not None:
            msgspec.structs.force_setattr(self, "reason", without_nul(self.reason))


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """A transition and the proof that the attempt holds its lease."""

    key: LeaseKey
    transition: Transition


_QUARANTINED = "quarantined:"
_DONE_NULL = Transition(to=State.COMPLETED, result=b"null")
_RELEASED = Transition(to=State.PENDING, counted=False)


def judge(lease: Lease, outcome: Outcome, roll: float = 0.5, worker: str | None = None) -> Transition:
    """The transition of an attempt's outcome; `roll` in [0, 1) decides the backoff's jitter."""
    match outcome:
        case Done(result):
            return _DONE_NULL if result == b"null" else Transition(to=State.COMPLETED, result=result)
        case Failed():
            error = AttemptError(
                attempt=lease.attempt,
                ending=Ending.ERROR,
                message=outcome.message,
                type=outcome.type,
                traceback=outcome.traceback,
                worker=worker,
            )
            if not outcome.retry:
                return Transition(to=State.FAILED, error=error, reason=outcome.message)
            return _again_or(State.FAILED, lease, error, outcome.retry_after_seconds, roll)
        case TimedOut(message, retry):
            error = AttemptError(attempt=lease.attempt, ending=Ending.TIMEOUT, message=message, worker=worker)
            if not retry:
                return Transition(to=State.TIMEOUT, error=error, reason=message)
            return _again_or(State.TIMEOUT, lease, error, None, roll)
        case Snooze(seconds):
            return Transition(to=State.PENDING, counted=False, delay_seconds=max(0.0, seconds))
        case Cancel(reason):
            error = AttemptError(attempt=lease.attempt, ending=Ending.CANCELLED, message=reason, worker=worker)
            return Transition(to=State.CANCELLED, reason=reason, error=error)
        case Handoff(external_id):
            return Transition(to=State.RUNNING, external_id=external_id)
        case Park(signal, seconds, wake):
            return Transition(to=State.PENDING, counted=False, signal=signal, park_seconds=seconds, wake=wake)
        case Release():
            return _RELEASED


def _again_or(final: State, lease: Lease, error: AttemptError, after: float | None, roll: float) -> Transition:
    """Another attempt while some are left; otherwise the final state."""
    if lease.attempt >= lease.max_attempts:
        return Transition(to=final, error=error, reason=error.message)
    delay = retry_delay_seconds(lease.backoff, lease.attempt, roll) if after is None else after
    return Transition(to=State.PENDING, error=error, delay_seconds=max(0.0, delay))


def judge_expired(
    *, attempt: int, deaths: int, worker: str, cancel_requested: str | None, ends_itself: bool = False
) -> Transition:
    """The transition of a job whose lease expired; `deaths` counts those before this one.

    A workflow that has begun (`ends_itself`) gets one attempt more than other jobs: it only undoes and ends, and what
    it records resets the count.
    """
    lost = AttemptError(
        attempt=attempt,
        ending=Ending.LOST,
        message=f"worker {worker} stopped renewing the lease (killed, frozen or cut off)",
        worker=worker,
    )
    if cancel_requested is not None:
        return Transition(to=State.CANCELLED, counted=False, died=True, reason=cancel_requested, error=lost)
    if deaths + 1 >= MAX_DEATHS + ends_itself:
        reason = quarantine_reason(deaths + 1)
        error = AttemptError(attempt=attempt, ending=Ending.QUARANTINED, message=reason, worker=worker)
        return Transition(to=State.FAILED, counted=False, died=True, reason=reason, error=error)
    return Transition(to=State.PENDING, counted=False, died=True, error=lost)


def quarantine_reason(deaths: int) -> str:
    return f"{_QUARANTINED} {deaths} workers died while running it"


def was_quarantined(errors: Sequence[AttemptError]) -> bool:
    """Whether the last attempt ended the job for the deaths of its workers; a workflow ends itself then."""
    if not errors:
        return False
    last = errors[-1]
    is_own_end = last.ending is Ending.ERROR and last.type is None and last.message.startswith(_QUARANTINED)
    return is_own_end or last.ending is Ending.QUARANTINED


class CancelRequest(msgspec.Struct, frozen=True):
    """A request to stop a RUNNING job, and whether the job is a workflow that has begun: see `WorkflowStore`."""

    requested: str | None  # during this attempt
    carried: str | None = None  # before it: the attempt ends the workflow's own work
    ends_itself: bool = False

    @property
    def ends_job(self) -> str | None:
        """The reason, if the job must not go back to PENDING. A second request ends a workflow at once."""
        return None if self.ends_itself and self.carried is None else self.requested


def apply_cancel_request(transition: Transition, request: CancelRequest) -> Transition:
    """The transition, but a job with a cancel request becomes CANCELLED instead of PENDING, or a workflow due at once.

    >>> snooze = Transition(to=State.PENDING, delay_seconds=60)
    >>> apply_cancel_request(snooze, CancelRequest("stop")).to
    <State.CANCELLED: 'CANCELLED'>
    >>> apply_cancel_request(snooze, CancelRequest("stop", ends_itself=True)).delay_seconds
    0.0
    >>> apply_cancel_request(snooze, CancelRequest(None, "stop", ends_itself=True)).delay_seconds
    60
    """
    if request.requested is None or transition.to is not State.PENDING:
        return transition
    now = msgspec.structs.replace(transition, delay_seconds=0.0, signal=None, park_seconds=None, wake=())
    if request.ends_job is None:
        return now
    return msgspec.structs.replace(now, to=State.CANCELLED, reason=request.ends_job)
