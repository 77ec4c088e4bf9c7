"""Detection of dead connections: a second connection checks whether the server still serves the first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import asyncpg

from jobyard.stores.postgres.errors import DRIVER_ERRORS

if TYPE_CHECKING:
    from jobyard.stores.postgres.pool import Connection

# When the network drops a connection silently, neither side is notified; claims must continue within ten seconds.
STALL_SECONDS = 4.0
# A response in flight, or the gap between two statements of one call, must not count as a stall.
GRACE_SECONDS = 0.5
# `state_change` does not move while the session does nothing.
ACTIVITY = "SELECT state = 'active', state_change FROM pg_stat_activity WHERE pid = $1"


class StallDetector:
    """Watches one call on one connection, until `is_over` is set."""

    def __init__(self, connection: Connection, connect: Callable[[], Awaitable[Connection]]) -> None:
        self.connection = connection
        self._connect = connect
        self.is_over = False

    async def until_stalled(self) -> bool:
        """Return True once the server is unreachable or idle on this connection, False when the call is over."""
        while not self.is_over:
            if not await self._is_served():
                return not self.is_over
            await asyncio.sleep(STALL_SECONDS)
        return False

    async def _is_served(self) -> bool:
        try:
            probe = await self._connect()
        except asyncpg.PostgresError:
            return True  # the server is alive but busy; the call has its own timeout
        except DRIVER_ERRORS:
            return False
        try:
            before = await self._activity(probe)
            if before is not None and not before[0]:
                await asyncio.sleep(GRACE_SECONDS)
                return bool(before != await self._activity(probe))
        except asyncpg.PostgresError:
            return True
        except DRIVER_ERRORS:
            return False
        else:
            # Active, or unknown: a pooler reports process ids of its own, about which the server knows nothing.
            return True
        finally:
            probe.terminate()

    async def _activity(self, probe: Connection) -> tuple[Any, ...] | None:
        row = await probe.fetchrow(ACTIVITY, self.connection.get_server_pid(), timeout=STALL_SECONDS)
        return None if row is None else tuple(row)
