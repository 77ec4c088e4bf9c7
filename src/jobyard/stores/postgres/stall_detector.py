"""A connection that owes an answer for long is looked at from another one: is the server still busy with it?"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import asyncpg

from jobyard.stores.postgres.words import Trouble

if TYPE_CHECKING:
    from jobyard.stores.postgres.pool import Connection

# A network that forgot a connection tells neither side; claims must go on within ten seconds all the same.
SILENT_SECONDS = 4.0
# The answer may be on its way, or a verb of several statements between two of them.
ON_THE_WAY_SECONDS = 0.5
# By session: `state_change` stands still while nothing happens in it.
LOOK = "SELECT state = 'active', state_change FROM pg_stat_activity WHERE pid = $1"


class Watch:
    """For one verb on one connection; `is_over` ends it."""

    def __init__(self, connection: Connection, connect: Callable[[], Awaitable[Connection]]) -> None:
        self.connection = connection
        self._connect = connect
        self.is_over = False

    async def until_silent(self) -> bool:
        """True once the server does nothing for this connection, or nobody is there; False when the verb has ended."""
        while not self.is_over:
            if not await self._is_served():
                return not self.is_over
            await asyncio.sleep(SILENT_SECONDS)
        return False

    async def _is_served(self) -> bool:
        try:
            probe = await self._connect()
        except asyncpg.PostgresError:
            return True  # it lives, and has no time for us: the verb has its own limit
        except Trouble:
            return False
        try:
            before = await self._look(probe)
            if before is not None and not before[0]:
                await asyncio.sleep(ON_THE_WAY_SECONDS)
                return bool(before != await self._look(probe))
        except asyncpg.PostgresError:
            return True
        except Trouble:
            return False
        else:
            # A session that it does not know is one of a pooler's making: nothing can be told of it.
            return True
        finally:
            probe.terminate()

    async def _look(self, probe: Connection) -> tuple[Any, ...] | None:
        row = await probe.fetchrow(LOOK, self.connection.get_server_pid(), timeout=SILENT_SECONDS)
        return None if row is None else tuple(row)
