"""Waiting for work and for the end of a job: registered on the server, woken by pub/sub."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from jobyard.domain.job import Job
from jobyard.errors import JobNotFound
from jobyard.stores._shared.limits import MIN_WAIT_SECONDS
from jobyard.stores.redis.client import RedisClient
from jobyard.stores.redis.codec import encode_queue
from jobyard.stores.redis.job_view import job_view
from jobyard.stores.redis.subscriber import CHECK, DELETED, WORK

# While the subscription is down no message arrives, so waiters poll.
POLL_UNSUBSCRIBED_SECONDS = 0.25
# How long the server keeps the registration of a waiter beyond its timeout, for one that is late.
MARGIN_MILLISECONDS = 60_000


class RedisNotifier:
    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._cancels_requested = 0

    def note_cancel(self) -> None:
        """A cancel was requested by this process: its own waiters return."""
        self._cancels_requested += 1

    async def wait_for_work(self, queues: Sequence[str], timeout_seconds: float) -> bool:
        return await self.wait_for_work_until(queues, timeout_seconds, None)

    async def wait_for_work_until(
        self, queues: Sequence[str], timeout_seconds: float, until: asyncio.Future[None] | None
    ) -> bool:
        """`wait_for_work` that also returns when `until` is done."""
        request: dict[str, Any] = {"queues": [encode_queue(queue) for queue in dict.fromkeys(queues)]}
        if timeout_seconds <= 0:
            claimable, _, _ = await self._client.call("wait_for_work", request)
            return bool(claimable)
        loop = asyncio.get_running_loop()
        deadline, cancels_before = loop.time() + timeout_seconds, self._cancels_requested
        subscriber = self._client.pool.subscriber
        await subscriber.wait_until_ready(min(timeout_seconds, POLL_UNSUBSCRIBED_SECONDS))
        request |= {"handle": subscriber.id, "waits": True}
        while True:
            waiter = subscriber.work_waiter(request["queues"])
            try:
                claimable, due, now = await self._client.call("wait_for_work", request)
                if claimable or self._cancels_requested != cancels_before:
                    return True
                sleep = remaining = deadline - loop.time()
                if due >= 0:
                    sleep = min(sleep, (due - now) / 1000)
                if not subscriber.is_ready:
                    sleep = min(sleep, POLL_UNSUBSCRIBED_SECONDS)
                if remaining <= 0 or (until is not None and until.done()):
                    return False
                if await _wait(waiter, sleep, until) == WORK:
                    return True
            finally:
                waiter.cancel()

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        if timeout_seconds <= 0:
            return await self._ended(job_id, "", 0)
        subscriber = self._client.pool.subscriber
        await subscriber.wait_until_ready(min(timeout_seconds, POLL_UNSUBSCRIBED_SECONDS))
        while True:
            waiter = subscriber.waiter(job_id)
            try:
                remaining = deadline - loop.time()
                keep_ms = round(max(0.0, remaining) * 1000) + MARGIN_MILLISECONDS
                job = await self._ended(job_id, subscriber.id, keep_ms)
                if job is not None or remaining <= 0:
                    return job
                sleep = remaining if subscriber.is_ready else min(remaining, POLL_UNSUBSCRIBED_SECONDS)
                await asyncio.wait([waiter], timeout=sleep)
                message = waiter.result() if waiter.done() else CHECK
                if message == DELETED:
                    raise JobNotFound.of(job_id)
                if message != CHECK:
                    return job_view(message)
            finally:
                waiter.cancel()

    async def _ended(self, job_id: str, handle: str, keep_ms: int) -> Job | None:
        """The job if it has ended; otherwise the server registers the handle as waiting for it."""
        reply = await self._client.call("wait_for_end", {"id": job_id, "handle": handle, "keep": keep_ms})
        if not reply:
            raise JobNotFound.of(job_id)
        return job_view(reply[1]) if reply[0] else None


async def _wait(waiter: asyncio.Future[Any], seconds: float, until: asyncio.Future[None] | None) -> Any:
    """The waiter's result, or CHECK after the time. No task in between: each turn of the loop adds latency."""

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(CHECK)

    timer = waiter.get_loop().call_later(max(seconds, MIN_WAIT_SECONDS), wake)
    if until is not None:
        until.add_done_callback(wake)
    try:
        return await waiter
    finally:
        timer.cancel()
        if until is not None:
            until.remove_done_callback(wake)
