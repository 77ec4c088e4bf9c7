"""Reports when the cap on finished jobs of a queue removes some before their time."""

from __future__ import annotations

from jobyard.domain.events import RetentionCapReached
from jobyard.ports.observer import Emit
from jobyard.ports.store import Store


class RetentionCapMonitor:
    """Compares the counts of the store, because every settlement of any process may prune."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._known: dict[str, int] | None = None  # None before the first look: earlier removals are not news

    async def run_once(self, store: Store) -> None:
        queues = await store.queues()
        for queue in queues:
            removed = queue.removed_by_cap - (0 if self._known is None else self._known.get(queue.name, 0))
            if self._known is not None and removed > 0:
                self._emit(RetentionCapReached(queue.name, removed, queue.settings.keep_at_most))
        self._known = {queue.name: queue.removed_by_cap for queue in queues}
