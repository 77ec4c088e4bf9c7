"""A reader of server-sent events, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import msgspec


class Reader:
    """The events received so far, read in the background."""

    def __init__(self, response: httpx.Response) -> None:
        self.answer = response
        self.events: list[dict[str, Any]] = []
        self.ids: list[int] = []
        self.lines: list[str] = []
        self.is_over = False
        self._task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        try:
            async for line in self.answer.aiter_lines():
                self.lines.append(line)
                if line.startswith("id: "):
                    self.ids.append(int(line[4:]))
                elif line.startswith("data: "):
                    self.events.append(msgspec.json.decode(line[6:]))
        except httpx.HTTPError:
            pass
        finally:
            self.is_over = True

    def types(self) -> list[str]:
        """Event types without their common prefix and version."""
        return [event["type"].removeprefix("io.jobyard.").removesuffix(".v1") for event in self.events]

    def first(self, kind: str, fits: Callable[[dict[str, Any]], bool] = lambda data: True) -> dict[str, Any] | None:
        for event in self.events:
            if event["type"] == f"io.jobyard.{kind}.v1" and fits(event.get("data") or {}):
                return event
        return None

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def listening(client: httpx.AsyncClient, path: str, **options: Any) -> AsyncIterator[Reader]:
    async with client.stream("GET", path, timeout=60, **options) as response:
        assert response.status_code == 200, await response.aread()
        reader = Reader(response)
        try:
            yield reader
        finally:
            await reader.stop()
