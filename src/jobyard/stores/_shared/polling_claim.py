"""Waiting claim by polling: exchange, wait for work, exchange again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from jobyard.ports.job_store import Exchange

# A waiting exchange polls this often even without a notification, so that a lost one delays a job by at most this.
POLL_SECONDS = 1.0


async def claim_by_polling(
    exchange: Callable[[], Awaitable[Exchange]],
    wait_for_work: Callable[[float], Awaitable[bool]],
    until: asyncio.Future[None],
) -> Exchange:
    """Exchange; if nothing was claimed, exchange once more when there may be work, unless `until` is done first."""
    answer = await exchange()
    if answer.leases or until.done():
        return answer
    waiting = asyncio.ensure_future(wait_for_work(POLL_SECONDS))
    either: list[asyncio.Future[Any]] = [waiting, until]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if until.done() or not waiting.result():
            return answer
    finally:
        waiting.cancel()
    return await exchange()
