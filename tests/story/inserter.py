"""Inserts batches, and writes down each one that was acknowledged."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from tests.story.process import begin

from jobyard.app.declarations import declarations_of

BATCH = 20


async def main() -> None:
    settings, yard = begin()
    span = declarations_of(yard).tasks["span"]
    acknowledged = Path(settings.flags) / f"acknowledged-{settings.name}"
    async with yard:
        with acknowledged.open("w", buffering=1) as file:
            for number in itertools.count() if settings.count == 0 else range(settings.count):
                batch = f"{settings.name}/{number}"
                one = span.options(group=f"group-{number % 10}", tags=(batch,))
                await yard.enqueue_many(*(one.call(0.001) for _ in range(BATCH)))
                file.write(f"{batch}\n")


if __name__ == "__main__":
    asyncio.run(main())
