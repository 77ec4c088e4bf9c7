"""What a running attempt may do before it ends: renew its lease, and report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from jobyard.domain.instant import FOREVER, after
from jobyard.domain.job import NewJob, Step
from jobyard.domain.lease import UNACKNOWLEDGED_SECONDS, Lease, LeaseKey, adopted
from jobyard.ports.job_store import Extended, Report
from jobyard.stores.sqlite.insert import INSERT_TAG, hold_key, job_row, write_rows
from jobyard.stores.sqlite.settle import HANDOFF_LEASE, LIST_EXTRA_OF, NEXT_EXTRA, PUT_EXTRA
from jobyard.stores.sqlite.statements import sql
from jobyard.stores.sqlite.transaction import Transaction, new_token

EXTEND_LEASE, CHECK_LEASE, CANCELLED_LEASES = sql("extend_lease"), sql("check_lease"), sql("cancelled_leases")
EXTEND_WORKER, INSERT_LEASE, TRIM_EXTRA = sql("extend_worker"), sql("insert_lease"), sql("trim_extra")

KEPT_LINES = 1000


def extend(
    tx: Transaction, worker: str, keys: Sequence[LeaseKey], lease_seconds: float, *, unacknowledged: bool
) -> Extended:
    expires_at = after(tx.now, lease_seconds)
    if unacknowledged:
        tx.cursor.execute(EXTEND_WORKER, (expires_at, worker, tx.now - round(UNACKNOWLEDGED_SECONDS * 1000)))
    execute = tx.cursor.execute
    lost = [key for key in keys if execute(EXTEND_LEASE, (expires_at, key.sequence, key.token)).rowcount == 0]
    return Extended(lost=tuple(lost), cancelled=cancelled(tx, worker))


def cancelled(tx: Transaction, worker: str) -> tuple[tuple[LeaseKey, str], ...]:
    rows = tx.cursor.execute(CANCELLED_LEASES, (worker,)).fetchall()
    return tuple((LeaseKey(job_id, sequence, token), reason) for job_id, sequence, token, reason in rows)


def report(tx: Transaction, reports: Sequence[Report]) -> tuple[LeaseKey, ...]:
    refused: list[LeaseKey] = []
    for item in reports:
        sequence = item.key.sequence
        if tx.cursor.execute(CHECK_LEASE, (sequence, item.key.token)).fetchone() is None:
            refused.append(item.key)
            continue
        if item.progress is not None:
            stamped = msgspec.structs.replace(item.progress, at=tx.now)
            put(tx, sequence, "progress", 0, stamped)
        for line in item.lines:
            number = tx.cursor.execute(NEXT_EXTRA, (sequence, "log")).fetchone()[0]
            put(tx, sequence, "log", number, msgspec.structs.replace(line, at=tx.now))
            if number > KEPT_LINES:
                tx.cursor.execute(TRIM_EXTRA, (sequence, "log", number - KEPT_LINES))
        if item.step is not None:
            put_step(tx, sequence, item.step)
    return tuple(refused)


def put(tx: Transaction, sequence: int, what: str, number: int, value: Any) -> None:
    tx.cursor.execute(PUT_EXTRA, (sequence, what, number, msgspec.json.encode(value)))


def put_step(tx: Transaction, sequence: int, step: Step) -> None:
    """The last word about a name wins, in the place of the first; a running step is stamped with its start."""
    number = tx.cursor.execute(NEXT_EXTRA, (sequence, "step")).fetchone()[0]
    started_at = tx.now
    for known_number, data in tx.cursor.execute(LIST_EXTRA_OF, (sequence, "step")).fetchall():
        known = msgspec.json.decode(data, type=Step)
        if known.name == step.name:
            number = known_number
            if step.status != "running":
                started_at = known.started_at
    finished_at = None if step.status == "running" else tx.now
    put(tx, sequence, "step", number, msgspec.structs.replace(step, started_at=started_at, finished_at=finished_at))


def adopt(tx: Transaction, job: NewJob, worker: str, external_id: str) -> Lease:
    """Enter a job that runs already: no limit is asked, the counts are true."""
    if job.unique is not None:
        hold_key(tx, job.queue, job.unique, job.id)
    group = tx.group(job.queue, job.group or "")
    tx.sequence += 1
    sequence, token = tx.sequence, new_token()
    row = job_row(job, sequence, tx.now, tx.now)
    write_rows(tx, [row])
    if job.tags:
        tx.cursor.executemany(INSERT_TAG, [(tag, sequence) for tag in job.tags])
    tx.cursor.execute(INSERT_LEASE, (sequence, token, FOREVER, worker, 1, tx.now, job.queue, group.name, row[-1]))
    tx.cursor.execute(HANDOFF_LEASE, (external_id, FOREVER, sequence, token))
    tx.run(group)
    tx.bump()
    return adopted(job, sequence, token)
