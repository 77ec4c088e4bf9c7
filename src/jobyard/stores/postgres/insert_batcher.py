"""Insert batching: concurrent calls travel in one; when a batch is rejected, each call is tried alone."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from jobyard.domain.job import NewJob
from jobyard.errors import BadInput
from jobyard.ports.job_store import Inserted

PendingInsert: TypeAlias = tuple[Sequence[NewJob], "asyncio.Future[list[Inserted]]"]
Send: TypeAlias = Callable[[Sequence[NewJob]], Awaitable[list[Inserted]]]

# Jobs per batch; a single larger call is not split.
MAX_JOBS = 2000
# Batches in flight; later calls gather until one returns, which makes batches larger under load.
MAX_IN_FLIGHT = 2


class InsertBatcher:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._pending: deque[PendingInsert] = deque()
        self._in_flight = 0
        self._scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        if any(job.unique is not None for job in jobs):
            # An open transaction may hold the key: other calls must not wait for it.
            return await self._send(jobs)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Inserted]] = loop.create_future()
        self._pending.append((jobs, future))
        if not self._in_flight and not self._scheduled:
            self._flush()
        elif not self._scheduled and self._in_flight < MAX_IN_FLIGHT:
            self._scheduled = True
            loop.call_soon(self._flush)
        return await future

    async def finish(self) -> None:
        while self._tasks or self._pending:
            if self._tasks:
                await asyncio.wait(self._tasks)
            else:
                await asyncio.sleep(0)

    def _flush(self) -> None:
        self._scheduled = False
        batch: list[PendingInsert] = []
        jobs = 0
        while self._pending and (not batch or jobs + len(self._pending[0][0]) <= MAX_JOBS):
            jobs += len(self._pending[0][0])
            batch.append(self._pending.popleft())
        if batch:
            self._in_flight += 1
            task = asyncio.get_running_loop().create_task(self._run(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, batch: list[PendingInsert]) -> None:
        try:
            await self._send_batch(batch)
        finally:
            self._in_flight -= 1
            if self._pending and not self._scheduled:
                self._scheduled = True
                asyncio.get_running_loop().call_soon(self._flush)

    async def _send_batch(self, batch: list[PendingInsert]) -> None:
        try:
            answers = await self._send([job for jobs, _ in batch for job in jobs])
        except BadInput as error:
            if len(batch) == 1:
                _fail(batch[0][1], error)
                return
            for one in batch:
                await self._send_batch([one])
        except BaseException as error:
            for _, future in batch:
                _fail(future, error)
            if not isinstance(error, Exception):
                raise
        else:
            start = 0
            for jobs, future in batch:
                if not future.done():
                    future.set_result(answers[start : start + len(jobs)])
                start += len(jobs)


def _fail(future: asyncio.Future[list[Inserted]], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
