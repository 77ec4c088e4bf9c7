"""Who listens: what they want and may see, and what they have not been sent yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from jobyard.live_events.event import LiveEvent, LiveEventType

# What one reader may be behind before it is let go.
MAX_BEHIND_BYTES = 256 * 1024


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """What some listeners want and may see; those with the same audience share one filtered copy."""

    job_id: str | None = None
    queue: str | None = None
    group: str | None = None
    kind: str | None = None
    types: frozenset[str] = frozenset()  # empty: all; "queue" stands for how the queues change
    queues: frozenset[str] = frozenset()  # those within reach; empty: all
    groups: frozenset[str] = frozenset()
    own_tag: str | None = None  # of all jobs can_see only those that carry it

    def wants(self, hint: LiveEvent) -> bool:
        if hint.type is LiveEventType.RESYNC:
            return hint.job_id in ("", self.job_id)
        return (
            (self.job_id is None or hint.job_id == self.job_id)
            and (self.queue is None or hint.queue == self.queue)
            and (self.group is None or hint.group == self.group)
            and (self.kind is None or hint.kind == self.kind)
            and (not self.types or hint.type in self.types)
            and (not self.queues or hint.queue in self.queues)
            and (not self.groups or hint.group in self.groups)
        )

    @property
    def wants_queues(self) -> bool:
        """How the queues are is not for those who see jobs of their own only."""
        return self.job_id is None and self.own_tag is None and (not self.types or "queue" in self.types)

    def wants_queue(self, name: str) -> bool:
        return self.wants_queues and self.queue in (None, name) and (not self.queues or name in self.queues)


class Subscriber:
    """One stream. It is over when its reader is too far behind, gone, or no longer let in."""

    def __init__(self, audience: Subscription, principal_id: str, on_drop: Callable[[], None] | None = None) -> None:
        self.audience = audience
        self.principal_id = principal_id
        self.is_over = False
        self.was_dropped = False
        self._on_drop = on_drop
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._news = asyncio.Event()

    def offer(self, chunk: bytes) -> None:
        if self.is_over:
            return
        self._chunks.append(chunk)
        self._size += len(chunk)
        self._news.set()
        if self._size > MAX_BEHIND_BYTES:
            self.drop()

    def drop(self) -> None:
        """Let a reader go that does not keep up: what it was to be sent is thrown away."""
        self.was_dropped = True
        self._chunks.clear()
        self.end()
        if self._on_drop is not None:
            self._on_drop()

    def end(self) -> None:
        self.is_over = True
        self._news.set()

    async def next(self, timeout_seconds: float) -> bytes | None:
        """Everything that came since; nothing after the time; None once it is over."""
        if not self._chunks and not self.is_over:
            try:
                async with asyncio.timeout(timeout_seconds):
                    await self._news.wait()
            except TimeoutError:
                return b""
        if self.is_over:
            return None
        chunk = b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        self._news.clear()
        return chunk
