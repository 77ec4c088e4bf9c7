"""What people may do to one job, in the states that allow it."""

from __future__ import annotations

from jobyard.domain.instant import Instant
from jobyard.domain.job import State, UniqueScope
from jobyard.ports.admin_store import Action
from jobyard.stores.memory.entry import Entry
from jobyard.stores.memory.shelf import Shelf

DEFAULT_REASON = "cancelled"


def change(shelf: Shelf, action: Action, entry: Entry, now: Instant, *, reason: str, priority: int) -> bool:
    """Answers whether the job's state allowed it."""
    match action:
        case Action.CANCEL:
            return _cancel(shelf, entry, now, reason or DEFAULT_REASON)
        case Action.RETRY:
            return _retry(shelf, entry, now)
        case Action.DELETE:
            if entry.state is State.RUNNING:
                return False
            shelf.remove(entry)
            return True
        case Action.PRIORITISE:
            if entry.state is not State.PENDING:
                return False
            shelf.prioritise(entry, priority)
            return True
        case Action.RUN_NOW:
            if entry.state is not State.PENDING or entry.is_in_line or entry.is_parked:
                return False
            shelf.wait(entry, now, now)
            return True


def _cancel(shelf: Shelf, entry: Entry, now: Instant, reason: str) -> bool:
    if entry.state is State.RUNNING:
        entry.cancel_requested = reason
        return True
    if entry.state is State.PENDING:
        entry.reason = reason
        shelf.finish(entry, State.CANCELLED, now)
        return True
    return False


def _retry(shelf: Shelf, entry: Entry, now: Instant) -> bool:
    if entry.state not in (State.FAILED, State.TIMEOUT, State.CANCELLED):
        return False
    if entry.new.unique is not None and entry.new.unique.scope is UniqueScope.ACTIVE:
        if shelf.keys.holder(entry.new, now) not in (None, entry.id):
            return False
        shelf.keys.acquire(entry.new, now)
    entry.used = entry.deaths = 0
    entry.result = entry.reason = None
    shelf.wait(entry, now, now)
    return True
