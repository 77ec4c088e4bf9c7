"""Inserts that meet in the same moment travel together; one that is refused takes no other with it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from jobyard.domain.job import NewJob
from jobyard.errors import BadInput
from jobyard.ports.job_store import Inserted

Passenger: TypeAlias = tuple[Sequence[NewJob], "asyncio.Future[list[Inserted]]"]
Send: TypeAlias = Callable[[Sequence[NewJob]], Awaitable[list[Inserted]]]

# A call carries about this many jobs at most; one large insert is never cut.
JOBS_PER_CALL = 2000
# While so many calls are under way, those who come gather.
CALLS_AT_ONCE = 2


class Coach:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: deque[Passenger] = deque()
        self._under_way = 0
        self._called = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        if any(job.unique is not None for job in jobs):
            # Its key may be held by somebody's open transaction: nobody else should wait for that.
            return await self._send(jobs)
        loop = asyncio.get_running_loop()
        seat: asyncio.Future[list[Inserted]] = loop.create_future()
        self._waiting.append((jobs, seat))
        if not self._under_way and not self._called:
            # Nobody to travel with: whoever comes meanwhile gathers behind.
            self._depart()
        elif not self._called and self._under_way < CALLS_AT_ONCE:
            self._called = True
            loop.call_soon(self._depart)
        return await seat

    async def finish(self) -> None:
        """What was handed in is still sent."""
        while self._tasks or self._waiting:
            if self._tasks:
                await asyncio.wait(self._tasks)
            else:
                await asyncio.sleep(0)

    def _depart(self) -> None:
        self._called = False
        load: list[Passenger] = []
        jobs = 0
        while self._waiting and (not load or jobs + len(self._waiting[0][0]) <= JOBS_PER_CALL):
            jobs += len(self._waiting[0][0])
            load.append(self._waiting.popleft())
        if load:
            self._under_way += 1
            task = asyncio.get_running_loop().create_task(self._carry(load))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, load: list[Passenger]) -> None:
        try:
            await self._carry_all(load)
        finally:
            self._landed()

    def _landed(self) -> None:
        self._under_way -= 1
        if self._waiting and not self._called:
            self._called = True
            asyncio.get_running_loop().call_soon(self._depart)

    async def _carry_all(self, load: list[Passenger]) -> None:
        try:
            answers = await self._send([job for jobs, _ in load for job in jobs])
        except BadInput as error:
            if len(load) == 1:
                _fail(load[0][1], error)
                return
            for one in load:
                await self._carry_all([one])
        except BaseException as error:
            for _, seat in load:
                _fail(seat, error)
            if not isinstance(error, Exception):
                raise
        else:
            start = 0
            for jobs, seat in load:
                if not seat.done():
                    seat.set_result(answers[start : start + len(jobs)])
                start += len(jobs)


def _fail(seat: asyncio.Future[list[Inserted]], error: BaseException) -> None:
    if not seat.done():
        seat.set_exception(error)
