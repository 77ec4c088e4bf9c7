"""Connections that introspect built-in types once per process, not once per session."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import asyncpg

# Object ids below are the same on every server; the others are assigned by the server.
FIRST_ASSIGNED_ID = 10_000

_known: dict[frozenset[int], Any] = {}


class CachingConnection(asyncpg.Connection):  # type: ignore[misc]  # the driver is not typed
    """Asks for the types of a statement only if no connection of this process has.

    The query of the driver takes the server longer than most of our statements. The driver also sets `jit` around it,
    which behind PgBouncer may reach another session.
    """

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float | None) -> Any:
        key = frozenset(typeoids)
        if max(key) >= FIRST_ASSIGNED_ID:
            return await super()._introspect_types(key, timeout)
        if key not in _known:
            _known[key] = await super()._introspect_types(key, timeout)
        return _known[key]
