"""Keeps worker processes running: restarts those that die, and stops all of them together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

log = logging.getLogger("jobyard.app")

# A process that ran this long did not fail at its start: the next one starts at once.
STEADY_SECONDS = 30.0
MAX_BACKOFF_SECONDS = 30.0
# Added to the shutdown timeout of a process before it is killed.
SLACK_SECONDS = 10.0
HURRY_SECONDS = 5.0
# The exit code of a process that wants to be replaced, because it reached its memory limit.
REPLACE_EXIT_CODE = 75
# The option of a worker that takes the descriptor of its pipe.
METRICS_PIPE = "--metrics-pipe"
# The pipe of a process that has ended is read for this long: a child that it left behind may hold it open.
READ_ON_SECONDS = 1.0
MAX_LINE_BYTES = 4 << 20


class LineReader(asyncio.Protocol):
    """Passes on each complete line of a pipe. The last line of a killed process may be incomplete."""

    def __init__(self, on_line: Callable[[bytes], None]) -> None:
        self._on_line = on_line
        self._buffer = b""
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > MAX_LINE_BYTES:
            self._buffer = b""
        for line in lines:
            self._on_line(line)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


def backoff_seconds(early_exits: int) -> float:
    """How long to wait after this many early exits in a row.

    >>> [backoff_seconds(exits) for exits in (0, 1, 2, 3, 10)]
    [0.0, 0.5, 1.0, 2.0, 30.0]
    """
    return 0.0 if early_exits == 0 else min(MAX_BACKOFF_SECONDS, 0.25 * 2.0**early_exits)


class Supervisor:
    """Supervises worker processes.

    Each process has its own session, so that Ctrl-C reaches it only through the supervisor. Its standard input is a
    pipe from the supervisor: when the supervisor dies, the pipe closes and the process stops (`--until-input-ends`).
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        environment: Mapping[str, str],
        count: int,
        *,
        shutdown_seconds: float,
    ) -> None:
        """`command` makes the command line of a process from its number, starting at 1."""
        # Takes each line that a process writes to its pipe. None: the processes have none.
        self.on_report: Callable[[bytes], None] | None = None
        self._command = command
        self._environment = dict(environment)
        self._count = count
        self._shutdown_seconds = shutdown_seconds
        self._processes: dict[int, Process] = {}
        self._stopping = asyncio.Event()
        self._forced = asyncio.Event()

    def pids(self) -> list[int]:
        return [process.pid for _, process in sorted(self._processes.items())]

    async def run(self) -> None:
        """Run until `stop`, and until every process has exited."""
        supervised = [asyncio.ensure_future(self._keep(number)) for number in range(1, self._count + 1)]
        try:
            await asyncio.gather(*supervised)
        finally:
            # If one process cannot be started, stop all: the others would run without a supervisor.
            self.stop()
            await asyncio.wait(supervised)

    def stop(self) -> None:
        """Stop all processes gracefully: they claim no more jobs and finish those in flight."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._signal(signal.SIGTERM)

    def force_stop(self) -> None:
        """Stop all processes now: they return their jobs to the queue."""
        self.stop()
        if not self._forced.is_set():
            self._forced.set()
            self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.send_signal(number)

    async def _keep(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        early_exits = 0
        while not self._stopping.is_set():
            began = loop.time()
            async with self._pipe() as pipes:
                process = await self._start(number, pipes)
                code = await self._end_of(process)
            if self._stopping.is_set():
                break
            if code == REPLACE_EXIT_CODE:
                log.info("worker process %d (pid %d) reached its memory limit; replacing it", number, process.pid)
                early_exits = 0
                continue
            early_exits = 0 if loop.time() - began >= STEADY_SECONDS else early_exits + 1
            seconds = backoff_seconds(early_exits)
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
            log.warning("worker process %d (pid %d) %s; restarting in %g s", number, process.pid, how, seconds)
            await wait_up_to(seconds, self._stopping)

    @contextlib.asynccontextmanager
    async def _pipe(self) -> AsyncIterator[list[int]]:
        """The descriptor of a pipe for the next process, whose lines go to `on_report`; closed when it is started."""
        if self.on_report is None:
            yield []
            return
        loop, reader = asyncio.get_running_loop(), LineReader(self.on_report)
        reading, writing = os.pipe()
        transport, _ = await loop.connect_read_pipe(lambda: reader, os.fdopen(reading, "rb", 0))
        try:
            yield [writing]
            await wait_up_to(READ_ON_SECONDS, reader.ended)
        finally:
            transport.close()

    async def _start(self, number: int, pipes: Sequence[int]) -> Process:
        words = [word for pipe in pipes for word in (METRICS_PIPE, str(pipe))]
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command(number),
                *words,
                stdin=PIPE,
                pass_fds=pipes,
                env=self._environment,
                start_new_session=True,
            )
        finally:
            for pipe in pipes:
                os.close(pipe)
        self._processes[number] = process
        log.info("worker process %d started, pid %d", number, process.pid)
        if self._stopping.is_set():
            process.send_signal(signal.SIGTERM)
        return process

    async def _end_of(self, process: Process) -> int:
        """The exit code; a process that does not stop in time is killed."""
        ended = asyncio.ensure_future(process.wait())
        timeout = asyncio.ensure_future(self._stop_timeout())
        await asyncio.wait([ended, timeout], return_when=asyncio.FIRST_COMPLETED)
        timeout.cancel()
        if not ended.done():
            log.error("killing worker process with pid %d: it did not stop in time; its jobs run again", process.pid)
            process.kill()
        return await ended

    async def _stop_timeout(self) -> None:
        await self._stopping.wait()
        await wait_up_to(self._shutdown_seconds + SLACK_SECONDS, self._forced)
        if self._forced.is_set():
            await asyncio.sleep(HURRY_SECONDS)


async def wait_up_to(seconds: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
