"""Removes everything that tests created on a shared server."""

from __future__ import annotations

import asyncio
import os

from tests.servers.shared import POSTGRES_VARIABLE, REDIS_VARIABLE, RUN


def clean() -> None:
    asyncio.run(_clean())


async def _clean() -> None:
    url = os.environ.get(REDIS_VARIABLE)
    if url:
        from redis.asyncio import Redis  # noqa: PLC0415

        client = Redis.from_url(url)
        keys = [key async for key in client.scan_iter(match=f"*{RUN}*", count=1000)]
        for start in range(0, len(keys), 1000):
            await client.unlink(*keys[start : start + 1000])
        await client.aclose()
    url = os.environ.get(POSTGRES_VARIABLE)
    if url:
        import asyncpg  # noqa: PLC0415

        connection = await asyncpg.connect(url)
        query = "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, $1)"
        for row in await connection.fetch(query, RUN):
            await connection.execute(f'DROP SCHEMA "{row["nspname"]}" CASCADE')
        await connection.close()
