"""Audit: recount all jobs, including what waits in the inbox, and list where stored counts and cursors disagree."""

from __future__ import annotations

from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.statements import Statements


async def audit(connection: Connection, statements: Statements) -> list[str]:
    """Run all checks. The connection must see one snapshot."""
    return [row[0] for check in statements.starting_with("audit_") for row in await connection.fetch(check)]


async def repair(connection: Connection, statements: Statements) -> None:
    async with connection.transaction():
        for statement in statements.starting_with("repair_"):
            await connection.execute(statement)
