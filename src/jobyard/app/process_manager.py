"""Worker processes that are kept running: one that dies is replaced, all are stopped together, none is left behind."""

from __future__ import annotations

import asyncio
import logging
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence

log = logging.getLogger("jobyard.app")

# A process that lived so long died of something new: the next one starts at once.
STEADY_SECONDS = 30.0
LONGEST_WAIT_SECONDS = 30.0
# What a process may take beyond its own time for finishing before it is killed.
SLACK_SECONDS = 10.0
HURRY_SECONDS = 5.0


def wait_seconds(deaths: int) -> float:
    """How long to wait after so many early deaths in a row.

    >>> [wait_seconds(deaths) for deaths in (0, 1, 2, 3, 10)]
    [0.0, 0.5, 1.0, 2.0, 30.0]
    """
    return 0.0 if deaths == 0 else min(LONGEST_WAIT_SECONDS, 0.25 * 2.0**deaths)


class Supervisor:
    """Each process has its own session, so that Ctrl-C reaches them only through us, and a pipe from us as its standard
    input: when we are gone, however we went, that ends, and so do they (`jobyard worker --until-input-ends`)."""

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        environment: Mapping[str, str],
        count: int,
        *,
        shutdown_seconds: float,
    ) -> None:
        """`command` is told the number of the process, from 1."""
        self._command = command
        self._environment = dict(environment)
        self._count = count
        self._shutdown_seconds = shutdown_seconds
        self._processes: dict[int, Process] = {}
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()

    def pids(self) -> list[int]:
        return [process.pid for _, process in sorted(self._processes.items())]

    async def run(self) -> None:
        """Until `stop`, and until every process has ended."""
        keepers = [asyncio.ensure_future(self._keep(number)) for number in range(1, self._count + 1)]
        try:
            await asyncio.gather(*keepers)
        finally:
            # One that could not even be started ends all: nobody would look after the others.
            self.stop()
            await asyncio.wait(keepers)

    def stop(self) -> None:
        """They take no more jobs and finish what they can."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._tell(signal.SIGTERM)

    def hurry(self) -> None:
        """They hand back at once what they have."""
        self.stop()
        if not self._hurrying.is_set():
            self._hurrying.set()
            self._tell(signal.SIGTERM)

    def _tell(self, number: signal.Signals) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.send_signal(number)

    async def _keep(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        early_deaths = 0
        while not self._stopping.is_set():
            began = loop.time()
            process = await self._start(number)
            code = await self._end_of(process)
            if self._stopping.is_set():
                break
            early_deaths = 0 if loop.time() - began >= STEADY_SECONDS else early_deaths + 1
            seconds = wait_seconds(early_deaths)
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            log.warning("worker process %d (pid %d) %s; another starts in %g s", number, process.pid, how, seconds)
            await happens_within(self._stopping, seconds)

    async def _start(self, number: int) -> Process:
        process = await asyncio.create_subprocess_exec(
            *self._command(number), stdin=PIPE, env=self._environment, start_new_session=True
        )
        self._processes[number] = process
        log.info("worker process %d started, pid %d", number, process.pid)
        if self._stopping.is_set():
            process.send_signal(signal.SIGTERM)
        return process

    async def _end_of(self, process: Process) -> int:
        """Its exit code; one that outlives its time is killed."""
        ended = asyncio.ensure_future(process.wait())
        told = asyncio.ensure_future(self._time_is_up())
        await asyncio.wait([ended, told], return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if not ended.done():
            log.error("worker process with pid %d does not end and is killed; its jobs run again", process.pid)
            process.kill()
        return await ended

    async def _time_is_up(self) -> None:
        await self._stopping.wait()
        await happens_within(self._hurrying, self._shutdown_seconds + SLACK_SECONDS)
        if self._hurrying.is_set():
            await asyncio.sleep(HURRY_SECONDS)


async def happens_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
