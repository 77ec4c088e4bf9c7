"""Pool of warm boxes: taken instantly, refilled in the background, spawned on demand when empty."""

from __future__ import annotations

import asyncio
from collections import deque

from jobyard.sandbox.daemon.box import Box, BoxListener, SpawnFailed, SpawnLimits
from jobyard.sandbox.daemon.zygote_client import ZygoteClient

# Or when the program ends, if sooner. With 0, spawning the next box would compete with a short program.
_REFILL_AFTER_S = 0.02
_RETRY_S = 0.25  # after a failed spawn: without a pause, a machine out of resources would be kept busy
_CONCURRENT_SPAWNS = 2  # one box waits for a processor while the other waits for the zygote


class _IdleListener(BoxListener):
    """Listener for an idle box: all it can do is die."""

    def __init__(self, pool: BoxPool, box: Box) -> None:
        self._pool, self._box = pool, box

    def on_output(self, which: int, data: bytes) -> None:
        pass

    def on_status(self, what: bytes, body: bytes) -> None:
        self._pool.discard(self._box)

    def on_lost(self) -> None:
        self._pool.discard(self._box)


class BoxPool:
    def __init__(self, zygote: ZygoteClient, kind: int, limits: SpawnLimits, size: int) -> None:
        self._zygote, self._kind, self._limits, self.size = zygote, kind, limits, size
        self._idle: deque[Box] = deque()
        self._fillers: set[asyncio.Task[None]] = set()
        self._spawning = 0
        self._timer: asyncio.TimerHandle | None = None
        self.is_closed = False

    @property
    def idle(self) -> int:
        return len(self._idle)

    def take(self, limits: SpawnLimits) -> Box:
        """Take an unused box, which is never reused. A box spawned on demand may not be ready yet."""
        if limits == self._limits and self._idle:
            box = self._idle.popleft()
            self._refill_later()
            return box
        return self._zygote.spawn(self._kind, limits, is_pooled=False)

    def discard(self, box: Box) -> None:
        if box in self._idle:
            self._idle.remove(box)
            self._zygote.dispose(box)
            self._refill_later()

    def _refill_later(self) -> None:
        if self._timer is None and not self.is_closed:
            self._timer = asyncio.get_running_loop().call_later(_REFILL_AFTER_S, self.refill)

    def refill_if_scheduled(self) -> None:
        if self._timer is not None:
            self.refill()

    def refill(self) -> None:
        """Start to spawn what is missing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        while len(self._fillers) < _CONCURRENT_SPAWNS and self._is_short():
            filler = loop.create_task(self._fill())
            self._fillers.add(filler)
            filler.add_done_callback(self._fillers.discard)
            self._spawning += 1

    def _is_short(self) -> bool:
        return not self.is_closed and self._zygote.is_alive and self.idle + self._spawning < self.size

    async def _fill(self) -> None:
        """Spawn one box, already counted as spawning, and more while the pool is short."""
        while True:
            try:
                box = await self._zygote.spawn_idle(self._kind, self._limits, rehearse=bool(self._idle))
            except SpawnFailed:
                await asyncio.sleep(_RETRY_S)
                box = None
            finally:
                self._spawning -= 1
            if box is not None:
                self._add(box)
            if not self._is_short():
                return
            self._spawning += 1

    def _add(self, box: Box) -> None:
        if self.is_closed or box.is_lost:
            self._zygote.dispose(box)
            return
        box.listener = _IdleListener(self, box)
        self._idle.append(box)

    def close(self) -> None:
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for filler in self._fillers:
            filler.cancel()
        while self._idle:
            self._zygote.dispose(self._idle.popleft())
