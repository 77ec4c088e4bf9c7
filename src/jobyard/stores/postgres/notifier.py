"""Waiting for work and for ends of jobs, and announcing both."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from jobyard.domain.job import SOON_AT_MOST, SOON_SECONDS, Job
from jobyard.errors import JobNotFound, StoreUnavailable
from jobyard.stores._shared.awaited_jobs import MARGIN_SECONDS, ShortRetention
from jobyard.stores._shared.limits import MIN_WAIT_SECONDS
from jobyard.stores.postgres.connection import PostgresConnection, Resources
from jobyard.stores.postgres.listen_notify import CANCEL, ENDS, WORK

# Poll intervals where no notification arrives, growing.
FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 0.02, 1.0
# Poll interval of a listener: a notification may have been lost with its connection.
LISTENER_POLL_SECONDS = 1.0


class PollInterval:
    def __init__(self, resources: Resources) -> None:
        self._listener = resources.listener
        self._interval = FIRST_POLL_SECONDS

    def next(self) -> float:
        if self._listener.is_listening:
            return LISTENER_POLL_SECONDS
        interval, self._interval = self._interval, min(MAX_POLL_SECONDS, self._interval * 1.5)
        return interval


class PostgresNotifier:
    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._waiters = connection.waiters
        self.short_retention = ShortRetention(
            lambda: connection.fetch_value("removes_soon", SOON_SECONDS, SOON_AT_MOST)
        )

    async def wait_for_work(self, queues: Sequence[str], timeout_seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        cancels_before, counted = self._waiters.cancels, None
        deadline = loop.time() + timeout_seconds
        interval = PollInterval(self._connection.resources() if timeout_seconds <= 0 else await self.listening())
        while True:
            changed = self._waiters.work.add()
            try:
                found, cancels, due = await self._has_work(queues)
                # Only a cancel requested since the wait began: an older one whose job still runs must not end it.
                is_new = self._waiters.cancels != cancels_before or (counted is not None and cancels > counted)
                if found or is_new:
                    return True
                counted = cancels
                remaining = deadline - loop.time()
                if remaining <= 0:
                    return False
                sleep = min(remaining, interval.next())
                if due is not None and not self._connection.has_adjustable_clock:
                    sleep = min(sleep, due / 1000)
                await asyncio.wait([changed], timeout=max(sleep, MIN_WAIT_SECONDS))
            finally:
                self._waiters.work.discard(changed)

    async def _has_work(self, queues: Sequence[str]) -> tuple[bool, int, int | None]:
        arguments = self._connection.now(), list(queues)
        try:
            [row] = await self._connection.fetch("has_work", *arguments)
        except StoreUnavailable:
            # Reading changes nothing, so it is repeated once: the server may have ended only this session.
            [row] = await self._connection.fetch("has_work", *arguments)
        return tuple(row)

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job | None:
        if timeout_seconds <= 0:
            return await self._ended(job_id)
        resources = await self.listening()
        # While it is registered, an exchange of this process reports the end even if retention removes the job.
        future = self._waiters.ends.add(job_id)
        try:
            async with asyncio.timeout(timeout_seconds):
                if await self.short_retention.is_used():
                    # The worker may be in another process.
                    wait = round((timeout_seconds + MARGIN_SECONDS) * 1000)
                    now, soon = self._connection.now(), (SOON_SECONDS, SOON_AT_MOST)
                    await self._connection.fetch("register_awaited", now, job_id, wait, *soon)
                resources.completions.watch(job_id)
                return await future
        except TimeoutError:
            return None
        finally:
            self._waiters.ends.discard(job_id, future)
            if self._connection.opened is None:
                await resources.completions.close()

    async def _ended(self, job_id: str) -> Job | None:
        job = await self._connection.load_job(job_id)
        if job is None:
            raise JobNotFound.of(job_id)
        return job if job.state.is_final else None

    async def listening(self) -> Resources:
        """Start to listen, except behind PgBouncer, where a session belongs to a client for one transaction only."""
        resources = self._connection.resources()
        if not self._connection.pooled and self._connection.opened is not None:
            await resources.listener.open()
        return resources

    # Announcements: to waiters of this process directly, to other processes by NOTIFY

    def announce_work(self) -> None:
        self._waiters.work.wake_all()
        self._notify(WORK)

    def announce_cancel(self) -> None:
        self._waiters.wake(CANCEL)
        self._notify(CANCEL)

    def announce_ends(self) -> None:
        """Jobs have ended. Waiters of this process were resolved by the exchange itself."""
        self._notify(ENDS)

    def announce_changes(self) -> None:
        """Jobs have ended or were deleted without an exchange."""
        self._waiters.wake(ENDS)
        self._notify(ENDS)

    def _notify(self, kind: str) -> None:
        opened = self._connection.opened
        if opened is not None:
            opened.sender.send(kind)
