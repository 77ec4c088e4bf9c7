"""Cache of finished children for workflows that hold a slot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from jobyard.domain.history import EndedJob

# How long a workflow keeps its slot for a child. With dozens of chains on one worker a link takes half of that.
WAIT_SECONDS = 0.1
# After a child that took longer, the first number of its kind are not waited for, then more each time. A child that
# runs on another worker takes longer, too: where that is common, almost none is waited for.
FIRST_SKIPPED, MAX_SKIPPED, GROWTH, DECAY = 4.0, 1000.0, 4.0, 0.9
MAX_KINDS = 1000


class WaitStatistics:
    """Whether it was worth waiting for jobs of one kind."""

    __slots__ = ("_last_miss", "_skip", "_skipped")

    def __init__(self) -> None:
        self._skip = 0.0
        self._skipped = 0  # how many are still to be skipped
        self._last_miss = 0.0

    def is_worth_a_wait(self) -> bool:
        if self._skipped:
            self._skipped -= 1
            return False
        return True

    def hit(self) -> None:
        self._skip *= DECAY

    def miss(self, began: float) -> None:
        # Waits that began together miss together: they count once.
        if began >= self._last_miss:
            self._last_miss = time.monotonic()
            self._skip = min(MAX_SKIPPED, max(FIRST_SKIPPED, GROWTH * self._skip))
            self._skipped = round(self._skip)


class LocalChildEnds:
    """A short child job often ends on the same worker: its parent then goes on without being parked and replayed."""

    def __init__(self, has_room: Callable[[], bool]) -> None:
        self._has_room = has_room
        self._expected: dict[str, asyncio.Future[EndedJob]] = {}
        self._kinds: dict[str, WaitStatistics] = {}

    def expect(self, job_id: str, kind: str) -> bool:
        """Called before the child is inserted. True: `wait` or `forget` must follow."""
        experience = self._kinds.get(kind)
        if experience is None:
            if len(self._kinds) >= MAX_KINDS:
                self._kinds.clear()
            experience = self._kinds[kind] = WaitStatistics()
        # The child needs a slot, too.
        if not self._has_room() or not experience.is_worth_a_wait():
            return False
        self._expected[job_id] = asyncio.get_running_loop().create_future()
        return True

    async def wait(self, job_id: str, kind: str) -> EndedJob | None:
        """The end of the child, delivered to its parent; None if it takes too long."""
        experience, began = self._kinds.get(kind) or WaitStatistics(), time.monotonic()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                ended = await self._expected[job_id]
        except TimeoutError:
            experience.miss(began)
            return None
        finally:
            self.forget(job_id)
        experience.hit()
        return ended

    def forget(self, job_id: str) -> None:
        self._expected.pop(job_id, None)

    def delivered(self, ended: Iterable[EndedJob]) -> None:
        if self._expected:
            for each in ended:
                future = self._expected.get(each.job_id)
                if future is not None and not future.done():
                    future.set_result(each)
