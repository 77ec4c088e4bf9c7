"""Settle: apply a transition to a running job."""

from __future__ import annotations

from typing import Any

import msgspec

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
        _park(table, stored, transition.signal, transition.park_seconds, now)
    else:
        table.wait(stored, after(now, transition.delay_seconds), now)
    return error


def _hand_off(stored: StoredJob, transition: Transition) -> None:
    """Keep the slot and the token without an expiry; the attempt counts when it ends."""
    assert stored.lease is not None
    stored.lease.expires_at = FOREVER
    stored.external_id = transition.external_id


def _park(table: JobTable, stored: StoredJob, signal: str, seconds: float | None, now: Instant) -> None:
    stored.signal = stored.early_signals.pop(signal, None)
    if stored.signal is not None:
        table.wait(stored, now, now)
    else:
        table.wait(stored, FOREVER if seconds is None else after(now, seconds), now, waiting_for=signal)
