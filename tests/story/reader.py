"""Reads without a pause what people read: lists, counts, jobs, explanations, the audit."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.story.flags import Flags
from tests.story.process import begin

from jobyard.domain.job import State
from jobyard.errors import JobNotFound
from jobyard.ports.admin_store import Filter


async def main() -> None:
    settings, yard = begin()
    flags = Flags(Path(settings.flags))
    async with yard:
        while not flags.has("readers-may-stop"):
            for queue in await yard.queues():
                await yard.groups(queue.name)
            for state in State:
                page = await yard.find(Filter(states=(state,)))
                for job in page.jobs[:5]:
                    try:
                        await yard.explain(job.id)
                    except JobNotFound:
                        continue
            problems = await yard.store.audit()
            assert problems == [], problems
            flags.put(f"has-read-{settings.name}")


if __name__ == "__main__":
    asyncio.run(main())
