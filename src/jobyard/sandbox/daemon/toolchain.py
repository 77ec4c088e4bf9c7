"""Compiled languages: the compiler runs in a member like any program; what it makes is kept, by its content."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from jobyard.sandbox.daemon.languages import CompileStep, LanguageDefinition
from jobyard.sandbox.daemon.program_run import CompletedRun
from jobyard.sandbox.protocol import CompileResult, Limits, RunRequest, RunVerdict

_KEPT_BYTES = 128 << 20
_KEPT_ENTRIES = 4096
_OUTPUT_BYTES = 64 << 10

Work = Callable[[LanguageDefinition, RunRequest, Limits], Awaitable[CompletedRun]]


@dataclass(frozen=True)
class BuildResult:
    """What came of one compilation: the program, or what the compiler said."""

    program: bytes | None
    told: CompileResult


class Toolchain:
    """A cache by content: source, other files, command and the compiler's version. The oldest unused leaves first."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._kept: OrderedDict[bytes, BuildResult] = OrderedDict()
        self._bytes = 0
        self._going: dict[bytes, asyncio.Task[BuildResult]] = {}
        self._waiting: Counter[bytes] = Counter()

    async def build(self, definition: LanguageDefinition, version: str, request: RunRequest) -> BuildResult:
        """The same thing asked for twice at a time is made once."""
        assert definition.compile is not None
        key = _key(definition.compile, version, request)
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return _again(kept)
        task = self._going.get(key)
        is_first = task is None
        if task is None:
            task = self._going[key] = asyncio.create_task(self._build(key, definition, definition.compile, request))
            task.add_done_callback(lambda done: self._forget(key, done))
        self._waiting[key] += 1
        try:
            built = await asyncio.shield(task)
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]
                self._forget(key, task)  # whoever asks for it now begins anew
                await _stop(task)
        return built if is_first else _again(built)

    def _forget(self, key: bytes, task: asyncio.Task[BuildResult]) -> None:
        if self._going.get(key) is task:
            del self._going[key]

    async def _build(
        self, key: bytes, definition: LanguageDefinition, how: CompileStep, request: RunRequest
    ) -> BuildResult:
        limits = Limits(
            time_seconds=how.time_seconds,
            memory_mb=how.memory_mb,
            processes=how.processes,
            output_bytes=_OUTPUT_BYTES,
            disk_mb=how.disk_mb,
        )
        began = time.monotonic()
        ended = await self._work(definition, request, limits)
        built = _judge(ended, (time.monotonic() - began) * 1e3)
        if ended.killed_for not in (
            RunVerdict.TIME_LIMIT,
            RunVerdict.CPU_LIMIT,
        ):  # on a quieter day it might have made it
            self._keep(key, built)
        return built

    def _keep(self, key: bytes, built: BuildResult) -> None:
        self._kept[key] = built
        self._bytes += _size(built)
        while self._bytes > _KEPT_BYTES or len(self._kept) > _KEPT_ENTRIES:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= _size(oldest)


async def _stop(task: asyncio.Task[BuildResult]) -> None:
    """Nobody waits for it any more. Who leaves keeps a slot until the compiler is gone."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])


def _judge(ended: CompletedRun, time_ms: float) -> BuildResult:
    program = ended.files.get(0) if ended.exit_code == 0 and ended.verdict is RunVerdict.OK else None
    stderr = ended.stderr
    if ended.verdict in (RunVerdict.TIME_LIMIT, RunVerdict.MEMORY_LIMIT, RunVerdict.OUTPUT_LIMIT):
        stderr += f"\nthe compiler was ended: {ended.verdict}\n".encode()
    elif program is None and ended.exit_code == 0:
        stderr += f"\nthe compiler made nothing: {ended.notes.get(0, 'no file')}\n".encode()
    code = ended.exit_code or (0 if program is not None else 1)
    told = CompileResult(exit_code=code, stdout=ended.stdout, stderr=stderr, time_ms=time_ms, cached=False)
    return BuildResult(program, told)


def _again(built: BuildResult) -> BuildResult:
    told = built.told
    return BuildResult(
        built.program,
        CompileResult(
            exit_code=told.exit_code, stdout=told.stdout, stderr=told.stderr, time_ms=told.time_ms, cached=True
        ),
    )


def _size(built: BuildResult) -> int:
    return len(built.program or b"") + len(built.told.stdout) + len(built.told.stderr) + 1024


def _key(how: CompileStep, version: str, request: RunRequest) -> bytes:
    digest = hashlib.sha256()
    parts = [version.encode(), *(part.encode() for part in how.command), request.source]
    for file in request.files:
        parts += [file.name.encode("utf-8", "surrogatepass"), file.data]
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()
