"""A worker process: SIGTERM stops it with grace, a second one at once."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from tests.story.marks import Marks
from tests.story.process import begin


async def main() -> None:
    orders, yard = begin()
    marks = Marks(Path(orders.marks))
    async with yard:
        worker = yard.worker(
            concurrency=orders.concurrency,
            queues=orders.queues,
            lease_seconds=orders.lease_seconds,
            shutdown_timeout=orders.shutdown_timeout,
            name=orders.name,
        )
        await worker.start()
        signals: asyncio.Queue[None] = asyncio.Queue()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, signals.put_nowait, None)
        await signals.get()
        stopping = asyncio.create_task(worker.stop())
        marks.put(f"stopping-{orders.name}")
        again = asyncio.create_task(signals.get())
        await asyncio.wait([stopping, again], return_when=asyncio.FIRST_COMPLETED)
        if again.done():
            await worker.stop(0)
        again.cancel()
        await stopping


if __name__ == "__main__":
    asyncio.run(main())
