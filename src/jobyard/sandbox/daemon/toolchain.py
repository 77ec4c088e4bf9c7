"""Compilation: compilers run in a box like any program, and their output is cached by content."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from jobyard.sandbox.daemon.languages import CompileStep, LanguageDefinition
from jobyard.sandbox.daemon.program_run import CompletedRun
from jobyard.sandbox.protocol import CompileResult, Limits, RunRequest, RunVerdict

_CACHE_BYTES = 128 << 20
_CACHE_ENTRIES = 4096
_OUTPUT_BYTES = 64 << 10

RunCompiler = Callable[[LanguageDefinition, RunRequest, Limits], Awaitable[CompletedRun]]


@dataclass(frozen=True)
class BuildResult:
    """Outcome of a compilation: the program, or None and the compiler's messages."""

    program: bytes | None
    result: CompileResult


class Toolchain:
    """LRU cache of builds, keyed by scope, source, files, command and compiler version."""

    def __init__(self, run_compiler: RunCompiler) -> None:
        self._run_compiler = run_compiler
        self._cache: OrderedDict[bytes, BuildResult] = OrderedDict()
        self._bytes = 0
        self._in_progress: dict[bytes, asyncio.Task[BuildResult]] = {}
        self._waiters: Counter[bytes] = Counter()

    async def build(self, definition: LanguageDefinition, version: str, request: RunRequest) -> BuildResult:
        """Build, or join a build of the same content that is in progress."""
        assert definition.compile is not None
        key = _key(definition.compile, version, request)
        began = time.monotonic()
        if (cached := self._cache.get(key)) is not None:
            self._cache.move_to_end(key)
            return _as_cached(cached, began)
        task = self._in_progress.get(key)
        is_first = task is None
        if task is None:
            task = self._in_progress[key] = asyncio.create_task(
                self._build(key, definition, definition.compile, request)
            )
            task.add_done_callback(lambda done: self._forget(key, done))
        self._waiters[key] += 1
        try:
            built = await asyncio.shield(task)
        finally:
            self._waiters[key] -= 1
            if not self._waiters[key]:
                del self._waiters[key]
                self._forget(key, task)  # a request that arrives from now on starts a new build
                await _cancel(task)
        return built if is_first else _as_cached(built, began)

    def _forget(self, key: bytes, task: asyncio.Task[BuildResult]) -> None:
        if self._in_progress.get(key) is task:
            del self._in_progress[key]

    async def _build(
        self, key: bytes, definition: LanguageDefinition, step: CompileStep, request: RunRequest
    ) -> BuildResult:
        given = request.compile_limits
        limits = Limits(
            time_seconds=given.time_seconds or step.time_seconds,
            memory_mb=given.memory_mb or step.memory_mb,
            processes=step.processes,
            output_bytes=_OUTPUT_BYTES,
            disk_mb=step.disk_mb,
        )
        began = time.monotonic()
        ended = await self._run_compiler(definition, request, limits)
        built = _build_result(ended, (time.monotonic() - began) * 1e3)
        if ended.killed_for not in (RunVerdict.TIME_LIMIT, RunVerdict.CPU_LIMIT):  # it may succeed when less busy
            self._store(key, built)
        return built

    def _store(self, key: bytes, built: BuildResult) -> None:
        self._cache[key] = built
        self._bytes += _size(built)
        while self._bytes > _CACHE_BYTES or len(self._cache) > _CACHE_ENTRIES:
            _, oldest = self._cache.popitem(last=False)
            self._bytes -= _size(oldest)


async def _cancel(task: asyncio.Task[BuildResult]) -> None:
    """Cancel a build without waiters. The caller keeps its slot until the compiler has ended."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])


def _build_result(ended: CompletedRun, time_ms: float) -> BuildResult:
    program = ended.files.get(0) if ended.exit_code == 0 and ended.verdict is RunVerdict.OK else None
    stderr = ended.stderr
    if ended.verdict in (RunVerdict.TIME_LIMIT, RunVerdict.MEMORY_LIMIT, RunVerdict.OUTPUT_LIMIT):
        stderr += f"\nthe compiler was killed: {ended.verdict}\n".encode()
    elif program is None and ended.exit_code == 0:
        stderr += f"\nthe compiler produced no program: {ended.notes.get(0, 'no file')}\n".encode()
    code = ended.exit_code or (0 if program is not None else 1)
    result = CompileResult(exit_code=code, stdout=ended.stdout, stderr=stderr, time_ms=time_ms, cached=False)
    return BuildResult(program, result)


def _as_cached(built: BuildResult, began: float) -> BuildResult:
    time_ms = (time.monotonic() - began) * 1e3
    return BuildResult(built.program, msgspec.structs.replace(built.result, cached=True, time_ms=time_ms))


def _size(built: BuildResult) -> int:
    return len(built.program or b"") + len(built.result.stdout) + len(built.result.stderr) + 1024


def compile_command(step: CompileStep, request: RunRequest) -> list[str]:
    """The command for this request: with its options, and its files that are source files."""
    units = [file.name for file in request.files if file.name.endswith(step.units)] if step.units else []
    words: list[str] = []
    for word in step.command:
        if word == "{options}":
            words += request.compile_options
        elif word == "{units}":
            words += [f"./{name}" for name in units]  # never an option or a response file, whatever the name is
        else:
            words.append(word)
    return words


def _key(step: CompileStep, version: str, request: RunRequest) -> bytes:
    digest = hashlib.sha256()
    scope = request.scope.encode("utf-8", "surrogatepass")
    parts = [scope, version.encode(), *(part.encode() for part in compile_command(step, request)), request.source]
    parts.append(
        repr(request.compile_limits).encode()
    )  # a compiler that failed for want of memory may succeed with more
    for file in request.files:
        parts += [file.name.encode("utf-8", "surrogatepass"), file.data]
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()
