"""Warm members: taken at once, made again in the background, made on the spot when there is none."""

from __future__ import annotations

import asyncio
from collections import deque

from jobyard.sandbox.daemon.box import Box, BoxListener, SpawnFailed, SpawnLimits
from jobyard.sandbox.daemon.zygote_client import ZygoteClient

_REFILL_AFTER_S = 0.02  # or when the program has ended: making the next member does not compete with a short one
_TRY_AGAIN_S = 0.25
_AT_ONCE = 2  # members in the making: one waits for its processor while the other waits for the zygote


class _Idle(BoxListener):
    """Listens to a member that waits: all it can do is die."""

    def __init__(self, pool: BoxPool, box: Box) -> None:
        self._pool, self._box = pool, box

    def on_output(self, which: int, data: bytes) -> None:
        pass

    def on_status(self, what: bytes, body: bytes) -> None:
        self._pool.discard(self._box)

    def on_lost(self) -> None:
        self._pool.discard(self._box)


class BoxPool:
    """The members of one kind."""

    def __init__(self, zygote: ZygoteClient, kind: int, shape: SpawnLimits, size: int) -> None:
        self._zygote, self._kind, self._shape, self.size = zygote, kind, shape, size
        self._idle: deque[Box] = deque()
        self._fillers: set[asyncio.Task[None]] = set()
        self._coming = 0
        self._timer: asyncio.TimerHandle | None = None
        self.is_closed = False

    @property
    def idle(self) -> int:
        return len(self._idle)

    def take(self, shape: SpawnLimits) -> Box:
        """A member that nobody has used, and nobody will again; a new one may still be on its way."""
        if shape == self._shape and self._idle:
            box = self._idle.popleft()
            self._refill_later()
            return box
        return self._zygote.order(self._kind, shape, is_spare=False)

    def discard(self, box: Box) -> None:
        if box in self._idle:
            self._idle.remove(box)
            self._zygote.bury(box)
            self._refill_later()

    def _refill_later(self) -> None:
        if self._timer is None and not self.is_closed:
            self._timer = asyncio.get_running_loop().call_later(_REFILL_AFTER_S, self.refill)

    def refill_started(self) -> None:
        """Now, if it was to be later."""
        if self._timer is not None:
            self.refill()

    def refill(self) -> None:
        """Begin now to make what is missing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        while len(self._fillers) < _AT_ONCE and self._wants_more():
            filler = loop.create_task(self._fill())
            self._fillers.add(filler)
            filler.add_done_callback(self._fillers.discard)
            self._coming += 1

    def _wants_more(self) -> bool:
        return not self.is_closed and self._zygote.is_alive and self.idle + self._coming < self.size

    async def _fill(self) -> None:
        """One member, which has been counted as coming, and others while they are missing."""
        while True:
            try:
                box = await self._zygote.make(self._kind, self._shape, rehearse=bool(self._idle))
            except SpawnFailed:
                await asyncio.sleep(_TRY_AGAIN_S)
                box = None
            finally:
                self._coming -= 1
            if box is not None:
                self._add(box)
            if not self._wants_more():
                return
            self._coming += 1

    def _add(self, box: Box) -> None:
        if self.is_closed or box.is_lost:
            self._zygote.bury(box)
            return
        box.listener = _Idle(self, box)
        self._idle.append(box)

    def close(self) -> None:
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for filler in self._fillers:
            filler.cancel()
        while self._idle:
            self._zygote.bury(self._idle.popleft())
