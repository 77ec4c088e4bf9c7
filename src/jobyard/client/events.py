"""Client methods for live events: iterators that reconnect after lost connections and restarts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

from jobyard.api.schemas.events import CloudEvent
from jobyard.client.address import path
from jobyard.client.transport import Query, Transport, as_query, decode_event, pause
from jobyard.errors import StoreUnavailable, TooManyRequests

# Three times the keep-alive interval of the server: after that, the connection counts as lost.
SILENCE_SECONDS = 45.0


class EventEndpoints:
    _transport: Transport

    async def events(
        self, *, queue: str | None = None, group: str | None = None, kind: str | None = None, types: Sequence[str] = ()
    ) -> AsyncIterator[CloudEvent]:
        """Live events, without end, filtered by the arguments.

        Each connection begins with a snapshot, which makes up for events that were missed while disconnected.
        """
        query = as_query({"queue": queue, "group": group, "kind": kind, "type": list(types)})
        async for event in self._listen("/v1/events", query):
            yield event

    async def job_events(self, job_id: str, *, types: Sequence[str] = ()) -> AsyncIterator[CloudEvent]:
        """Live events of one job."""
        async for event in self._listen(path("v1", "jobs", job_id, "events"), as_query({"type": list(types)})):
            yield event

    async def _listen(self, at: str, query: Query) -> AsyncIterator[CloudEvent]:
        """Reconnect when the stream ends; raise if the server is unavailable for longer than `patience`."""
        last_id = ""
        tries = 0
        received_at = time.monotonic()
        while True:
            try:
                async with self._transport.stream(at, query, last_id, SILENCE_SECONDS) as source:
                    async for message in source:
                        tries, received_at = 0, time.monotonic()
                        last_id = message.id or last_id
                        if message.data:
                            yield decode_event(message.data, CloudEvent)
            except (StoreUnavailable, TooManyRequests):
                if time.monotonic() - received_at > self._transport.patience:
                    raise
            tries += 1
            await asyncio.sleep(pause(tries))
