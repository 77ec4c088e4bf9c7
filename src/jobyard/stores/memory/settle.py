"""Settle: apply a transition to a running job."""

from __future__ import annotations

from typing import Any

import msgspec

from jobyard.domain.history import MAX_TAKEN_SIGNALS, signal_scope
from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.domain.job import AttemptError, State
from jobyard.domain.state import Settlement, Transition
from jobyard.stores._shared.errors import settle_without_transaction
from jobyard.stores.memory.job_table import JobTable
from jobyard.stores.memory.stored_job import StoredJob


class MemorySettle:
    async def settle(self, settlement: Settlement, transaction: Any) -> None:
        raise settle_without_transaction("memory")


def apply(table: JobTable, stored: StoredJob, transition: Transition, now: Instant) -> AttemptError | None:
    """Apply the transition; return its error, stamped with the time."""
    if transition.to is State.RUNNING:
        _hand_off(stored, transition)
        return None
    stored.used += transition.counted
    stored.deaths += transition.died
    error = None
    if transition.error is not None:
        error = msgspec.structs.replace(transition.error, at=now)
        stored.errors.append(error)
    if transition.to is not State.PENDING:
        stored.result = transition.result
        stored.reason = transition.reason
        table.finish(stored, transition.to, now)
    elif transition.signal is not None:
        _park(table, stored, transition, now)
    else:
        table.wait(stored, after(now, transition.delay_seconds), now)
    return error


def _hand_off(stored: StoredJob, transition: Transition) -> None:
    """Keep the slot and the token without an expiry; the attempt counts when it ends."""
    assert stored.lease is not None
    stored.lease.expires_at = FOREVER
    stored.external_id = transition.external_id


def _park(table: JobTable, stored: StoredJob, transition: Transition, now: Instant) -> None:
    assert transition.signal is not None
    stored.signal = None if transition.wake else take_signal(stored, transition.signal)
    stored.wake = transition.wake
    if stored.signal is not None or stored.may_wake():
        table.wait(stored, now, now)
        return
    until = FOREVER if transition.park_seconds is None else after(now, transition.park_seconds)
    table.wait(stored, until, now, transition.signal, transition.wake)


def take_signal(stored: StoredJob, name: str) -> bytes | None:
    """The data of the oldest signal of that name which was not taken, which it now is."""
    scope = signal_scope(name)
    for position, entry in stored.history.items():
        if position[0] == scope and position not in stored.taken:
            stored.taken.add(position)
            _forget_taken(stored, scope)
            return entry.data
    return None


def _forget_taken(stored: StoredJob, scope: str) -> None:
    """Keep the last signals that were taken, to recognise a repeated one, without their data."""
    taken = [position for position in stored.history if position[0] == scope and position in stored.taken]
    stored.history[taken[-1]] = msgspec.structs.replace(stored.history[taken[-1]], data=b"null")
    for position in taken[:-MAX_TAKEN_SIGNALS]:
        stored.taken.discard(position)
        del stored.history[position]
