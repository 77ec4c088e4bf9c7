"""One run of a program in a box: sends code and input, reads output, enforces limits, measures."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from jobyard.sandbox.daemon.box import Box, SpawnFailed
from jobyard.sandbox.daemon.collect import collect, program_folder
from jobyard.sandbox.daemon.inside import protocol
from jobyard.sandbox.daemon.zygote_client import SPAWN_TIMEOUT_S
from jobyard.sandbox.protocol import Limits, RunVerdict

_log = logging.getLogger(__name__)
OnOutput = Callable[[int, bytes], None]

_CORES = os.cpu_count() or 1
_MIN_CPU_CHECK_S = 0.001  # more frequent checks would cost more than the accuracy of the limit is worth
_EXIT_REPORT_S = 0.05  # without a report by then, the resource usage of a killed program stays unknown
_END_TIMEOUT_S = 5.0  # a process that SIGKILL does not end must not hold the slot forever
_SIGXCPU = 24
MAX_STREAMED_BYTES = 16 << 20  # standard input of an interactive run, all together
_MAX_EARLY_SIGNALS = 16


@dataclass(kw_only=True)
class CompletedRun:
    exit_code: int = 137
    signal: int | None = 9
    exit_reported: bool = False  # False: it was killed together with its init
    killed_for: RunVerdict | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    wall_ms: float = 0.0
    cpu_ms: float | None = None
    memory_peak_bytes: int | None = None
    memory_source: str = "none"
    oom_kills: int = 0
    files: dict[int, bytes] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)

    @property
    def verdict(self) -> RunVerdict:
        if self.stdout_truncated or self.stderr_truncated:
            return RunVerdict.OUTPUT_LIMIT
        if self.killed_for is not None:
            return self.killed_for
        if self.oom_kills:
            return RunVerdict.MEMORY_LIMIT
        if self.signal == _SIGXCPU:
            return RunVerdict.CPU_LIMIT
        if self.signal is not None:
            return RunVerdict.SIGNALED
        return RunVerdict.RUNTIME_ERROR if self.exit_code else RunVerdict.OK


class BoxDied(SpawnFailed):
    """The box died before it received its code, so nothing of the program has run."""


class ProgramRun:
    """Listener of the box while it runs the program."""

    def __init__(self, box: Box, limits: Limits, on_output: OnOutput | None = None) -> None:
        self._box, self._limits, self._on_output = box, limits, on_output
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._outputs = (bytearray(), bytearray())
        self._truncated = [False, False]
        self._timers: list[asyncio.TimerHandle] = []
        self.started_at = self._ended_at = 0  # monotonic ns
        self._startup_cpu_ns = 0  # used by the box itself since the cgroup counts
        self._rusage: tuple[int, int] | None = None
        self.completed = CompletedRun()

    async def run(
        self,
        code: bytes,
        stdin: bytes,
        collect_names: tuple[str, ...] = (),
        max_bytes: int = 0,
        control: RunControl | None = None,
    ) -> CompletedRun:
        """Run the program to its end and collect the named files. Raises SpawnFailed, OSError."""
        box = self._box
        box.listener = self
        if box.is_lost:
            self.on_lost()
        # Spawned for this run: the code waits in its pipe. A driver does not say when it was ready, and a busy daemon
        # learns of it late, maybe after the end of the program: its time begins when the code is sent.
        is_driver = box.limits.files_open > 0
        sends_code_early = not box.is_pooled and not collect_names and not is_driver
        try:
            if box.group is not None:
                box.group.limit(self._limits.memory_mb << 20, self._limits.processes)
                box.group.start()
            if sends_code_early:
                _PipeWriter(box, "code", code)
            if not box.is_pooled:
                await _ready(box)
        except (SpawnFailed, OSError) as error:
            if not self._is_out_of_memory(error):
                raise
            await self._terminate()
            self.completed.oom_kills = 1
            return self.completed
        folder = program_folder(box.program_pidfd) if collect_names else -1
        try:
            if box.group is not None and not sends_code_early:
                box.group.start()
            self._startup_cpu_ns = box.startup_cpu_us * 1000 if sends_code_early else 0
            self.started_at = box.ready_at if sends_code_early else time.monotonic_ns()
            self._start_timers()
            code_writer = None if sends_code_early else _PipeWriter(box, "code", code)
            writer = _PipeWriter(box, "stdin", stdin, stays_open=control is not None)
            if control is not None:
                control.attach(box, writer)
            await self._wait()
            box.drain()
            self._measure()
            was_killed = self.completed.oom_kills or self.completed.killed_for
            if code_writer is not None and code_writer.is_broken and not was_killed:
                raise BoxDied("the box died before it received its code")
            if collect_names:
                self.completed.files, self.completed.notes = collect(folder, collect_names, max_bytes)
        finally:
            if folder >= 0:
                os.close(folder)
        return self.completed

    def _is_out_of_memory(self, error: Exception) -> bool:
        """Whether the memory limit is too low for the language runtime itself."""
        group = self._box.group
        if group is None:
            return False
        return (isinstance(error, OSError) and error.errno == errno.EBUSY) or group.oom_kills() > 0

    async def _wait(self) -> None:
        try:
            await self._over
        finally:
            for timer in self._timers:
                timer.cancel()
            self._box.kill()
        if not self.completed.exit_reported or not self._box.is_empty():
            await self._terminate()

    async def _terminate(self) -> None:
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                await self._box.terminate()
        except TimeoutError:
            _log.error("a box has not ended %g s after it was killed; its run ends without it", _END_TIMEOUT_S)

    def on_output(self, which: int, data: bytes) -> None:
        if self._truncated[which - 1]:
            return  # the cut may be below the limit, at a character boundary
        kept, most = self._outputs[which - 1], self._limits.output_bytes
        room = most - len(kept)
        if len(data) > room:
            data = trim_partial_character(bytes(kept[-3:]) + data[:room], len(kept[-3:])) if room else b""
            self._truncated[which - 1] = True
            self._kill_for(RunVerdict.OUTPUT_LIMIT)
        if data:
            kept += data
            if self._on_output is not None:
                self._on_output(which, data)

    def on_status(self, what: bytes, body: bytes) -> None:
        if what == protocol.EXIT:
            code, number, used, peak, self._ended_at = protocol.EXIT_BODY.unpack(body)
            self.completed.exit_code, self.completed.signal, self.completed.exit_reported = code, number or None, True
            self._rusage = (used - self._box.startup_cpu_us, peak)
            self._finish()

    def on_lost(self) -> None:
        self._finish()

    def _start_timers(self) -> None:
        limits = self._limits
        self._timers.append(self._loop.call_later(limits.time_seconds, self._kill_for, RunVerdict.TIME_LIMIT))
        if limits.cpu_seconds is not None:
            self._check_cpu()

    def _check_cpu(self) -> None:
        """Check CPU time, and again when all cores together could reach the limit at the earliest."""
        assert self._limits.cpu_seconds is not None
        try:
            left = self._limits.cpu_seconds - self._box.cpu_ns() / 1e9
        except (OSError, StopIteration):
            return  # the program has just ended
        if left <= 0:
            self._kill_for(RunVerdict.CPU_LIMIT)
        else:
            self._timers.append(self._loop.call_later(max(left / _CORES, _MIN_CPU_CHECK_S), self._check_cpu))

    def _kill_for(self, reason: RunVerdict) -> None:
        if not self.completed.exit_reported and self.completed.killed_for is None:
            self.completed.killed_for = reason
            if self._box.kill_program():  # its init reports the resource usage
                self._timers.append(self._loop.call_later(_EXIT_REPORT_S, self._finish))
            else:
                self._finish()

    def _finish(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def _measure(self) -> None:
        completed, group = self.completed, self._box.group
        until = self._ended_at or time.monotonic_ns()
        completed.wall_ms = (until - self.started_at) / 1e6
        completed.stdout_truncated, completed.stderr_truncated = self._truncated
        completed.stdout, completed.stderr = (
            trim_partial_character(bytes(data)) if cut else bytes(data)
            for data, cut in zip(self._outputs, self._truncated, strict=True)
        )
        if group is not None:
            completed.cpu_ms = max(0, group.cpu_ns() - self._startup_cpu_ns) / 1e6
            completed.oom_kills = group.oom_kills()
            completed.memory_peak_bytes = group.peak_bytes()
            completed.memory_source = "cgroup" if completed.memory_peak_bytes is not None else "none"
        elif self._rusage is not None:
            completed.cpu_ms, completed.memory_peak_bytes = self._rusage[0] / 1e3, self._rusage[1] << 10
            completed.memory_source = "rusage"


class RunControl:
    """Standard input and signals for an interactive run, from its request to its end."""

    def __init__(self) -> None:
        self._box: Box | None = None
        self._writer: _PipeWriter | None = None
        self._data = bytearray()  # arrived before the program started
        self._is_ended = False
        self._signals: list[int] = []
        self._room = MAX_STREAMED_BYTES

    def attach(self, box: Box, writer: _PipeWriter) -> None:
        self._box, self._writer = box, writer
        if self._data or self._is_ended:
            writer.add(bytes(self._data), end=self._is_ended)
        for number in self._signals:
            box.send_signal(number)

    def feed(self, data: bytes, *, end: bool) -> bool:
        """Add standard input. Returns False if it is more than a run may receive."""
        if self._is_ended:
            return True
        self._room -= len(data)
        if self._room < 0:
            return False
        self._is_ended = end
        if self._writer is None:
            self._data += data
        else:
            self._writer.add(data, end=end)
        return True

    def send_signal(self, number: int) -> None:
        if self._box is not None:
            self._box.send_signal(number)
        elif len(self._signals) < _MAX_EARLY_SIGNALS:
            self._signals.append(number)


async def _ready(box: Box) -> None:
    try:
        async with asyncio.timeout(SPAWN_TIMEOUT_S):
            await box.ready()
    except TimeoutError:
        raise TimeoutError(f"a box was not ready within {SPAWN_TIMEOUT_S:g} s") from None


class _PipeWriter:
    """Writes data to a pipe of the box as it drains, then closes the pipe."""

    def __init__(self, box: Box, name: str, data: bytes, *, stays_open: bool = False) -> None:
        self._box, self._name, self._data = box, name, memoryview(data)
        self._stays_open = stays_open
        self._is_waiting = False
        self.is_broken = False  # the reader closed it before all data was written
        self._write()

    def add(self, data: bytes, *, end: bool) -> None:
        """Write more. What the program does not read is dropped with the pipe."""
        self._data = memoryview(bytes(self._data) + data)
        self._stays_open = self._stays_open and not end
        if not self._is_waiting:
            self._write()

    def _write(self) -> None:
        descriptor = getattr(self._box, self._name)
        if descriptor < 0:
            return  # closed with its box, or by the program
        try:
            while self._data:
                self._data = self._data[os.write(descriptor, self._data) :]
        except BlockingIOError:
            if not self._is_waiting:
                self._is_waiting = True
                asyncio.get_running_loop().add_writer(descriptor, self._write)
            return
        except OSError:
            self.is_broken = True  # normal for input, which a program need not read; not for code
        if self._is_waiting:
            self._is_waiting = False
            asyncio.get_running_loop().remove_writer(descriptor)
        if self._stays_open and not self.is_broken:
            return
        os.close(descriptor)
        setattr(self._box, self._name, -1)


def trim_partial_character(data: bytes, before: int = 0) -> bytes:
    """Drop an incomplete UTF-8 sequence at the end. The first `before` bytes are context and not returned.

    >>> trim_partial_character("naïve".encode()[:3])
    b'na'
    >>> trim_partial_character(bytes([255, 0, 255]))
    b'\\xff\\x00\\xff'
    """
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needed = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4 if 0xF0 <= byte <= 0xF4 else 1
        if needed > back:
            data = data[:-back]
        break
    return data[before:]
