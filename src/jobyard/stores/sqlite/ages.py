"""Since when jobs wait and run: from place to place along the index of the line, past all that stands behind each."""

from __future__ import annotations

import sqlite3

from jobyard.domain.instant import Instant
from jobyard.ports.admin_store import MAX_HEADS_SCANNED, QueueAges
from jobyard.stores.sqlite.statements import sql
from jobyard.stores.sqlite.transaction import QueueRow

LOAD_QUEUES, OLDEST_LEASES = sql("load_queues"), sql("oldest_leases")
NEXT_URGENCY, NEXT_GROUP = sql("next_urgency"), sql("next_group")
BEFORE_ALL = ("", -(1 << 62))


def ages(connection: sqlite3.Connection) -> list[QueueAges]:
    running: dict[str, Instant] = dict(connection.execute(OLDEST_LEASES))
    found = [QueueRow.load(row) for row in connection.execute(LOAD_QUEUES)]
    return [
        QueueAges(
            queue=queue.name,
            waiting_since=waiting_since(connection, queue.name) if queue.waiting else None,
            running_since=running.get(queue.name),
        )
        for queue in found
    ]


def waiting_since(connection: sqlite3.Connection, queue: str) -> Instant | None:
    oldest: Instant | None = None
    group, urgency = BEFORE_ALL
    for _ in range(MAX_HEADS_SCANNED):
        row = connection.execute(NEXT_URGENCY, (queue, group, urgency)).fetchone()
        if row is None:
            row = connection.execute(NEXT_GROUP, (queue, group)).fetchone()
        if row is None:
            break
        group, urgency, since = row
        oldest = since if oldest is None else min(oldest, since)
    return oldest
