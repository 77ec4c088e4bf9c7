"""Settle: apply a transition if its token still holds the lease."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.domain.job import AttemptError, State
from jobyard.domain.lease import LeaseKey
from jobyard.domain.state import Settlement, Transition, apply_cancel_request
from jobyard.stores._shared.errors import lease_lost
from jobyard.stores.sqlite.codec import (
    HAS_HISTORY,
    HAS_PRIVATE_PAYLOAD,
    IS_CHILD,
    IS_WORKFLOW,
    RELEASES_KEY,
    json_list,
    load_job,
)
from jobyard.stores.sqlite.connection import SqliteConnection
from jobyard.stores.sqlite.history_rows import (
    any_holds,
    cancel_request,
    carry_request,
    has_begun,
    put_wake,
    record_end,
    take_signal,
)
from jobyard.stores.sqlite.queue_line import enqueue
from jobyard.stores.sqlite.queue_rows import StoredQueue
from jobyard.stores.sqlite.retention import awaited_of, delete_jobs, prune_queue
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction

# Settling prunes slightly more than it adds, so a queue at its retention limit needs no separate prune.
PRUNE_SLACK = 64


class SqliteSettle:
    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection

    async def settle(self, settlement: Settlement, transaction: Any) -> None:
        if self._connection.in_transaction_of(transaction, lambda tx: settle_all(tx, [settlement])):
            raise lease_lost(settlement.key.job_id)


def settle_all(tx: Transaction, settlements: Sequence[Settlement]) -> list[LeaseKey]:
    """Apply the settlements; return the keys of those that were refused."""
    if not settlements:
        return []
    refused: list[LeaseKey] = []
    ended: list[int] = []
    common: dict[str, list[tuple[Any, ...]]] = {}
    children: list[tuple[Any, ...]] = []
    sequences = json_list([settlement.key.sequence for settlement in settlements])
    held = {row[0]: row for row in tx.cursor.execute(SQL["load_leases"], (sequences,)).fetchall()}
    tx.load_groups({(lease[2], lease[3]) for lease in held.values()})
    now, completed = tx.now, State.COMPLETED
    for settlement in settlements:
        key, transition = settlement.key, settlement.transition
        sequence = key.sequence
        lease = held.get(sequence)
        if lease is None or lease[1] != key.token:
            refused.append(key)
            continue
        if transition.to is State.RUNNING:
            tx.cursor.execute(SQL["hand_off_lease"], (transition.external_id, FOREVER, sequence, key.token))
            continue
        del held[sequence]
        ended.append(sequence)
        _, _, queue_name, group_name, attempt, worker, started_at, flags, cancel = lease
        group = tx.group(queue_name, group_name)
        group.running -= 1
        group.queue.running -= 1
        if transition.to is completed and not flags & ~IS_CHILD and key.job_id not in tx.awaited:
            # The common case, with no key, private payload, tag, history or waiter to care for: written in a batch.
            if flags:
                children.append((key.job_id, "COMPLETED", sequence, False, transition.result, None))
            end = (sequence, queue_name, started_at, now, worker, attempt, transition.result)
            common.setdefault(queue_name, []).append(end)
        else:
            ended_lease = EndedLease(
                key.job_id, sequence, queue_name, group_name, attempt, worker, started_at, flags, cancel
            )
            if cancel is not None:
                transition = apply_cancel_request(transition, cancel_request(tx, sequence, flags, cancel))
            apply(tx, ended_lease, transition)
            common.setdefault(queue_name, [])
    tx.cursor.execute(SQL["delete_leases"], (json_list(ended),))
    if children:
        tx.bare_cursor.executemany(SQL["insert_ended"], children)
    for name, ends in common.items():
        _complete(tx, tx.queue(name), ends)
        prune_queue(tx, tx.queue(name), 2 * len(ended) + PRUNE_SLACK, slack=PRUNE_SLACK)
    return refused


def _complete(tx: Transaction, queue: StoredQueue, ends: list[tuple[Any, ...]]) -> None:
    """Write completed jobs of a queue, except those that retention would delete at once."""
    settings = queue.settings
    if settings.keep_completed_seconds == 0 and len(ends) > settings.keep_completed:
        keep_from = len(ends) - settings.keep_completed
        awaited = awaited_of(tx, [end[0] for end in ends])
        delete_jobs(tx, [end[0] for end in ends[:keep_from] if end[0] not in awaited])
        tx.finish += keep_from
        ends = [end for end in ends[:keep_from] if end[0] in awaited] + ends[keep_from:]
    rows = []
    for sequence, name, started_at, now, worker, attempt, result in ends:
        tx.finish += 1
        rows.append((sequence, tx.finish, name, 0, "COMPLETED", started_at, now, worker, 0, attempt, result, None))
    tx.cursor.executemany(SQL["insert_done"], rows)
    queue.completed += len(rows)


class EndedLease(msgspec.Struct, frozen=True):
    """A lease that is deleted and no longer counted as running; without a worker: a job that ends without one."""

    job_id: str
    sequence: int
    queue: str
    group: str
    attempt: int
    worker: str | None
    started_at: Instant | None
    flags: int
    cancel: str | None = None  # requested during the attempt


def apply(tx: Transaction, ended: EndedLease, transition: Transition) -> None:
    used = ended.attempt if transition.counted else ended.attempt - 1
    if transition.error is not None:
        _add_error(tx, ended.sequence, transition.error)
    if transition.to is State.PENDING:
        _requeue(tx, ended, transition, used)
        return
    erase = transition.to is State.COMPLETED and bool(ended.flags & HAS_PRIVATE_PAYLOAD)
    tx.cursor.execute(SQL["finish_job"], (used, int(transition.died), erase, ended.sequence))
    finish(tx, ended, transition.to, used, transition.result, transition.reason)


def _requeue(tx: Transaction, ended: EndedLease, transition: Transition, used: int) -> None:
    signal, priority = tx.cursor.execute(SQL["load_signal_and_priority"], (ended.sequence,)).fetchone()
    run_at, waiting_for = after(tx.now, transition.delay_seconds), None
    if transition.signal is not None:
        signal, run_at = _park(tx, ended, transition)
        waiting_for = transition.signal if run_at > tx.now else None
    if ended.cancel is not None and ended.flags & IS_WORKFLOW and has_begun(tx, ended.sequence):
        carry_request(tx, ended.sequence, ended.cancel)
    job = {"sequence": ended.sequence, "used": used, "deaths": int(transition.died)}
    tx.cursor.execute(SQL["requeue_job"], job | {"run_at": run_at, "waiting_for": waiting_for, "signal": signal})
    enqueue(tx, tx.group(ended.queue, ended.group), ended.sequence, priority, run_at)


def _park(tx: Transaction, ended: EndedLease, transition: Transition) -> tuple[bytes | None, Instant]:
    """Return the signal that it takes, and when it is due: at once if a signal or a condition does not let it wait."""
    assert transition.signal is not None
    wake = transition.wake if ended.flags & IS_WORKFLOW else ()
    signal = None
    if not wake and ended.flags & (IS_WORKFLOW | HAS_HISTORY):
        signal = take_signal(tx, ended.sequence, transition.signal)
    if signal is not None or any_holds(tx, ended.sequence, wake):
        return signal, tx.now
    until = FOREVER if transition.park_seconds is None else after(tx.now, transition.park_seconds)
    if wake and until > tx.now:
        put_wake(tx, ended.sequence, wake)
    return None, until


def finish(
    tx: Transaction, ended: EndedLease, state: State, attempt: int, result: bytes | None, reason: str | None
) -> None:
    """Write the end of a job: its row in jobyard_done, the counts of its queue, its unique key."""
    tx.queue(ended.queue).tally(state, 1)
    bucket = 0 if state is State.COMPLETED else 1
    tx.finish += 1
    end = (str(state), ended.started_at, tx.now, ended.worker, ended.flags, attempt, result, reason)
    tx.cursor.execute(SQL["insert_done"], (ended.sequence, tx.finish, ended.queue, bucket, *end))
    if ended.flags & RELEASES_KEY:
        tx.cursor.execute(SQL["release_unique_key"], (ended.sequence,))
    if ended.flags & (IS_CHILD | IS_WORKFLOW):
        record_end(tx, ended.job_id, ended.sequence, ended.flags, state, result, reason)
    if ended.job_id in tx.awaited:
        # For waiters in this process: retention may delete the job before they read it.
        tx.ended[ended.job_id] = load_job(tx.connection, ended.job_id)


def _add_error(tx: Transaction, sequence: int, error: AttemptError) -> None:
    stamped = msgspec.structs.replace(error, at=tx.now)
    number = tx.cursor.execute(SQL["next_extra_number"], (sequence, "error")).fetchone()[0]
    tx.cursor.execute(SQL["put_extra"], (sequence, "error", number, msgspec.json.encode(stamped)))
