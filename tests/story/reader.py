"""Reads without a pause what people read: lists, counts, jobs, explanations, the audit."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.story.flags import Flags
from tests.story.process import begin

from jobyard import JobFilter, State
from jobyard.errors import JobNotFound


async def main() -> None:
    settings, yard = begin()
    flags = Flags(Path(settings.flags))
    async with yard:
        while not flags.has("readers-may-stop"):
            for queue in await yard.queues():
                async for _ in yard.groups(queue.name):
                    pass
            for state in State:
                page = await yard.page(JobFilter(state=(state,)))
                for job in page.items[:5]:
                    try:
                        await yard.explain(job.id)
                    except JobNotFound:
                        continue
            problems = await yard.store.audit()
            assert problems == [], problems
            flags.put(f"has-read-{settings.name}")


if __name__ == "__main__":
    asyncio.run(main())
