"""What people change: cancel, retry, delete, prioritise, run now, signal; limits, pauses and settings."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import QueueSettings, State, Unique
from jobyard.errors import JobNotFound, NotPossible
from jobyard.ports.admin_store import Action, Changed
from jobyard.stores.sqlite.insert import FREES_KEY, HAS_TAGS, hold_key
from jobyard.stores.sqlite.line import DELETE_DELAYED, INSERT_READY, enter
from jobyard.stores.sqlite.retention import drop, drop_tags
from jobyard.stores.sqlite.settle import FREE_UNIQUE, LIST_EXTRA_OF, NEXT_EXTRA, PUT_EXTRA, finish, note_end
from jobyard.stores.sqlite.statements import sql
from jobyard.stores.sqlite.transaction import Transaction

JOB_PLACE, REQUEST_CANCEL = sql("job_place"), sql("request_cancel")
DELETE_READY, DELETE_DONE = sql("delete_ready"), sql("delete_done")
REDRIVE_JOB, PRIORITISE_JOB = sql("redrive_job"), sql("prioritise_job")
MOVE_JOB, WAKE_JOB, CLEAR_WAITING_FOR = sql("move_job"), sql("wake_job"), sql("clear_waiting_for")


class Place(msgspec.Struct, frozen=True):
    """What a change needs to know of a job and of where it stands."""

    sequence: int
    queue: str
    group: str
    priority: int
    used: int
    run_at: Instant
    flags: int
    unique_key: str | None
    waiting_for: str | None
    tags: str | None
    is_running: int
    token: str | None
    final: str | None

    @property
    def state(self) -> State:
        if self.final is not None:
            return State(self.final)
        return State.RUNNING if self.is_running else State.PENDING


def place_of(tx: Transaction, job_id: str) -> Place | None:
    row = tx.cursor.execute(JOB_PLACE, (job_id,)).fetchone()
    return None if row is None else Place(*row)


def change(tx: Transaction, action: Action, job_ids: Sequence[str], reason: str, priority: int) -> Changed:
    changed: list[str] = []
    unchanged: list[str] = []
    for job_id in job_ids:
        place = place_of(tx, job_id)
        if place is None:
            continue
        match action:
            case Action.CANCEL:
                fits = cancel(tx, job_id, place, reason or "cancelled")
            case Action.RETRY:
                fits = retry(tx, job_id, place)
            case Action.DELETE:
                fits = delete(tx, place)
            case Action.PRIORITISE:
                fits = prioritise(tx, place, priority)
            case Action.RUN_NOW:
                fits = run_now(tx, place)
        (changed if fits else unchanged).append(job_id)
    if changed:
        tx.bump()
    return Changed(tuple(changed), tuple(unchanged))


def cancel(tx: Transaction, job_id: str, place: Place, reason: str) -> bool:
    if place.state is State.RUNNING:
        tx.cursor.execute(REQUEST_CANCEL, (reason, place.sequence))
        tx.arrived = True
        return True
    if place.state is not State.PENDING:
        return False
    leave_waiting(tx, place)
    tx.cursor.execute(CLEAR_WAITING_FOR, (place.sequence,))
    finish(tx, place.sequence, place.queue, State.CANCELLED, flags=place.flags, attempt=place.used, reason=reason)
    note_end(tx, job_id)
    return True


def leave_waiting(tx: Transaction, place: Place) -> None:
    """Take a PENDING job out of the line, or out of the delayed."""
    group = tx.group(place.queue, place.group)
    ready = (place.queue, place.group, -place.priority, place.sequence)
    if tx.cursor.execute(DELETE_READY, ready).rowcount:
        tx.leave(group)
    else:
        tx.cursor.execute(DELETE_DELAYED, (place.run_at, place.sequence))
        tx.delay(group, -1)


def retry(tx: Transaction, job_id: str, place: Place) -> bool:
    if place.state not in (State.FAILED, State.TIMEOUT, State.CANCELLED):
        return False
    if place.flags & FREES_KEY:
        assert place.unique_key is not None
        if hold_key(tx, place.queue, Unique(place.unique_key), job_id) is not None:
            return False
    tx.queue(place.queue).tally(place.state, -1)
    tx.cursor.execute(DELETE_DONE, (place.sequence,))
    tx.cursor.execute(REDRIVE_JOB, (tx.now, place.sequence))
    enter(tx, tx.group(place.queue, place.group), place.sequence, place.priority, tx.now)
    return True


def delete(tx: Transaction, place: Place) -> bool:
    state = place.state
    if state is State.RUNNING:
        return False
    if state is State.PENDING:
        leave_waiting(tx, place)
        if place.flags & FREES_KEY:
            tx.cursor.execute(FREE_UNIQUE, (place.sequence,))
    else:
        tx.queue(place.queue).tally(state, -1)
        tx.cursor.execute(DELETE_DONE, (place.sequence,))
    if place.flags & HAS_TAGS:
        drop_tags(tx, place.sequence)
    drop(tx, [place.sequence])
    return True


def prioritise(tx: Transaction, place: Place, priority: int) -> bool:
    if place.state is not State.PENDING:
        return False
    ready = (place.queue, place.group, -place.priority, place.sequence)
    if tx.cursor.execute(DELETE_READY, ready).rowcount:
        tx.cursor.execute(INSERT_READY, (place.queue, place.group, -priority, place.sequence))
    tx.cursor.execute(PRIORITISE_JOB, (priority, place.sequence))
    return True


def run_now(tx: Transaction, place: Place) -> bool:
    if place.state is not State.PENDING or place.run_at <= tx.now or place.waiting_for is not None:
        return False
    leave_waiting(tx, place)
    tx.cursor.execute(MOVE_JOB, (tx.now, place.sequence))
    enter(tx, tx.group(place.queue, place.group), place.sequence, place.priority, tx.now)
    return True


def signal(tx: Transaction, job_id: str, name: str, data: bytes) -> bool:
    place = place_of(tx, job_id)
    if place is None:
        raise JobNotFound.of(job_id)
    if place.state.is_final:
        raise NotPossible(f"Job {job_id} is {place.state}; a signal cannot reach it.")
    if place.waiting_for == name:
        leave_waiting(tx, place)
        tx.cursor.execute(WAKE_JOB, (tx.now, data, place.sequence))
        enter(tx, tx.group(place.queue, place.group), place.sequence, place.priority, tx.now)
        tx.bump()
        return True
    number = tx.cursor.execute(NEXT_EXTRA, (place.sequence, "signal")).fetchone()[0]
    for known_number, known in tx.cursor.execute(LIST_EXTRA_OF, (place.sequence, "signal")).fetchall():
        if msgspec.json.decode(known, type=tuple[str, msgspec.Raw])[0] == name:
            number = known_number
    remembered = msgspec.json.encode((name, msgspec.Raw(data)))
    tx.cursor.execute(PUT_EXTRA, (place.sequence, "signal", number, remembered))
    return False


def configure(tx: Transaction, name: str, settings: QueueSettings) -> None:
    queue = tx.queue(name)
    judged_anew = queue.settings.max_per_group != settings.max_per_group
    queue.configure(settings)
    if judged_anew:
        tx.reopen(queue)
    tx.arrived = True
    tx.bump()


def set_paused(tx: Transaction, queue: str, group: str | None, paused: bool) -> None:
    row = tx.queue(queue) if group is None else tx.group(queue, group)
    row.paused = int(paused)
    tx.arrived = tx.arrived or not paused
    tx.bump()


def set_limit(tx: Transaction, queue: str, group: str, limit: int | None) -> None:
    tx.group(queue, group).own_limit = limit
    tx.arrived = True
    tx.bump()
