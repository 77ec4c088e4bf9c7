"""oban for Python on PostgreSQL."""

from __future__ import annotations

from typing import Any

from oban import Oban, worker
from oban.schema import install

from bench.peers import by_asyncio

CHUNK = 1000


class ObanPeer(by_asyncio.Peer):
    async def open(self) -> None:
        tally = self.tally

        @worker(queue="bench")
        class Noop:
            async def process(self, _: Any) -> None:
                tally.ran()

        @worker(queue="bench")
        class Stamp:
            async def process(self, job: Any) -> None:
                tally.stamped(job.args["sent"])

        self.noop: Any = Noop
        self.stamp: Any = Stamp
        self.pool = await Oban.create_pool(self.order.url)
        async with self.pool.connection() as connection:
            found = await connection.execute("SELECT to_regclass('oban_jobs')")
            if (await found.fetchone())[0] is None:
                await install(self.pool)
        self.client = Oban(pool=self.pool)

    async def enqueue(self, sent: int | None) -> None:
        await self.client.enqueue(self.noop.new({}) if sent is None else self.stamp.new({"sent": sent}))

    async def insert(self, jobs: int) -> None:
        for start in range(0, jobs, CHUNK):
            await self.client.enqueue_many(self.noop.new({}) for _ in range(min(CHUNK, jobs - start)))

    async def work(self) -> None:
        limit = self.order.setting("concurrency", 100)
        self.server = Oban(pool=self.pool, name="server", queues={"bench": limit})
        await self.server.start()

    async def unsettled(self) -> int:
        async with self.pool.connection() as connection:
            found = await connection.execute(
                "SELECT count(*) FROM oban_jobs WHERE state IN ('available', 'executing', 'retryable', 'scheduled')"
            )
            row = await found.fetchone()
            return int(row[0])


if __name__ == "__main__":
    by_asyncio.main(ObanPeer)
