"""A server on a free port with a SQLite store, a worker beside it, and clients that speak to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.server.support import ApiServer, serving
from tests.support import PATIENCE_SECONDS

from jobyard import Context, Jobyard
from jobyard.client import Client
from jobyard.server.routes.table import ALL_ROUTES


class Site:
    def __init__(self, yard: Jobyard, url: str, api: ApiServer) -> None:
        self.yard = yard
        self.url = url
        self.api = api

    async def token(self, role: str = "admin", **scope: Any) -> str:
        return await self.api.token(role, **scope)

    @asynccontextmanager
    async def client(self, role: str = "admin", *, url: str | None = None, **scope: Any) -> AsyncIterator[Client]:
        async with Client(
            url or self.url, await self.token(role, **scope), timeout=PATIENCE_SECONDS, patience=PATIENCE_SECONDS
        ) as client:
            yield client


def make_yard(folder: Path) -> Jobyard:
    yard = Jobyard(f"sqlite:///{folder}/jobs.db")

    @yard.job(queue="mail", max_attempts=1)
    async def send(ctx: Context, to: str, copies: int = 1) -> dict[str, object]:
        await ctx.progress(50, "half")
        return {"to": to, "copies": copies}

    @yard.job(queue="mail", max_attempts=1)
    async def fail(ctx: Context) -> None:
        raise ValueError("no way")

    return yard


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    """The handlers are in the yard, which shares the store with the server."""
    async with make_yard(folder) as yard:
        api = ApiServer(yard.store, ALL_ROUTES)
        async with serving(api.app) as url:
            yield Site(yard, url, api)
