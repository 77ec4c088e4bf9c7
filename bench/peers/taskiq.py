"""taskiq on a Redis stream, which acknowledges; or on a list, which does not."""

from __future__ import annotations

import asyncio

from taskiq.api import run_receiver_task
from taskiq_redis import ListQueueBroker, RedisStreamBroker

from bench.peers import by_asyncio


class Taskiq(by_asyncio.Peer):
    async def open(self) -> None:
        tally = self.tally
        if self.order.setting("list", 0):
            self.broker = ListQueueBroker(self.order.url)
        else:
            read = self.order.setting("read", 100)
            self.broker = RedisStreamBroker(self.order.url, consumer_id="0", xread_count=read)

        @self.broker.task(task_name="noop")
        async def noop() -> None:
            tally.ran()

        @self.broker.task(task_name="stamp")
        async def stamp(sent: int) -> None:
            tally.stamped(sent)

        self.noop, self.stamp = noop, stamp
        await self.broker.startup()

    async def enqueue(self, sent: int | None) -> None:
        await (self.noop.kiq() if sent is None else self.stamp.kiq(sent))

    async def work(self) -> None:
        self.receiver = asyncio.create_task(
            run_receiver_task(self.broker, max_async_tasks=self.order.setting("concurrency", 100), max_prefetch=100)
        )

    async def unsettled(self) -> int:
        from redis.asyncio import Redis  # noqa: PLC0415 - beside the broker, which offers no count

        client = Redis(connection_pool=self.broker.connection_pool)
        if self.order.setting("list", 0):
            return int(await client.llen("taskiq"))
        return int((await client.xpending("taskiq", "taskiq"))["pending"])


if __name__ == "__main__":
    by_asyncio.main(Taskiq)
