"""Settle: apply a transition only if its token still holds the lease."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.domain.job import AttemptError, State
from jobyard.domain.lease import ExpiredLease, LeaseKey
from jobyard.domain.state import Settlement, Transition, apply_cancel_request, judge_expired
from jobyard.stores.sqlite.insert import FREES_KEY, HAS_PRIVATE
from jobyard.stores.sqlite.line import enter
from jobyard.stores.sqlite.people import get
from jobyard.stores.sqlite.retention import drop, prune_queue
from jobyard.stores.sqlite.statements import as_list, sql
from jobyard.stores.sqlite.transaction import QueueRow, Transaction

HANDOFF_LEASE, EXPIRED_LEASES = sql("handoff_lease"), sql("expired_leases")
LOAD_LEASES, DELETE_LEASES = sql("load_leases"), sql("delete_leases")
INSERT_DONE, FINISH_JOB, REQUEUE_JOB = sql("insert_done"), sql("finish_job"), sql("requeue_job")
JOB_AFTER, FREE_UNIQUE = sql("job_after"), sql("free_unique")
NEXT_EXTRA, PUT_EXTRA = sql("next_extra"), sql("put_extra")
LIST_EXTRA_OF, DROP_EXTRA = sql("list_extra_of"), sql("drop_extra")

# Settling prunes a little past what it adds, so a queue at its retention stays there without a sweep of its own.
PRUNE_SLACK = 64


def settle(tx: Transaction, settlements: Sequence[Settlement]) -> list[LeaseKey]:
    """Answers the refused ones."""
    if not settlements:
        return []
    refused: list[LeaseKey] = []
    ended: list[int] = []
    common: dict[str, list[tuple[Any, ...]]] = {}
    held = load_leases(tx, [settlement.key.sequence for settlement in settlements])
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
            tx.cursor.execute(HANDOFF_LEASE, (transition.external_id, FOREVER, sequence, key.token))
            continue
        del held[sequence]
        ended.append(sequence)
        _, _, queue_name, group_name, attempt, worker, started_at, flags, cancel = lease
        group = tx.group(queue_name, group_name)
        group.running -= 1
        group.queue.running -= 1
        if transition.to is completed and not flags and key.job_id not in tx.awaited:
            # The common end, with nothing to free, erase or tell: it goes with the batch.
            end = (sequence, queue_name, started_at, now, worker, attempt, transition.result)
            common.setdefault(queue_name, []).append(end)
        else:
            place = Place(key.job_id, sequence, queue_name, group_name, attempt, worker, started_at, flags)
            apply(tx, place, apply_cancel_request(transition, cancel))
            common.setdefault(queue_name, [])
    tx.cursor.execute(DELETE_LEASES, (as_list(ended),))
    for name, ends in common.items():
        complete(tx, tx.queue(name), ends)
        prune_queue(tx, tx.queue(name), 2 * len(ended) + PRUNE_SLACK, slack=PRUNE_SLACK)
    return refused


def load_leases(tx: Transaction, sequences: list[int]) -> dict[int, tuple[Any, ...]]:
    return {row[0]: row for row in tx.cursor.execute(LOAD_LEASES, (as_list(sequences),)).fetchall()}


def complete(tx: Transaction, queue: QueueRow, ends: list[tuple[Any, ...]]) -> None:
    """Write the common ends of a queue. Those that retention would drop at once are not written first."""
    settings = queue.settings
    if settings.keep_seconds == 0 and len(ends) > settings.keep_completed:
        keep_from = len(ends) - settings.keep_completed
        drop(tx, [end[0] for end in ends[:keep_from]])
        tx.finish += keep_from
        ends = ends[keep_from:]
    rows = []
    for sequence, name, started_at, now, worker, attempt, result in ends:
        tx.finish += 1
        rows.append((sequence, tx.finish, name, 0, "COMPLETED", started_at, now, worker, 0, attempt, result, None))
    tx.cursor.executemany(INSERT_DONE, rows)
    queue.completed += len(rows)


class Place(msgspec.Struct, frozen=True):
    """A job whose lease has just ended."""

    job_id: str
    sequence: int
    queue: str
    group: str
    attempt: int
    worker: str
    started_at: Instant
    flags: int


def apply(tx: Transaction, place: Place, transition: Transition) -> None:
    """Everything but the common end; the lease is gone and the counts are lowered already."""
    used = place.attempt if transition.counted else place.attempt - 1
    if transition.error is not None:
        add_error(tx, place.sequence, transition.error)
    if transition.to is State.PENDING:
        back_to_waiting(tx, place, transition, used)
        return
    erase = transition.to is State.COMPLETED and bool(place.flags & HAS_PRIVATE)
    tx.cursor.execute(FINISH_JOB, (used, int(transition.died), erase, place.sequence))
    finish(
        tx,
        place.sequence,
        place.queue,
        transition.to,
        flags=place.flags,
        attempt=used,
        started_at=place.started_at,
        worker=place.worker,
        result=transition.result,
        reason=transition.reason,
    )
    note_end(tx, place.job_id)


def back_to_waiting(tx: Transaction, place: Place, transition: Transition, used: int) -> None:
    _, signal, priority = tx.cursor.execute(JOB_AFTER, (place.sequence,)).fetchone()
    run_at, waiting_for = after(tx.now, transition.delay_seconds), None
    if transition.signal is not None:
        signal = take_signal(tx, place.sequence, transition.signal)
        if signal is None:
            waiting_for = transition.signal
            run_at = FOREVER if transition.park_seconds is None else after(tx.now, transition.park_seconds)
        else:
            run_at = tx.now
        if run_at <= tx.now:
            waiting_for = None
    tx.cursor.execute(REQUEUE_JOB, (used, int(transition.died), run_at, waiting_for, signal, place.sequence))
    enter(tx, tx.group(place.queue, place.group), place.sequence, priority, run_at)


def take_signal(tx: Transaction, sequence: int, name: str) -> bytes | None:
    """A signal that came before the job parked on it, once."""
    for number, data in tx.cursor.execute(LIST_EXTRA_OF, (sequence, "signal")).fetchall():
        known, value = msgspec.json.decode(data, type=tuple[str, msgspec.Raw])
        if known == name:
            tx.cursor.execute(DROP_EXTRA, (sequence, "signal", number))
            return bytes(value)
    return None


def finish(
    tx: Transaction,
    sequence: int,
    queue_name: str,
    state: State,
    *,
    flags: int,
    attempt: int,
    started_at: Instant | None = None,
    worker: str | None = None,
    result: bytes | None = None,
    reason: str | None = None,
) -> None:
    """Write the end of a job: its row among the finished, its queue's counts, its unique key."""
    tx.queue(queue_name).tally(state, 1)
    bucket = 0 if state is State.COMPLETED else 1
    tx.finish += 1
    tx.cursor.execute(
        INSERT_DONE,
        (
            sequence,
            tx.finish,
            queue_name,
            bucket,
            str(state),
            started_at,
            tx.now,
            worker,
            flags,
            attempt,
            result,
            reason,
        ),
    )
    if flags & FREES_KEY:
        tx.cursor.execute(FREE_UNIQUE, (sequence,))


def note_end(tx: Transaction, job_id: str) -> None:
    """Somebody in this process waits for the job: show it before retention may take it away."""
    if job_id in tx.awaited:
        tx.ended[job_id] = get(tx.connection, job_id)


def add_error(tx: Transaction, sequence: int, error: AttemptError) -> AttemptError:
    stamped = msgspec.structs.replace(error, at=tx.now)
    number = tx.cursor.execute(NEXT_EXTRA, (sequence, "error")).fetchone()[0]
    tx.cursor.execute(PUT_EXTRA, (sequence, "error", number, msgspec.json.encode(stamped)))
    return stamped


def reclaim(tx: Transaction, asked_at: Instant, limit: int) -> list[ExpiredLease]:
    """Judged by the time at which it was asked for: who ran out while this waited for the lock may yet renew."""
    ended: list[ExpiredLease] = []
    for row in tx.cursor.execute(EXPIRED_LEASES, (min(asked_at, tx.now), limit)).fetchall():
        sequence, token, job_id, queue, group_name, worker, attempt, deaths, cancel, started_at, flags = row
        tx.cursor.execute(DELETE_LEASES, (as_list([sequence]),))
        tx.run(tx.group(queue, group_name), -1)
        transition = judge_expired(attempt=attempt, deaths=deaths, worker=worker, cancel_requested=cancel)
        apply(tx, Place(job_id, sequence, queue, group_name, attempt, worker, started_at, flags), transition)
        assert transition.error is not None
        error = msgspec.structs.replace(transition.error, at=tx.now)
        ended.append(
            ExpiredLease(
                job_id=job_id,
                queue=queue,
                group=group_name or None,
                token=token,
                worker=worker,
                error=error,
            )
        )
    if ended:
        tx.bump()
    return ended
