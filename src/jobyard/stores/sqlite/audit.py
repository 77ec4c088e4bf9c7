"""Audit: recount everything and report where the kept counts disagree; repair them."""

from __future__ import annotations

import sqlite3

from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction

# The columns of each row fill the sentence.
CHECKS = {
    SQL["audit_queue_running"]: "Running jobs of queue {0}: {1} kept, {2} counted.",
    SQL["audit_queue_waiting"]: "Due jobs of queue {0}: {1} kept, {2} counted.",
    SQL["audit_queue_delayed"]: "Delayed jobs of queue {0}: {1} kept, {2} counted.",
    SQL["audit_queue_finished"]: "Completed/failed/cancelled jobs of queue {0}: {1} kept, {2} counted.",
    SQL["audit_group_running"]: "Running jobs of group {0}: {1} kept, {2} counted.",
    SQL["audit_group_waiting"]: "Due jobs of group {0}: {1} kept, {2} counted.",
    SQL["audit_group_open"]: "Group {0}: open is {1}, but {2} by its counts.",
    SQL["audit_group_delayed"]: "Delayed jobs of group {0}: {1} kept, {2} counted.",
    SQL["audit_missing_groups"]: "Group {0}/{1} has {2} PENDING or RUNNING jobs, but it or its queue has no row.",
    SQL["audit_missing_queues"]: "Queue {0} has {1} finished jobs but no row.",
    SQL["audit_unique_keys"]: "Unique key {1} of queue {0} is held by job {2}, which is not active.",
    SQL["audit_job_places"]: "Job {0} is in {1} tables of ready, delayed, lease and done instead of one.",
    SQL["audit_ticks"]: "Schedule {0} has {1} ticks later than the last decided instant ({2}).",
    SQL["audit_flags"]: "Flags of job {0}: {1} kept, {2} by its other rows.",
    SQL["audit_orphans"]: "Table {0} has {1} rows without a job.",
}


def audit(connection: sqlite3.Connection) -> list[str]:
    return [sentence.format(*row) for query, sentence in CHECKS.items() for row in connection.execute(query)]


def repair(tx: Transaction) -> list[str]:
    tx.forget_rows()
    before = audit(tx.connection)
    if not before:
        return []
    for name, statement in SQL.items():
        if name.startswith("repair_"):
            tx.bare_cursor.execute(statement)
    tx.due_known = False
    tx.has_work = True
    after = set(audit(tx.connection))
    return [sentence for sentence in before if sentence not in after]
