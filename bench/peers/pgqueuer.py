"""pgqueuer on PostgreSQL, over asyncpg."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, Queries, QueueManager

from bench.peers import by_asyncio

CHUNK = 1000


class Pgqueuer(by_asyncio.Peer):
    async def open(self) -> None:
        driver: Any
        if self.order.setting("pool", 0):
            self.pool = await asyncpg.create_pool(self.order.url, min_size=4, max_size=10)
            driver = AsyncpgPoolDriver(self.pool)
        else:
            driver = AsyncpgDriver(await asyncpg.connect(self.order.url))
        self.queries = Queries(driver)
        if not await self.queries.schema_is_installed():
            await self.queries.install()

    async def enqueue(self, sent: int | None) -> None:
        if sent is None:
            await self.queries.enqueue("noop", None)
        else:
            await self.queries.enqueue("stamp", str(sent).encode())

    async def insert(self, jobs: int) -> None:
        for start in range(0, jobs, CHUNK):
            size = min(CHUNK, jobs - start)
            await self.queries.enqueue(["noop"] * size, [None] * size, [0] * size)

    async def work(self) -> None:
        tally = self.tally
        manager = QueueManager(self.queries)

        @manager.entrypoint("noop")
        async def noop(_: Any) -> None:
            tally.ran()

        @manager.entrypoint("stamp")
        async def stamp(job: Any) -> None:
            tally.stamped(int(job.payload))

        self.task = asyncio.create_task(manager.run(batch_size=self.order.setting("batch", 100)))

    async def unsettled(self) -> int:
        return sum(each.count for each in await self.queries.queue_size())


if __name__ == "__main__":
    by_asyncio.main(Pgqueuer)
