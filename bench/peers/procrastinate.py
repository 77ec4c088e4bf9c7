"""procrastinate on PostgreSQL, over psycopg."""

from __future__ import annotations

import asyncio

from procrastinate import App, PsycopgConnector

from bench.peers import by_asyncio

CHUNK = 1000


class Procrastinate(by_asyncio.Peer):
    async def open(self) -> None:
        tally = self.tally
        size = self.order.setting("pool", 20)
        self.app = App(connector=PsycopgConnector(conninfo=self.order.url, min_size=4, max_size=size))

        @self.app.task(name="noop")
        async def noop() -> None:
            tally.ran()

        @self.app.task(name="stamp")
        async def stamp(sent: int) -> None:
            tally.stamped(sent)

        self.noop, self.stamp = noop, stamp
        await self.app.open_async()
        found = await self.app.connector.execute_query_one_async("SELECT to_regclass('procrastinate_jobs') AS jobs")
        if found["jobs"] is None:
            await self.app.schema_manager.apply_schema_async()

    async def enqueue(self, sent: int | None) -> None:
        await (self.noop.defer_async() if sent is None else self.stamp.defer_async(sent=sent))

    async def insert(self, jobs: int) -> None:
        for start in range(0, jobs, CHUNK):
            await self.noop.batch_defer_async(*({} for _ in range(min(CHUNK, jobs - start))))

    async def work(self) -> None:
        self.task = asyncio.create_task(
            self.app.run_worker_async(
                concurrency=self.order.setting("concurrency", 10),
                delete_jobs="successful" if self.order.setting("delete", 1) else "never",
                install_signal_handlers=False,
            )
        )

    async def unsettled(self) -> int:
        found = await self.app.connector.execute_query_one_async(
            "SELECT count(*) AS jobs FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
        )
        return int(found["jobs"])


if __name__ == "__main__":
    by_asyncio.main(Procrastinate)
