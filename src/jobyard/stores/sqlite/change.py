"""Change: what an operator may do to a job, in the states that allow it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import State, Unique
from jobyard.domain.text import without_nul
from jobyard.ports.admin_store import Action, Changed
from jobyard.stores._shared.limits import DEFAULT_CANCEL_REASON
from jobyard.stores.sqlite.codec import HAS_HISTORY, HAS_TAGS, IS_CHILD, IS_WORKFLOW, RELEASES_KEY
from jobyard.stores.sqlite.history_rows import carried_request, carry_request, forget_wake, has_begun, record_end
from jobyard.stores.sqlite.insert import acquire_key
from jobyard.stores.sqlite.queue_line import enqueue
from jobyard.stores.sqlite.retention import delete_histories, delete_jobs, delete_tags, undelivered
from jobyard.stores.sqlite.settle import EndedLease, finish
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction


class JobStatus(msgspec.Struct, frozen=True):
    """State and position of a job: a row of `load_job_status`."""

    sequence: int
    queue: str
    group: str
    priority: int
    used: int
    run_at: Instant
    flags: int
    unique_key: str | None
    waiting_for: str | None
    is_running: int
    final: str | None

    @property
    def state(self) -> State:
        if self.final is not None:
            return State(self.final)
        return State.RUNNING if self.is_running else State.PENDING


def load_status(tx: Transaction, job_id: str) -> JobStatus | None:
    row = tx.cursor.execute(SQL["load_job_status"], (job_id,)).fetchone()
    return None if row is None else JobStatus(*row)


def change(
    tx: Transaction,
    action: Action,
    job_ids: Sequence[str],
    reason: str,
    priority: int,
    *,
    unless_requested: bool = False,
) -> Changed:
    changed: list[str] = []
    unchanged: list[str] = []
    for job_id in job_ids:
        status = load_status(tx, job_id)
        if status is None:
            continue
        match action:
            case Action.CANCEL:
                was_possible = not (unless_requested and _is_requested(tx, status)) and _cancel(
                    tx, job_id, status, without_nul(reason or DEFAULT_CANCEL_REASON)
                )
            case Action.RETRY:
                was_possible = _retry(tx, job_id, status)
            case Action.DELETE:
                was_possible = _delete(tx, job_id, status)
            case Action.PRIORITISE:
                was_possible = _prioritise(tx, status, priority)
            case Action.RUN_NOW:
                was_possible = _run_now(tx, status)
        (changed if was_possible else unchanged).append(job_id)
    if changed:
        tx.bump()
    return Changed(tuple(changed), tuple(unchanged))


def leave_line(tx: Transaction, status: JobStatus) -> None:
    """Take a PENDING job out of line, or out of the delayed."""
    group = tx.group(status.queue, status.group)
    ready = (status.queue, status.group, -status.priority, status.sequence)
    if tx.cursor.execute(SQL["delete_ready"], ready).rowcount:
        group.waiting -= 1
        group.queue.waiting -= 1
    else:
        tx.cursor.execute(SQL["delete_delayed"], (status.run_at, status.sequence))
        tx.add_delayed(group, -1)


def make_due(tx: Transaction, status: JobStatus) -> None:
    """Put a delayed or parked job in line."""
    leave_line(tx, status)
    tx.cursor.execute(SQL["reschedule_job"], (tx.now, status.sequence))
    if status.waiting_for is not None and status.flags & IS_WORKFLOW:
        forget_wake(tx, status.sequence)
    enqueue(tx, tx.group(status.queue, status.group), status.sequence, status.priority, tx.now)


def _ends_itself(tx: Transaction, status: JobStatus) -> bool:
    """Return whether it is a workflow that has begun."""
    return bool(status.flags & IS_WORKFLOW) and has_begun(tx, status.sequence)


def _is_requested(tx: Transaction, status: JobStatus) -> bool:
    """Return whether the job was asked to stop, in its present attempt or before."""
    row = tx.cursor.execute(SQL["load_cancel_request"], (status.sequence,)).fetchone()
    return (row is not None and row[0] is not None) or carried_request(tx, status.sequence) is not None


def _cancel(tx: Transaction, job_id: str, status: JobStatus, reason: str) -> bool:
    if status.state is State.RUNNING:
        tx.cursor.execute(SQL["request_cancel"], (reason, status.sequence))
        tx.has_work = True
        return True
    if status.state is not State.PENDING:
        return False
    if _ends_itself(tx, status) and carried_request(tx, status.sequence) is None:
        carry_request(tx, status.sequence, reason)
        if status.run_at > tx.now:
            make_due(tx, status)
        return True
    leave_line(tx, status)
    tx.cursor.execute(SQL["clear_waiting_for"], (status.sequence,))
    ended = EndedLease(job_id, status.sequence, status.queue, status.group, status.used, None, None, status.flags)
    finish(tx, ended, State.CANCELLED, status.used, None, reason)
    return True


def _retry(tx: Transaction, job_id: str, status: JobStatus) -> bool:
    if status.state not in (State.FAILED, State.TIMEOUT, State.CANCELLED):
        return False
    if status.flags & RELEASES_KEY:
        assert status.unique_key is not None
        if acquire_key(tx, status.queue, Unique(status.unique_key), job_id) is not None:
            return False
    tx.queue(status.queue).tally(status.state, -1)
    tx.cursor.execute(SQL["delete_done"], (status.sequence,))
    tx.cursor.execute(SQL["reset_job"], (tx.now, status.sequence))
    enqueue(tx, tx.group(status.queue, status.group), status.sequence, status.priority, tx.now)
    return True


def _delete(tx: Transaction, job_id: str, status: JobStatus) -> bool:
    state = status.state
    if state is State.RUNNING or (state is State.PENDING and _ends_itself(tx, status)):
        return False
    if status.flags & IS_WORKFLOW and undelivered(tx, [status.sequence]):
        return False
    if state is State.PENDING:
        leave_line(tx, status)
        if status.flags & IS_CHILD:
            record_end(tx, job_id, status.sequence, status.flags, None, None, None)
        if status.flags & RELEASES_KEY:
            tx.cursor.execute(SQL["release_unique_key"], (status.sequence,))
    else:
        tx.queue(status.queue).tally(state, -1)
        tx.cursor.execute(SQL["delete_done"], (status.sequence,))
    if status.flags & HAS_TAGS:
        delete_tags(tx, status.sequence)
    if status.flags & (IS_WORKFLOW | HAS_HISTORY):
        delete_histories(tx, [status.sequence])
    delete_jobs(tx, [status.sequence])
    return True


def _prioritise(tx: Transaction, status: JobStatus, priority: int) -> bool:
    if status.state is not State.PENDING:
        return False
    ready = (status.queue, status.group, -status.priority, status.sequence)
    if tx.cursor.execute(SQL["delete_ready"], ready).rowcount:
        tx.cursor.execute(SQL["insert_ready"], (status.queue, status.group, -priority, status.sequence))
    tx.cursor.execute(SQL["prioritise_job"], (priority, status.sequence))
    return True


def _run_now(tx: Transaction, status: JobStatus) -> bool:
    if status.state is not State.PENDING or status.run_at <= tx.now or status.waiting_for is not None:
        return False
    make_due(tx, status)
    return True
