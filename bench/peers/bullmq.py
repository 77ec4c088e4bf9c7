"""BullMQ for Python on Redis."""

from __future__ import annotations

from typing import Any

from bullmq import Queue, Worker

from bench.peers import by_asyncio

CHUNK = 1000


class Bullmq(by_asyncio.Peer):
    async def open(self) -> None:
        self.queue = Queue("bench", {"connection": self.order.url})
        self.options = {"removeOnComplete": True} if self.order.setting("remove", 1) else {}

    async def enqueue(self, sent: int | None) -> None:
        await self.queue.add("noop", {} if sent is None else {"sent": sent}, self.options)

    async def insert(self, jobs: int) -> None:
        for start in range(0, jobs, CHUNK):
            size = min(CHUNK, jobs - start)
            await self.queue.addBulk([{"name": "noop", "data": {}, "opts": self.options} for _ in range(size)])

    async def work(self) -> None:
        tally = self.tally

        async def process(job: Any, token: str) -> None:
            if "sent" in job.data:
                tally.stamped(job.data["sent"])
            else:
                tally.ran()

        concurrency = self.order.setting("concurrency", 20)
        self.worker = Worker("bench", process, {"connection": self.order.url, "concurrency": concurrency})

    async def unsettled(self) -> int:
        counts: dict[str, int] = await self.queue.getJobCounts("wait", "active")
        return sum(counts.values())


if __name__ == "__main__":
    by_asyncio.main(Bullmq)
