"""Waiting for something to claim, the plain way: look, sleep until there may be work, look again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from jobyard.ports.job_store import Exchange

# Even without a word from the store a patient exchange looks again after this long.
LOOK_AGAIN_SECONDS = 1.0


async def claim_by_polling(
    exchange: Callable[[], Awaitable[Exchange]],
    wait_for_work: Callable[[float], Awaitable[bool]],
    until: asyncio.Future[None],
) -> Exchange:
    """Exchange; if that gave nothing, once more when there may be work, unless `until` is done before."""
    answer = await exchange()
    if answer.leases or until.done():
        return answer
    waiting = asyncio.ensure_future(wait_for_work(LOOK_AGAIN_SECONDS))
    either: list[asyncio.Future[Any]] = [waiting, until]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if until.done() or not waiting.result():
            return answer
    finally:
        waiting.cancel()
    return await exchange()
