"""What a transition does to a running job."""

from __future__ import annotations

import msgspec

from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.domain.job import AttemptError, State
from jobyard.domain.state import Transition
from jobyard.stores.memory.entry import Entry
from jobyard.stores.memory.shelf import Shelf


def apply(shelf: Shelf, entry: Entry, transition: Transition, now: Instant) -> AttemptError | None:
    """Apply it as it is; answers the error it left, with its time."""
    if transition.to is State.RUNNING:
        _hand_off(entry, transition)
        return None
    entry.used += transition.counted
    entry.deaths += transition.died
    error = None
    if transition.error is not None:
        error = msgspec.structs.replace(transition.error, at=now)
        entry.errors.append(error)
    if transition.to is not State.PENDING:
        entry.result = transition.result
        entry.reason = transition.reason
        shelf.finish(entry, transition.to, now)
    elif transition.signal is not None:
        _park(shelf, entry, transition.signal, transition.park_seconds, now)
    else:
        shelf.wait(entry, after(now, transition.delay_seconds), now)
    return error


def _hand_off(entry: Entry, transition: Transition) -> None:
    """It keeps its slot and its token; the attempt is counted when it ends."""
    assert entry.hold is not None
    entry.hold.expires_at = FOREVER
    entry.external_id = transition.external_id


def _park(shelf: Shelf, entry: Entry, signal: str, seconds: float | None, now: Instant) -> None:
    entry.signal = entry.remembered.pop(signal, None)
    if entry.signal is not None:
        shelf.wait(entry, now, now)
    else:
        shelf.wait(entry, FOREVER if seconds is None else after(now, seconds), now, waiting_for=signal)
