"""Reports when the cap on finished jobs of a queue removes some before their time."""

from __future__ import annotations

import msgspec

from jobyard.domain.events import RetentionCapReached
from jobyard.domain.instant import Instant
from jobyard.ports.admin_store import QueueInfo
from jobyard.ports.observer import Emit
from jobyard.ports.store import Store

COLLECTION = "jobyard.cap_reported"
# A queue is reported this often at most, however many workers look.
REPORT_AGAIN_SECONDS = 30.0


class Reported(msgspec.Struct, frozen=True):
    """How many removals of a queue have been reported, and when."""

    removed: int
    at: Instant


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Reported).decode


class RetentionCapMonitor:
    """Compares the counts of the store, because every settlement of any process may prune.

    What was reported is in the store, too: whatever was removed before the first look of a worker, or after the last
    one, is reported by the next look of any.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit

    async def run_once(self, store: Store, *, is_last: bool = False) -> None:
        """Report what is new; the last look of a worker reports it even if the queue was reported a moment ago."""
        queues = [queue for queue in await store.queues() if queue.removed_by_cap]
        if queues:
            now = await store.now()
            for queue in queues:
                await self._compare(store, queue, now, is_last=is_last)

    async def _compare(self, store: Store, queue: QueueInfo, now: Instant, *, is_last: bool) -> None:
        record = await store.fetch(COLLECTION, queue.name)
        known = Reported(0, 0) if record is None else _decode(record.data)
        # A queue that was deleted and made again counts from 0.
        removed = queue.removed_by_cap - (known.removed if known.removed <= queue.removed_by_cap else 0)
        if not removed or (not is_last and 0 < now - known.at < REPORT_AGAIN_SECONDS * 1000):
            return
        version = 0 if record is None else record.version
        told = _encode(Reported(queue.removed_by_cap, now))
        if await store.put(COLLECTION, queue.name, told, expect=version) is not None:  # else another worker tells it
            self._emit(RetentionCapReached(queue.name, removed, queue.settings.keep_at_most))
