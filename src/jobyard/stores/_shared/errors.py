"""Errors that several stores raise, each worded once."""

from __future__ import annotations

from jobyard.domain.history import MAX_SIGNALS
from jobyard.domain.job import State
from jobyard.errors import LeaseLost, NotPossible, StoreUnavailable


def not_open(url: str) -> StoreUnavailable:
    return StoreUnavailable(f"Cannot use the store {url}: it is not open. Use it inside `async with`.")


def cannot_signal(job_id: str, state: State | str) -> NotPossible:
    return NotPossible(f"Cannot signal job {job_id}: it is {state}.")


def too_many_signals(job_id: str, name: str) -> NotPossible:
    return NotPossible(
        f"Cannot signal job {job_id}: it keeps {MAX_SIGNALS:,} signals named {name} that it has not taken."
    )


def insert_without_transaction(store: str) -> NotPossible:
    return NotPossible(f"Cannot insert in a transaction: the {store} store has none to join. Insert without one.")


def settle_without_transaction(store: str) -> NotPossible:
    return NotPossible(f"Cannot settle in a transaction: the {store} store has none to join. Return the result.")


def lease_lost(job_id: str) -> LeaseLost:
    return LeaseLost(f"Cannot settle job {job_id}: its lease was lost. Roll back the transaction.")
