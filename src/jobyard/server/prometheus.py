"""The text of the `/metrics` endpoint: reads the store at most once a second, whatever the number of scrapers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from jobyard.observability.metrics import Metrics
from jobyard.ports.store import Store

# However many scrape it, the store is read at most once in this time.
CACHE_SECONDS = 1.0


class MetricsExporter:
    def __init__(self, store: Store, metrics: Metrics) -> None:
        self.metrics = metrics
        self.sources: list[Callable[[], Awaitable[bytes]]] = []  # further gauges, read with each scrape
        self._store = store
        self._lock = asyncio.Lock()
        self._cached: tuple[float, bytes] | None = None

    async def text(self) -> bytes:
        async with self._lock:
            if self._cached is None or time.monotonic() - self._cached[0] >= CACHE_SECONDS:
                store = self._store
                queues, workers = await store.queues(), await store.workers()
                text = self.metrics.text(queues, workers, await store.ages(), await store.now())
                for source in self.sources:
                    text += await source()
                self._cached = (time.monotonic(), text)
            return self._cached[1]

    async def response(self) -> Response:
        return Response(await self.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})
