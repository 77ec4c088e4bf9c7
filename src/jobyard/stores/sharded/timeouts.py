"""Calls to a store that may be unavailable, with a timeout, so that the other stores are not delayed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from jobyard.errors import StoreError
from jobyard.ports.store import Store
from jobyard.stores.sharded.shards import Shard

T = TypeVar("T")

# A store that failed or timed out last time gets the short timeout: the full one would delay
# every call until it is back.
TIMEOUT_SECONDS = 3.0
SUSPECT_TIMEOUT_SECONDS = 0.2


class ShardTimeouts:
    def __init__(self) -> None:
        self._suspect: set[Shard] = set()
        self._late: Counter[Shard] = Counter()  # calls that timed out and still run
        self._late_calls: set[asyncio.Task[Any]] = set()

    async def call(self, shard: Shard, verb: Callable[[Store], Coroutine[Any, Any, T]]) -> T | None:
        """The answer of the store; None when it is unavailable or late: then the verb may still take effect."""
        if self._late[shard]:
            return None  # another call would only queue behind the late one
        call = asyncio.create_task(verb(shard.store))
        try:
            await asyncio.wait([call], timeout=SUSPECT_TIMEOUT_SECONDS if shard in self._suspect else TIMEOUT_SECONDS)
        except asyncio.CancelledError:
            call.cancel()
            raise
        if not call.done():
            self._leave(shard, call)
            return None
        try:
            answer = call.result()
        except StoreError:
            self._suspect.add(shard)
            return None
        self._suspect.discard(shard)
        return answer

    def _leave(self, shard: Shard, call: asyncio.Task[Any]) -> None:
        def done(call: asyncio.Task[Any]) -> None:
            self._late[shard] -= 1
            self._late_calls.discard(call)
            if not call.cancelled():
                call.exception()  # marks it as retrieved, since no caller awaits this task

        self._suspect.add(shard)
        self._late[shard] += 1
        self._late_calls.add(call)
        call.add_done_callback(done)

    async def cancel_late_calls(self) -> None:
        loop = asyncio.get_running_loop()
        own = [call for call in self._late_calls if call.get_loop() is loop]
        for call in own:
            call.cancel()
        await asyncio.gather(*own, return_exceptions=True)
