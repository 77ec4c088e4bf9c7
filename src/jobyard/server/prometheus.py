"""What Prometheus reads: counters of this process, and how things stand in the store."""

from __future__ import annotations

import asyncio
import time

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from jobyard.observability.metrics import Metrics
from jobyard.ports.store import Store

# The store is asked at most so often, however many scrape.
SCRAPE_EVERY_SECONDS = 1.0


class MetricsExporter:
    def __init__(self, store: Store, metrics: Metrics) -> None:
        self.metrics = metrics
        self._store = store
        self._asking = asyncio.Lock()
        self._last: tuple[float, bytes] | None = None

    async def text(self) -> bytes:
        async with self._asking:
            if self._last is None or time.monotonic() - self._last[0] >= SCRAPE_EVERY_SECONDS:
                store = self._store
                queues, workers = await store.queues(), await store.workers()
                text = self.metrics.text(queues, workers, await store.ages(), await store.now())
                self._last = (time.monotonic(), text)
            return self._last[1]

    async def answer(self) -> Response:
        return Response(await self.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})
