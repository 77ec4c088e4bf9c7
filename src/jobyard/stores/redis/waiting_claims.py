"""A claim that waits on the server until the command that makes a job claimable serves it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from jobyard.domain.outcome import Release
from jobyard.domain.state import Settlement, judge
from jobyard.errors import StoreError, StoreUnavailable
from jobyard.ports.job_store import Exchange
from jobyard.stores._shared.limits import MIN_WAIT_SECONDS
from jobyard.stores._shared.polling_claim import POLL_SECONDS
from jobyard.stores.redis.codec import encode_queue, milliseconds, split_strings
from jobyard.stores.redis.errors import ReplyLost
from jobyard.stores.redis.exchange import FIRST_PAUSE_SECONDS, RETRY_SECONDS, RedisExchange, new_token
from jobyard.stores.redis.subscriber import CHECK

# The server drops a claim that was not withdrawn by then: its process is gone or suspended, and jobs granted to it
# would be lost until their leases expire.
CLAIM_TTL_MS = 3000
TIMED_OUT = [b""]


class RedisWaitingClaim:
    def __init__(
        self, exchanges: RedisExchange, worker: str, queues: Sequence[str], wanted: int, lease_seconds: float
    ) -> None:
        self._exchanges = exchanges
        self._client = exchanges.client
        self._worker = worker
        self._queues = queues
        self._wanted = wanted
        self._lease_seconds = lease_seconds
        self._token = new_token()
        self._slot = exchanges.slots.take(worker)
        self._subscriber = self._client.pool.subscriber
        self._message = self._subscriber.waiter(self._token)

    def _request(self) -> dict[str, Any]:
        """The server stores it: the names are part of the record layout."""
        return {
            "handle": self._subscriber.id,
            "worker": self._worker,
            "token": self._token,
            "slot": self._slot,
            "wanted": self._wanted,
            "lease": milliseconds(self._lease_seconds),
            "queues": [encode_queue(queue) for queue in dict.fromkeys(self._queues)],
            "ttl": CLAIM_TTL_MS,
        }

    async def wait(self, until: asyncio.Future[None]) -> Exchange:
        try:
            return await self._wait(until)
        except asyncio.CancelledError:
            self._abandon()
            raise
        finally:
            self._exchanges.slots.free(self._worker, self._slot)
            self._message.cancel()

    async def _wait(self, until: asyncio.Future[None]) -> Exchange:
        try:
            first = await self._client.call("claim_or_wait", self._request())
        except ReplyLost:
            return await self._withdraw() or await self._exchange()
        answer = self._decode(first)
        if answer.leases:
            return answer
        if answer.cancelled:
            # The worker must learn of cancel requests now, so the claim does not stay on the server.
            return await self._withdraw() or answer
        seconds = POLL_SECONDS
        if answer.next_due_at is not None:
            seconds = min(seconds, (answer.next_due_at - answer.now) / 1000)
        message: Any = CHECK if until.done() else await self._receive(until, max(seconds, MIN_WAIT_SECONDS))
        if message not in (CHECK, TIMED_OUT):
            return self._decode_message(message)
        served = await self._withdraw()
        if served is not None:
            return served
        may_have_work = message == CHECK or seconds < POLL_SECONDS
        return await self._exchange() if may_have_work and not until.done() else answer

    async def _receive(self, until: asyncio.Future[None], seconds: float) -> Any:
        """The message, or TIMED_OUT. One future serves all three events: each turn of the loop adds latency."""

        def stop(_: object = None) -> None:
            if not self._message.done():
                self._message.set_result(TIMED_OUT)

        timer = asyncio.get_running_loop().call_later(seconds, stop)
        until.add_done_callback(stop)
        try:
            return await self._message
        finally:
            timer.cancel()
            until.remove_done_callback(stop)

    async def _exchange(self) -> Exchange:
        return await self._exchanges.run(self._worker, (), self._queues, self._wanted, self._lease_seconds)

    async def _withdraw(self) -> Exchange | None:
        """Withdraw the claim; returns what it was granted meanwhile.

        Retried for some seconds: leases that no worker knows of look like the death of their worker.
        """
        deadline, pause = time.monotonic() + RETRY_SECONDS, FIRST_PAUSE_SECONDS
        while True:
            try:
                reply = await self._client.call("withdraw_claim", self._request())
            except StoreUnavailable:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(pause)
                pause *= 2
            else:
                return self._decode(reply) if reply else None

    def _decode(self, reply: list[Any]) -> Exchange:
        return self._exchanges.decode(self._token, (), reply)

    def _decode_message(self, parts: list[bytes]) -> Exchange:
        revision, now, queues, sequences, records, packed_options, *children = parts
        flat = split_strings(packed_options)
        options = [
            [int(position), changes, private] for position, changes, private in zip(*[iter(flat)] * 3, strict=True)
        ]
        leases = self._exchanges.decode_leases(
            self._token,
            split_strings(queues),
            split_strings(sequences),
            split_strings(records),
            options,
            split_strings(children[0]) if children else [],
        )
        return Exchange(leases=leases, revision=int(revision), now=int(now))

    def _abandon(self) -> None:
        """The caller was cancelled: withdraw before any later command goes out on this connection."""
        with suppress(StoreUnavailable):
            pool = self._client.pool
            connection = pool.idle_connection()
            if connection is not None:
                reply = connection.send(*self._client.encode_call("withdraw_claim", self._request()))
                pool.spawn(self._release(reply))

    async def _release(self, reply: asyncio.Future[Any]) -> None:
        """Release jobs that were granted after the caller left, without counting an attempt."""
        with suppress(StoreError):
            answer = await reply
            if isinstance(answer, list) and answer:
                leases = self._decode(answer).leases
                released = [Settlement(lease.key, judge(lease, Release())) for lease in leases]
                await self._exchanges.run(self._worker, released, (), 0, self._lease_seconds)
