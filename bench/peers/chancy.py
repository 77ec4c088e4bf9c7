"""chancy on PostgreSQL, with its asyncio executor."""

from __future__ import annotations

import logging

from chancy import Chancy, Job, Queue, Worker

from bench.peers import by_asyncio, by_name

CHUNK = 1000
NOOP = Job(func="bench.peers.by_name.noop_async", queue="bench")
STAMP = Job(func="bench.peers.by_name.stamp_async", queue="bench")


class ChancyPeer(by_asyncio.Peer):
    async def open(self) -> None:
        by_name.report_to(self.tally)
        self.app = Chancy(self.order.url, log=logging.getLogger("chancy"))
        await self.app.pool.open()
        await self.app.migrate()
        # A worker declares `default` by itself, and would start processes for it.
        for name in ("default", "bench"):
            await self.app.declare(
                Queue(
                    name=name,
                    concurrency=self.order.setting("concurrency", 1000),
                    executor=Chancy.Executor.Async,
                    polling_interval=1,
                    eager_polling=True,
                ),
                upsert=True,
            )

    async def enqueue(self, sent: int | None) -> None:
        await self.app.push(NOOP if sent is None else STAMP.with_kwargs(sent=sent))

    async def insert(self, jobs: int) -> None:
        async for _ in self.app.push_many([NOOP] * jobs, batch_size=CHUNK):
            pass

    async def work(self) -> None:
        self.worker = Worker(self.app, register_signal_handlers=False)
        # Its acknowledgements wait for this many seconds, a whole one by default.
        self.worker.send_outgoing_interval = self.order.setting("flush_ms", 50) / 1000
        await self.worker.start()

    async def unsettled(self) -> int:
        async with self.app.pool.connection() as connection:
            found = await connection.execute(
                "SELECT count(*) FROM chancy_jobs WHERE state IN ('pending', 'running', 'retrying')"
            )
            row = await found.fetchone()
            return int(row[0])


if __name__ == "__main__":
    by_asyncio.main(ChancyPeer)
