"""What can be wrong with a PostgreSQL server."""

from __future__ import annotations

from jobyard.ports.store import Finding
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.statements import Statements


async def findings(connection: Connection, statements: Statements) -> list[Finding]:
    return []
