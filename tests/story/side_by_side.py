"""One story on several stores at the same time: most of its time is waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from tests.story.engines import empty_store, start_servers
from tests.story.harness import Harness
from tests.story.sizes import size

EVERY_STORE = size(("sqlite", "redis", "postgres"), ("sqlite", "redis", "postgres", "pgbouncer"))


async def on_each_store(
    story: Callable[[Harness], Awaitable[None]], title: str, folder: Path, engines: Iterable[str] = EVERY_STORE
) -> None:
    """A missing server does not stop the others; failures are raised before skips."""

    async def tell(engine: str) -> None:
        stage = folder / engine
        stage.mkdir()
        with empty_store(engine, stage) as url:
            harness = Harness(stage, f"{title}[{engine}]", url)
            try:
                async with harness.yard:
                    await story(harness)
            finally:
                harness.clear()

    start_servers(engines)
    ends = await asyncio.gather(*(tell(engine) for engine in engines), return_exceptions=True)
    trouble = [end for end in ends if end is not None]
    for end in sorted(trouble, key=lambda end: not isinstance(end, Exception)):
        raise end
