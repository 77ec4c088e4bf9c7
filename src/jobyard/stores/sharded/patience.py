"""Asking a store that may be away, without keeping the others waiting for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from jobyard.errors import StoreError
from jobyard.ports.store import Store
from jobyard.stores.sharded.parts import Part, Parts

T = TypeVar("T")

# A store that answered last time is waited for so long; one that did not, only for a moment.
PATIENCE_SECONDS = 3.0
SHORT_PATIENCE_SECONDS = 0.2


class Patience(Parts):
    def __init__(self, default: Store, others: Mapping[str, Store]) -> None:
        super().__init__(default, others)
        self._suspect: set[Part] = set()
        self._late: Counter[Part] = Counter()  # calls that nobody waits for any more
        self._late_calls: set[asyncio.Task[Any]] = set()

    async def _in_time(self, part: Part, verb: Callable[[Store], Coroutine[Any, Any, T]]) -> T | None:
        """The store's answer; None when it is away or takes too long: then the verb may still take effect."""
        if self._late[part]:
            return None  # it would only pile up behind the one before
        call = asyncio.create_task(verb(part.store))
        try:
            await asyncio.wait([call], timeout=SHORT_PATIENCE_SECONDS if part in self._suspect else PATIENCE_SECONDS)
        except asyncio.CancelledError:
            call.cancel()
            raise
        if not call.done():
            self._leave(part, call)
            return None
        try:
            answer = call.result()
        except StoreError:
            self._suspect.add(part)
            return None
        self._suspect.discard(part)
        return answer

    def _leave(self, part: Part, call: asyncio.Task[Any]) -> None:
        def came(call: asyncio.Task[Any]) -> None:
            self._late[part] -= 1
            self._late_calls.discard(call)
            if not call.cancelled():
                call.exception()  # seen: nobody else looks

        self._suspect.add(part)
        self._late[part] += 1
        self._late_calls.add(call)
        call.add_done_callback(came)

    async def _end_late_calls(self) -> None:
        """Those of this event loop."""
        loop = asyncio.get_running_loop()
        mine = [call for call in self._late_calls if call.get_loop() is loop]
        for call in mine:
            call.cancel()
        await asyncio.gather(*mine, return_exceptions=True)
