"""SAQ on Redis or PostgreSQL, by the scheme of the URL."""

from __future__ import annotations

import asyncio
from typing import Any

from saq import Queue, Worker

from bench.peers import by_asyncio


class Saq(by_asyncio.Peer):
    async def open(self) -> None:
        options = {"max_size": 20} if self.order.url.startswith("postgres") else {}
        self.queue = Queue.from_url(self.order.url, name="bench", **options)
        await self.queue.connect()

    async def enqueue(self, sent: int | None) -> None:
        if sent is None:
            await self.queue.enqueue("noop")
        else:
            await self.queue.enqueue("stamp", sent=sent)

    async def work(self) -> None:
        tally = self.tally

        async def noop(_: dict[str, Any]) -> None:
            tally.ran()

        async def stamp(_: dict[str, Any], *, sent: int) -> None:
            tally.stamped(sent)

        worker: Any = Worker(
            self.queue, [("noop", noop), ("stamp", stamp)], concurrency=self.order.setting("concurrency", 20)
        )
        self.task = asyncio.create_task(worker.start())

    async def unsettled(self) -> int:
        return int(await self.queue.count("incomplete"))


if __name__ == "__main__":
    by_asyncio.main(Saq)
