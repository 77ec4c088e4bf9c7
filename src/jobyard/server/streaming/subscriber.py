"""Subscribers of live events: what they want and may see, and their unsent events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from jobyard.live_events.event import LiveEvent, LiveEventType

# Unsent bytes after which a subscriber is dropped.
MAX_BACKLOG_BYTES = 256 * 1024


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """What a subscriber wants and may see. Equal subscriptions share one filtered copy of the events."""

    job_id: str | None = None
    queue: str | None = None
    group: str | None = None
    kind: str | None = None
    types: frozenset[str] = frozenset()  # empty: all; "queue" are changes of queue counts
    queues: frozenset[str] = frozenset()  # the scope of the token; empty: all
    groups: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    own_tag: str | None = None  # only jobs with this tag
    hides_secrets: bool = False

    def wants(self, event: LiveEvent) -> bool:
        if event.type is LiveEventType.RESYNC:
            return event.job_id in ("", self.job_id)
        return (
            (self.job_id is None or event.job_id == self.job_id)
            and (self.queue is None or event.queue == self.queue)
            and (self.group is None or event.group == self.group)
            and (self.kind is None or event.kind == self.kind)
            and (not self.types or event.type in self.types)
            and (not self.queues or event.queue in self.queues)
            and (not self.groups or event.group in self.groups)
            and (not self.kinds or event.kind in self.kinds)
        )

    @property
    def wants_queues(self) -> bool:
        """Whether queue events are included: their counts are for tokens that see all jobs of a queue."""
        sees_part = self.own_tag is not None or self.groups or self.kinds
        return self.job_id is None and not sees_part and (not self.types or "queue" in self.types)

    @property
    def wants_stats(self) -> bool:
        """Whether the client requested the numbers of the overview."""
        sees_part = self.own_tag is not None or self.groups or self.kinds
        return self.job_id is None and not sees_part and "stats" in self.types

    def wants_queue(self, name: str) -> bool:
        return self.wants_queues and self.queue in (None, name) and (not self.queues or name in self.queues)


class Subscriber:
    """One stream. It is over when its client is too far behind or disconnected, or its token or
    session has ended."""

    def __init__(
        self,
        subscription: Subscription,
        principal_id: str,
        on_drop: Callable[[], None] | None = None,
        session: str | None = None,
    ) -> None:
        self.subscription = subscription
        self.principal_id = principal_id
        self.session = session  # the cookie of a browser; None: a request with a token
        self.is_over = False
        self.was_dropped = False
        self.has_access = True  # false: its token or session has ended
        self._on_drop = on_drop
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._has_chunks = asyncio.Event()

    def offer(self, chunk: bytes) -> None:
        if self.is_over:
            return
        self._chunks.append(chunk)
        self._size += len(chunk)
        self._has_chunks.set()
        if self._size > MAX_BACKLOG_BYTES:
            self.drop()

    def drop(self) -> None:
        """End the stream of a client that does not keep up, and discard its backlog."""
        self.was_dropped = True
        self._chunks.clear()
        self.end()
        if self._on_drop is not None:
            self._on_drop()

    def revoke(self) -> None:
        """End the stream of a token or session that has ended."""
        self.has_access = False
        self.end()

    def end(self) -> None:
        self.is_over = True
        self._has_chunks.set()

    async def next(self, timeout_seconds: float) -> bytes | None:
        """The unsent events; empty after the timeout, None once the stream is over."""
        if not self._chunks and not self.is_over:
            try:
                async with asyncio.timeout(timeout_seconds):
                    await self._has_chunks.wait()
            except TimeoutError:
                return b""
        if self.is_over:
            return None
        chunk = b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        self._has_chunks.clear()
        return chunk
