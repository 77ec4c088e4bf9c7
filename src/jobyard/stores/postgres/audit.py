"""Audit: recount all jobs, including what waits in the inbox, and list where stored counts and cursors disagree."""

from __future__ import annotations

from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.statements import Statements

CHECKS = (
    "audit_queue_counts",
    "audit_group_counts",
    "audit_open_groups",
    "audit_line_cursors",
    "audit_group_cursors",
    "audit_delayed_cursors",
    "audit_inbox_cursors",
    "audit_finish_cursors",
    "audit_finish_numbers",
    "audit_queue_rows",
    "audit_unique_keys",
    "audit_job_states",
    "audit_ready_order",
    "audit_orphans",
    "audit_decided_ticks",
    "audit_kept_ticks",
    "audit_logs",
)


async def audit(connection: Connection, statements: Statements) -> list[str]:
    """Run all checks. The connection must see one snapshot."""
    return [row[0] for check in CHECKS for row in await connection.fetch(statements[check])]
