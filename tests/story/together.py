"""One story told on several stores at the same time: what takes long there is waiting for the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from tests.story.engines import place
from tests.story.scene import Scene
from tests.story.sizes import size

EVERY_STORE = size(("sqlite", "redis", "postgres"), ("sqlite", "redis", "postgres", "pgbouncer"))


async def on_each(
    story: Callable[[Scene], Awaitable[None]], title: str, folder: Path, engines: Iterable[str] = EVERY_STORE
) -> None:
    """A store whose server is missing takes no other along; what failed is told first."""

    async def tell(engine: str) -> None:
        stage = folder / engine
        stage.mkdir()
        with place(engine, stage) as url:
            scene = Scene(stage, f"{title}[{engine}]", url)
            try:
                async with scene.yard:
                    await story(scene)
            finally:
                scene.clear()

    ends = await asyncio.gather(*(tell(engine) for engine in engines), return_exceptions=True)
    trouble = [end for end in ends if end is not None]
    for end in sorted(trouble, key=lambda end: not isinstance(end, Exception)):
        raise end
