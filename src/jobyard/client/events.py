"""Live events from afar: an iterator that goes on through lost connections and restarts of the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import msgspec

from jobyard.api.schemas.events import CloudEvent
from jobyard.client.address import path
from jobyard.client.transport import Query, Transport, as_query, pause
from jobyard.errors import ServerUnavailable, StoreUnavailable, TooManyRequests

# The server says something every 15 s at the latest.
SILENCE_SECONDS = 45.0


_decode = msgspec.json.Decoder(CloudEvent).decode


class EventVerbs:
    _transport: Transport

    async def events(
        self,
        *,
        queue: str | None = None,
        group: str | None = None,
        kind: str | None = None,
        types: Sequence[str] = (),
    ) -> AsyncIterator[CloudEvent]:
        """What happens, as it happens, without end; of this queue and these types only, if given.

        Each connection begins with a snapshot, so that nothing is missed for long.
        """
        query = as_query({"queue": queue, "group": group, "kind": kind, "type": list(types)})
        async for event in self._listen("/v1/events", query):
            yield event

    async def job_events(self, job_id: str, *, types: Sequence[str] = ()) -> AsyncIterator[CloudEvent]:
        """What happens to one job."""
        async for event in self._listen(path("v1", "jobs", job_id, "events"), as_query({"type": list(types)})):
            yield event

    async def _listen(self, at: str, query: Query) -> AsyncIterator[CloudEvent]:
        """Asks again when the stream ends; gives up when the server is away for longer than the client's patience."""
        last_id = ""
        tries = 0
        heard_at = time.monotonic()
        while True:
            try:
                async with self._transport.stream(at, query, last_id, SILENCE_SECONDS) as source:
                    async for message in source:
                        tries, heard_at = 0, time.monotonic()
                        last_id = message.id or last_id
                        if message.data:
                            yield read_event(message.data)
            except (StoreUnavailable, TooManyRequests):
                if time.monotonic() - heard_at > self._transport.patience:
                    raise
            tries += 1
            await asyncio.sleep(pause(tries))


def read_event(text: str) -> CloudEvent:
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ServerUnavailable(f"This is no event of a jobyard server: {error}.") from error
