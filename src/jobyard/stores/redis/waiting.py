"""The verbs that may wait: for work, and for a job's end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from jobyard.domain.job import Job
from jobyard.stores.redis.ear import GONE, LOOK, WORK
from jobyard.stores.redis.packing import queue_name
from jobyard.stores.redis.people import missing
from jobyard.stores.redis.scripts import command
from jobyard.stores.redis.server import Server
from jobyard.stores.redis.viewing import seen

LOOK_FOR_WORK, AWAIT = command("look"), command("await")
# Below this a timer that fires a hair early would spin.
SHORTEST_NAP_SECONDS = 0.001
# Who cannot be told, because the subscription is cut off, looks this often.
UNTOLD_NAP_SECONDS = 0.25
# A wish to be told is forgotten so long after its end, in case somebody is late.
MARGIN_MILLISECONDS = 60_000


async def wait_for_work(
    server: Server,
    queues: Sequence[str],
    seconds: float,
    cancels_asked: Callable[[], int],
    until: asyncio.Future[None] | None = None,
) -> bool:
    """Until there is work, the time is over, or `until` is done."""
    question: dict[str, Any] = {"queues": [queue_name(queue) for queue in dict.fromkeys(queues)]}
    if seconds <= 0:
        claimable, _, _ = await server.run(LOOK_FOR_WORK, question)
        return bool(claimable)
    loop = asyncio.get_running_loop()
    deadline, before, ear = loop.time() + seconds, cancels_asked(), server.station.ear
    await ear.wait_until_ready(min(seconds, UNTOLD_NAP_SECONDS))
    question |= {"handle": ear.handle, "sleeps": True}
    while True:
        sleeper = ear.sleeper(question["queues"])
        try:
            claimable, due, now = await server.run(LOOK_FOR_WORK, question)
            if claimable or cancels_asked() != before:
                return True
            nap = remaining = deadline - loop.time()
            if due >= 0:
                nap = min(nap, (due - now) / 1000)
            if not ear.is_ready:
                nap = min(nap, UNTOLD_NAP_SECONDS)
            if remaining <= 0 or (until is not None and until.done()):
                return False
            if await sleep(sleeper, nap, until) == WORK:
                return True
        finally:
            sleeper.cancel()


async def sleep(sleeper: asyncio.Future[Any], seconds: float, until: asyncio.Future[None] | None) -> Any:
    """What the sleeper is told. No task stands between: who is woken should be at work at once."""

    def wake(_: object = None) -> None:
        if not sleeper.done():
            sleeper.set_result(LOOK)

    handle = sleeper.get_loop().call_later(max(seconds, SHORTEST_NAP_SECONDS), wake)
    if until is not None:
        until.add_done_callback(wake)
    try:
        return await sleeper
    finally:
        handle.cancel()
        if until is not None:
            until.remove_done_callback(wake)


async def wait_for_end(server: Server, job_id: str, seconds: float) -> Job | None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    if seconds <= 0:
        return await _ended(server, job_id, "", 0)
    ear = server.station.ear
    await ear.wait_until_ready(min(seconds, UNTOLD_NAP_SECONDS))
    while True:
        waiter = ear.waiter(job_id)
        try:
            remaining = deadline - loop.time()
            till = round(max(0.0, remaining) * 1000) + MARGIN_MILLISECONDS
            job = await _ended(server, job_id, ear.handle, till)
            if job is not None or remaining <= 0:
                return job
            nap = remaining if ear.is_ready else min(remaining, UNTOLD_NAP_SECONDS)
            await asyncio.wait([waiter], timeout=nap)
            told = waiter.result() if waiter.done() else LOOK
            if told == GONE:
                raise missing(job_id)
            if told != LOOK:
                return seen(told)
        finally:
            waiter.cancel()


async def _ended(server: Server, job_id: str, handle: str, till: int) -> Job | None:
    answer = await server.run(AWAIT, {"id": job_id, "handle": handle, "till": till})
    if not answer:
        raise missing(job_id)
    return seen(answer[1]) if answer[0] else None
