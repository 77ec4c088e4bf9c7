"""The whole API on a memory store, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
from tests.server.support import Scene

from jobyard.ports.clock import SystemClock
from jobyard.server.dependencies import ServerSettings
from jobyard.server.route import Routes
from jobyard.server.routes.table import ALL_ROUTES
from jobyard.stores.memory import MemoryStore


@asynccontextmanager
async def api(settings: ServerSettings | None = None, routes: Sequence[Routes] = ALL_ROUTES) -> AsyncIterator[Scene]:
    store = MemoryStore(SystemClock())
    await store.open()
    try:
        yield Scene(store, routes, settings)
    finally:
        await store.close()


async def hand_in(client: httpx.AsyncClient, kind: str = "mail", **given: Any) -> str:
    answer = await client.post("/v1/jobs", json={"kind": kind, **given})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


async def ids(client: httpx.AsyncClient, path: str = "/v1/jobs", **params: Any) -> list[str]:
    """The ids of a whole list, page by page."""
    found: list[str] = []
    while True:
        answer = await client.get(path, params=params)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += [job["id"] for job in page["items"]]
        if "next_page_token" not in page:
            return found
        params["page_token"] = page["next_page_token"]
