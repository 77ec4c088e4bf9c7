"""Insert: calls made in the same turn of the event loop are sent as one batch, each all or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hiredis import ReplyError

from jobyard.domain.instant import FOREVER
from jobyard.domain.job import NewJob
from jobyard.errors import BadInput, JobyardError, QueueFull, StoreError, duplicate_job_id
from jobyard.ports.job_store import Inserted
from jobyard.stores._shared.errors import insert_without_transaction
from jobyard.stores.redis.client import RedisClient
from jobyard.stores.redis.codec import decode_queue, encode_queue, has_options, job_options, pack_job
from jobyard.stores.redis.errors import is_function_missing, is_late, set_aside
from jobyard.stores.redis.loop_pool import LoopPool

# Jobs in one command: more would delay the commands of others by milliseconds.
MAX_BATCH = 1000
# A busy server inserts at least this many; the deadline of a large call is extended accordingly.
JOBS_PER_SECOND = 5000


class RedisInsert:
    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def insert(self, jobs: Sequence[NewJob], transaction: Any = None) -> list[Inserted]:
        if transaction is not None:
            raise insert_without_transaction("Redis")
        if not jobs:
            return []
        call, pool = InsertCall(jobs), self._client.pool
        if not pool.inserts_in_flight and not pool.insert_calls:
            # With no other call to share a command with, waiting for the end of the turn only adds latency.
            InsertBatch(self._client, pool, [call]).send()
        else:
            pool.insert_calls.append(call)
            if len(pool.insert_calls) == 1:
                pool.loop.call_soon(self._send_batches, pool)
        pool.inserts_in_flight += 1
        try:
            return await call.answer
        finally:
            pool.inserts_in_flight -= 1

    def _send_batches(self, pool: LoopPool) -> None:
        calls: list[InsertCall] = pool.insert_calls[:]
        pool.insert_calls.clear()
        start = count = 0
        for end, call in enumerate(calls):
            if end > start and count + len(call.jobs) > MAX_BATCH:
                InsertBatch(self._client, pool, calls[start:end]).send()
                start, count = end, 0
            count += len(call.jobs)
        InsertBatch(self._client, pool, calls[start:]).send()


class EncodedJobs:
    __slots__ = ("jobs", "records")

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs
        try:
            self.records = [pack_job(job) for job in jobs]
            for job in jobs:
                job.queue.encode()
        except UnicodeEncodeError as error:
            raise BadInput(f"Cannot store this text: {error}.") from error

    def request(self, queue_numbers: dict[str, int]) -> dict[str, Any]:
        """What Lua reads besides the records; adds the queues of the jobs to `queue_numbers`."""
        flat: list[Any] = []
        options: dict[int, Any] = {}
        for position, job in enumerate(self.jobs, start=1):
            name = encode_queue(job.queue)
            number = queue_numbers.get(name)
            if number is None:
                number = queue_numbers[name] = len(queue_numbers) + 1
            flat += (job.id, number, job.group or "", job.priority)
            if has_options(job):
                options[position] = job_options(job)
                if options[position].get("at", 0) > FOREVER:
                    options[position]["at"] = FOREVER
        found: dict[str, Any] = {"jobs": flat}
        if options:
            found["options"] = options
        return found


class InsertCall(EncodedJobs):
    __slots__ = ("answer",)

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        super().__init__(jobs)
        self.answer: asyncio.Future[list[Inserted]] = asyncio.get_running_loop().create_future()

    def resolve(self, reply: list[Any]) -> None:
        if self.answer.done():
            return
        if isinstance(reply[0], bytes):
            self.answer.set_exception(rejection(reply))
            return
        holders = dict(zip(reply[1::2], reply[2::2], strict=True))
        sequence = reply[0]
        answers: list[Inserted] = []
        for position, job in enumerate(self.jobs):
            holder = holders.get(position) if holders else None
            if holder is None:
                answers.append(Inserted(job.id, True, sequence))
                sequence += 1
            else:
                answers.append(Inserted(holder.decode(), False, 0))
        self.answer.set_result(answers)

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class InsertBatch:
    """Several calls in one command; receives the reply in place of a future."""

    def __init__(self, client: RedisClient, pool: LoopPool, calls: list[InsertCall]) -> None:
        self._client = client
        self._pool = pool
        self._calls = calls
        self._extra_seconds = sum(len(call.jobs) for call in calls) / JOBS_PER_SECOND

    def send(self) -> None:
        """Send at once if a connection is idle, otherwise in a task."""
        connection = self._pool.idle_connection()
        if connection is None:
            self._pool.spawn(self._send_by_task())
            return
        try:
            words = self._client.encode_call(
                "insert", self._request(), *self._records(), extra_seconds=self._extra_seconds
            )
        except BadInput as error:
            self._send_separately(error)
        except Exception as error:
            self._send_separately(BadInput(f"Cannot store these jobs: {error}."))
        else:
            connection.post(self, *words, extra_seconds=self._extra_seconds)

    async def _send_by_task(self) -> None:
        """Send when a connection must be opened first, or the server does not know the command yet."""
        try:
            replies = await self._client.call(
                "insert", self._request(), *self._records(), extra_seconds=self._extra_seconds
            )
        except BadInput as error:
            self._send_separately(error)
        except (StoreError, asyncio.CancelledError) as error:
            self.set_exception(error)
        else:
            self._resolve(replies)

    def done(self) -> bool:
        return all(call.answer.done() for call in self._calls)

    def set_result(self, reply: Any, /) -> None:
        if not isinstance(reply, ReplyError):
            self._resolve(reply)
        elif is_function_missing(reply) or is_late(reply):
            self._pool.spawn(self._send_by_task())
        else:
            self.set_exception(self._client.error_of(reply))

    def set_exception(self, error: BaseException, /) -> None:
        for call in self._calls:
            call.fail(error)

    def _resolve(self, replies: list[Any]) -> None:
        for call, reply in zip(self._calls, replies, strict=True):
            call.resolve(reply)

    def _request(self) -> dict[str, Any]:
        queue_numbers: dict[str, int] = {}
        calls = [call.request(queue_numbers) for call in self._calls]
        return {"calls": calls, "names": list(queue_numbers)}

    def _records(self) -> list[bytes]:
        return [record for call in self._calls for record in call.records]

    def _send_separately(self, error: BadInput) -> None:
        """One of the calls cannot be encoded. Nothing was sent, so send each alone: only the bad one fails."""
        if len(self._calls) == 1:
            self._calls[0].fail(error)
            return
        for call in self._calls:
            InsertBatch(self._client, self._pool, [call]).send()


def rejection(reply: list[Any]) -> JobyardError:
    """The error for a rejected call, as `insert.lua` returns it."""
    match reply:
        case [b"duplicate", job_id]:
            return duplicate_job_id(job_id.decode())
        case [b"queue", name, limit]:
            return QueueFull.over(limit, decode_queue(name))
        case [b"group", name, group, limit]:
            return QueueFull.over(limit, decode_queue(name), group.decode())
        case [b"damaged", name, reason]:
            return StoreError(f"Cannot insert: {set_aside(name, reason)}")
    return StoreError(f"Cannot insert: the server rejected the jobs for an unknown reason: {reply!r}.")
