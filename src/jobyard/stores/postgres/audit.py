"""Count everything again, what waits in the inbox included, and say where the counts disagree."""

from __future__ import annotations

from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.statements import Statements, audits


async def audit(connection: Connection, statements: Statements) -> list[str]:
    """The caller gives a connection that sees one snapshot; an empty list is proof."""
    return [
        sentence.format(*row)
        for sentence, query in audits()
        for row in await connection.fetch(statements.qualify(query))
    ]
