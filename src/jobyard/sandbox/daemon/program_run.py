"""One program in one member, from the code handed over to its end: bytes in, bytes out, limits, what ended it."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from jobyard.sandbox.daemon.box import Box, SpawnFailed
from jobyard.sandbox.daemon.collect import collect, folder_of
from jobyard.sandbox.daemon.inside import protocol
from jobyard.sandbox.daemon.zygote_client import SPAWN_TIMEOUT_S
from jobyard.sandbox.protocol import Limits, RunVerdict

OnOutput = Callable[[int, bytes], None]

_CORES = os.cpu_count() or 1
_CPU_LOOK_S = 0.001  # no oftener than this
_LAST_WORDS_S = 0.05
_SIGXCPU = 24


@dataclass(kw_only=True)
class CompletedRun:
    """What is known of a run when it is over."""

    exit_code: int = 137
    signal: int | None = 9
    was_told: bool = False  # by its init; otherwise it was killed together with that
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
    """The member was gone before it had its code: nothing of the program has run."""


class ProgramRun:
    """Listens to the member while it is the program."""

    def __init__(self, box: Box, limits: Limits, tell: OnOutput | None = None) -> None:
        self._box, self._limits, self._tell = box, limits, tell
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._outputs = (bytearray(), bytearray())
        self._truncated = [False, False]
        self._timers: list[asyncio.TimerHandle] = []
        self.began = self._ended = 0  # in ns, monotonic
        self._used_before_ns = 0  # by the member itself, since the group began to count
        self._rusage: tuple[int, int] | None = None
        self.ended = CompletedRun()

    async def run(self, code: bytes, stdin: bytes, wanted: tuple[str, ...] = (), most_bytes: int = 0) -> CompletedRun:
        """To its end. With names of files, those are brought, too. Raises SpawnFailed, OSError."""
        box = self._box
        box.listener = self
        if box.is_lost:
            self.on_lost()
        is_early = not box.is_spare and not wanted  # it is being made for this run: it will find its code waiting
        try:
            if box.group is not None:
                box.group.limit(self._limits.memory_mb << 20, self._limits.processes)
                box.group.start()
            if is_early:
                _Feeder(box, "code", code)
            if not box.is_spare:
                async with asyncio.timeout(SPAWN_TIMEOUT_S):
                    await box.ready()
        except (SpawnFailed, OSError) as error:
            if not self._is_too_little(error):
                raise
            await box.gone()
            self.ended.oom_kills = 1
            return self.ended
        folder = folder_of(box.program_pidfd) if wanted else -1
        try:
            if box.group is not None and not is_early:
                box.group.start()
            self._used_before_ns = box.used_before * 1000 if is_early else 0
            self.began = box.ready_at if is_early else time.monotonic_ns()
            self._start_timers()
            feeder = None if is_early else _Feeder(box, "code", code)
            _Feeder(box, "stdin", stdin)
            await self._until_gone()
            box.drain()
            self._measure()
            if feeder is not None and feeder.is_refused and not self.ended.oom_kills and not self.ended.killed_for:
                raise BoxDied("it was gone before it had its code")
            if wanted:
                found = collect(folder, wanted, most_bytes)
                self.ended.files, self.ended.notes = found.files, found.notes
        finally:
            if folder >= 0:
                os.close(folder)
        return self.ended

    def _is_too_little(self, error: Exception) -> bool:
        """The language itself needs more than the program's limit, ahead of its first line."""
        group = self._box.group
        if group is None:
            return False
        return (isinstance(error, OSError) and error.errno == errno.EBUSY) or group.oom_kills() > 0

    async def _until_gone(self) -> None:
        try:
            await self._over
        finally:
            for timer in self._timers:
                timer.cancel()
            self._box.kill()
        if not self.ended.was_told or not self._box.is_alone():
            await self._box.gone()

    # What the member says

    def on_output(self, which: int, data: bytes) -> None:
        if self._truncated[which - 1]:
            return  # the cut may lie before the limit, between two characters
        kept, most = self._outputs[which - 1], self._limits.output_bytes
        room = most - len(kept)
        if len(data) > room:
            data = whole(bytes(kept[-3:]) + data[:room], len(kept[-3:])) if room else b""
            self._truncated[which - 1] = True
            self._end(RunVerdict.OUTPUT_LIMIT)
        if data:
            kept += data
            if self._tell is not None:
                self._tell(which, data)

    def on_status(self, what: bytes, body: bytes) -> None:
        if what == protocol.EXIT:
            code, number, used, peak, self._ended = protocol.EXIT_BODY.unpack(body)
            self.ended.exit_code, self.ended.signal, self.ended.was_told = code, number or None, True
            self._rusage = (used - self._box.used_before, peak)
            self._finish()

    def on_lost(self) -> None:
        self._finish()

    # Its end

    def cancel(self) -> None:
        self._finish()

    def _start_timers(self) -> None:
        limits = self._limits
        self._timers.append(self._loop.call_later(limits.time_seconds, self._end, RunVerdict.TIME_LIMIT))
        if limits.cpu_seconds is not None:
            self._look_at_cpu()

    def _look_at_cpu(self) -> None:
        """Look again when the limit could be reached at the earliest, with every core at work."""
        assert self._limits.cpu_seconds is not None
        try:
            left = self._limits.cpu_seconds - self._box.cpu_ns() / 1e9
        except (OSError, StopIteration):
            return  # it has just ended
        if left <= 0:
            self._end(RunVerdict.CPU_LIMIT)
        else:
            self._timers.append(self._loop.call_later(max(left / _CORES, _CPU_LOOK_S), self._look_at_cpu))

    def _end(self, reason: RunVerdict) -> None:
        if not self.ended.was_told and self.ended.killed_for is None:
            self.ended.killed_for = reason
            if self._box.end_program():  # its init tells what it had used, if it is quick
                self._timers.append(self._loop.call_later(_LAST_WORDS_S, self._finish))
            else:
                self._finish()

    def _finish(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def _measure(self) -> None:
        ended, group = self.ended, self._box.group
        until = self._ended or time.monotonic_ns()
        ended.wall_ms = (until - self.began) / 1e6
        ended.stdout_truncated, ended.stderr_truncated = self._truncated
        ended.stdout, ended.stderr = (
            whole(bytes(data)) if cut else bytes(data) for data, cut in zip(self._outputs, self._truncated, strict=True)
        )
        if group is not None:
            ended.cpu_ms = max(0, group.cpu_ns() - self._used_before_ns) / 1e6
            ended.oom_kills = group.oom_kills()
            ended.memory_peak_bytes = group.peak_bytes()
            ended.memory_source = "cgroup" if ended.memory_peak_bytes is not None else "none"
        elif self._rusage is not None:
            ended.cpu_ms, ended.memory_peak_bytes = self._rusage[0] / 1e3, self._rusage[1] << 10
            ended.memory_source = "rusage"


class _Feeder:
    """Writes to one of the member's pipes what fits, and the rest whenever there is room; then closes it."""

    def __init__(self, box: Box, name: str, data: bytes) -> None:
        self._box, self._name, self._data = box, name, memoryview(data)
        self._waits = False
        self.is_refused = False  # nobody is there to read it, or not all of it
        self._write()

    def _write(self) -> None:
        descriptor = getattr(self._box, self._name)
        try:
            while self._data:
                self._data = self._data[os.write(descriptor, self._data) :]
        except BlockingIOError:
            if not self._waits:
                self._waits = True
                asyncio.get_running_loop().add_writer(descriptor, self._write)
            return
        except OSError:
            self.is_refused = True  # the program may not want its input; its code it does
        if self._waits:
            asyncio.get_running_loop().remove_writer(descriptor)
        os.close(descriptor)
        setattr(self._box, self._name, -1)


def whole(data: bytes, before: int = 0) -> bytes:
    """Without a UTF-8 sequence that its end would cut in two; the first bytes only help to see it.

    >>> whole("naïve".encode()[:3])
    b'na'
    >>> whole(bytes([255, 0, 255]))
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
