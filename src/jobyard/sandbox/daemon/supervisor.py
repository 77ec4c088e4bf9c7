"""Runs what is asked for: a slot, a member, the program, the answer. Knows languages and tiers, not sockets."""

from __future__ import annotations

import asyncio
import json
import logging
import marshal
import math
import time
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from jobyard.sandbox.daemon.box import SpawnFailed
from jobyard.sandbox.daemon.inside import protocol
from jobyard.sandbox.daemon.languages import LanguageDefinition
from jobyard.sandbox.daemon.program_run import BoxDied, CompletedRun, OnOutput, ProgramRun
from jobyard.sandbox.daemon.tier_runtime import EXEC, TierRuntime
from jobyard.sandbox.daemon.toolchain import Toolchain
from jobyard.sandbox.daemon.validation import problem
from jobyard.sandbox.daemon.zygote_client import ZygoteClient
from jobyard.sandbox.protocol import (
    CompileResult,
    Fault,
    File,
    Language,
    Limits,
    RunFinished,
    RunRejected,
    RunRequest,
    RunVerdict,
)

_log = logging.getLogger(__name__)
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": protocol.PROGRAM_FOLDER, "LANG": "C.UTF-8"}
_LOOK_FOR_LOSS_S = 3.0  # many namespaces take their time to die, and its descriptors go last
_MARSHAL = 2  # plain values only, and the same in every version since: members may run another Python
_COLLECT_BYTES = 16 << 20
_DEAD_IN_A_ROW = 16  # as many as a pool may have
NOT_BEGUN: Final = "the zygote was lost before the program began"
_WHILE_IT_RAN = "the zygote was lost while the program ran"


class RunFailed(Exception):
    """The platform could not run the program."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class RunSupervisor:
    def __init__(self, runtime: TierRuntime, languages: dict[str, LanguageDefinition], slots: int) -> None:
        self.runtime, self._languages = runtime, languages
        self._slots = asyncio.Semaphore(slots)
        self._versions: dict[str, str] = {}  # of the languages on offer; empty while they are tested
        self._toolchain = Toolchain(self._compile)
        self.running = 0

    def cannot(self, language: LanguageDefinition) -> str:
        """Why the tier has no use for this language; nothing when it has."""
        runtime = self.runtime
        if runtime.groups is None and language.memory != "address_space":
            return f"its memory can only be held by a control group, which tier {runtime.tier} has not got here"
        if language.kind != "python" and not runtime.has_folder:
            return f"tier {runtime.tier} runs Python only"
        return ""

    def offer(self, languages: Iterable[Language]) -> None:
        """These, and no others; keep them warm."""
        self._versions = {language.name: language.version for language in languages}
        self.runtime.fill(self.runtime.kind_of(name) for name in self._versions)

    def idle(self) -> dict[str, int]:
        return {name: self.runtime.idle(self.runtime.kind_of(name)) for name in self._versions}

    async def run(self, request: RunRequest, tell: OnOutput | None = None) -> RunFinished | RunRejected:
        """How it ended, or why it never began. Cancelled, it leaves nothing behind."""
        try:
            return await self._run(request, tell)
        except RunFailed as error:
            return RunRejected(id=request.id, fault=error.fault, message=str(error))

    async def _run(self, request: RunRequest, tell: OnOutput | None) -> RunFinished:
        language = self._languages.get(request.language)
        if language is None or (self._versions and request.language not in self._versions):
            raise RunFailed(Fault.UNKNOWN_LANGUAGE, f"no language {request.language!r} here")
        if why := problem(request):
            raise RunFailed(Fault.INTERNAL, why)
        if request.files and not self.runtime.has_folder:
            raise RunFailed(Fault.SANDBOX_UNAVAILABLE, f"tier {self.runtime.tier} has no folder to put files into")
        asked = time.monotonic()
        async with self._slots:
            built = None
            if language.compile is not None:
                built = await self._toolchain.build(language, self._versions.get(request.language, ""), request)
                if built.program is None:
                    return self._not_compiled(request, built.told)
                asked = time.monotonic()
            code = code_of(language, request, self.runtime, built.program if built else None)
            kind = self.runtime.kind_of(request.language)
            wanted = request.collect if self.runtime.has_folder else ()
            ended, setup_ms = await self.execute(
                kind, code, self._limits(request.limits, language), request.stdin, asked, tell, wanted
            )
            if not self.runtime.has_folder:
                why = f"tier {self.runtime.tier} has no folder that files could be left in"
                ended.notes = dict.fromkeys(range(len(request.collect)), why)
        return self._finished(request, ended, setup_ms, built.told if built else None)

    def _limits(self, limits: Limits, language: LanguageDefinition) -> Limits:
        """The runtime's own threads are not the program's."""
        if not language.processes:
            return limits
        return msgspec.structs.replace(limits, processes=limits.processes + language.processes)

    async def _compile(self, language: LanguageDefinition, request: RunRequest, limits: Limits) -> CompletedRun:
        how = language.compile
        assert how is not None
        files = [(language.file, request.source, 0o644), *((file.name, file.data, 0o644) for file in request.files)]
        code = pack(list(how.command), files, rlimits(limits, language, has_group=self.runtime.groups is not None))
        ended, _ = await self.execute(
            EXEC, code, limits, b"", time.monotonic(), None, (how.makes,), limits.disk_mb << 20
        )
        return ended

    def _not_compiled(self, request: RunRequest, told: CompileResult) -> RunFinished:
        return RunFinished(
            id=request.id,
            verdict=RunVerdict.COMPILE_ERROR,
            exit_code=told.exit_code,
            signal=None,
            stdout=b"",
            stderr=b"",
            stdout_truncated=False,
            stderr_truncated=False,
            execution_time_ms=0.0,
            cpu_time_ms=None,
            memory_peak_bytes=None,
            memory_source="none",
            setup_ms=0.0,
            tier=self.runtime.tier,
            compiled=told,
        )

    def _finished(
        self, request: RunRequest, ended: CompletedRun, setup_ms: float, compiled: CompileResult | None
    ) -> RunFinished:
        return RunFinished(
            id=request.id,
            verdict=ended.verdict,
            exit_code=ended.exit_code,
            signal=ended.signal,
            stdout=ended.stdout,
            stderr=ended.stderr,
            stdout_truncated=ended.stdout_truncated,
            stderr_truncated=ended.stderr_truncated,
            execution_time_ms=ended.wall_ms,
            cpu_time_ms=ended.cpu_ms,
            memory_peak_bytes=ended.memory_peak_bytes,
            memory_source=ended.memory_source,
            setup_ms=setup_ms,
            tier=self.runtime.tier,
            compiled=compiled,
            files=tuple(File(name=request.collect[index], data=data) for index, data in ended.files.items()),
            notes=tuple(f"{request.collect[index]}: {why}" for index, why in ended.notes.items()),
        )

    async def execute(
        self,
        kind: str,
        code: bytes,
        limits: Limits,
        stdin: bytes,
        asked: float,
        tell: OnOutput | None = None,
        collect: tuple[str, ...] = (),
        collect_bytes: int = _COLLECT_BYTES,
    ) -> tuple[CompletedRun, float]:
        """One member's whole life with a program; how it ended, and how long the member took to come."""
        for _ in range(_DEAD_IN_A_ROW):
            zygote = self.runtime.zygote  # it may be another one when this is over
            try:
                box = self.runtime.take(kind, limits)
            except SpawnFailed as error:
                raise await _lost(zygote, str(error), Fault.SPAWN_FAILED, NOT_BEGUN) from error
            self.running += 1
            try:
                execution = ProgramRun(box, limits, tell)
                ended = await execution.run(code, stdin, collect, collect_bytes)
            except BoxDied:
                _log.warning("a member of kind %s had died in its pool", kind)
                continue
            except SpawnFailed as error:
                raise await _lost(zygote, str(error), Fault.SPAWN_FAILED, NOT_BEGUN) from error
            except OSError as error:
                raise await _lost(zygote, str(error)) from error
            finally:
                self.running -= 1
                zygote.bury(box)
                self.runtime.refill(kind)
            if not ended.was_told and ended.killed_for is None and not ended.oom_kills:
                raise await _lost(zygote, "the member's init ended without a word")
            return ended, max(0.0, execution.began / 1e6 - asked * 1e3)
        raise RunFailed(Fault.SPAWN_FAILED, "members die before they have their code")


async def _lost(
    zygote: ZygoteClient,
    otherwise: str,
    fault: Fault = Fault.INTERNAL,
    words: str = _WHILE_IT_RAN,
) -> RunFailed:
    """The zygote's end is seen a moment after that of its members."""
    if await zygote.is_lost_within(_LOOK_FOR_LOSS_S):
        return RunFailed(Fault.ZYGOTE_LOST, words)
    return RunFailed(fault, otherwise)


def code_of(
    language: LanguageDefinition, request: RunRequest, runtime: TierRuntime, program: bytes | None = None
) -> bytes:
    """What the member reads from its pipe."""
    limits = rlimits(request.limits, language, has_group=runtime.groups is not None, has_own_uid=runtime.has_own_uid)
    files = [(file.name, file.data, 0o644) for file in request.files]
    if language.kind != "exec":
        extra = {"args": list(request.args), "file": language.file, "has_folder": runtime.has_folder}
        return pack([], files, limits, extra, request.source, as_json=language.kind == "driver")
    if program is not None and language.compile is not None:
        files.insert(0, (language.compile.makes, program, 0o755))
    else:
        files.insert(0, (language.file, request.source, 0o644))
    return pack([*language.run, *request.args], files, limits)


def rlimits(
    limits: Limits, language: LanguageDefinition, *, has_group: bool, has_own_uid: bool = True
) -> dict[str, int]:
    seconds = limits.cpu_seconds if limits.cpu_seconds is not None else limits.time_seconds * 64
    found = {
        "cpu": math.ceil(seconds) + 1,
        "files_open": limits.files_open,
        "file_bytes": limits.disk_mb << 20,
    }
    if not has_group:
        found["address_space"] = limits.memory_mb << 20
        if has_own_uid:  # or it would count everything else of this user; there is no fork, and threads need space
            found["processes"] = limits.processes + language.processes + 1  # and the init
    return found


def pack(
    argv: list[str],
    files: list[tuple[str, bytes, int]],
    limits: dict[str, int],
    extra: dict[str, Any] | None = None,
    source: bytes | None = None,
    *,
    as_json: bool = False,
) -> bytes:
    head = {
        "argv": argv,
        "env": _ENVIRONMENT,
        "files": [[name, len(data), mode] for name, data, mode in files],
        "limits": limits,
        **(extra or {}),
    }
    if source is not None:
        head["source"] = len(source)
    text = json.dumps(head).encode() if as_json else marshal.dumps(head, _MARSHAL)
    parts = [protocol.CODE_HEAD.pack(len(text)), text, *(data for _, data, _ in files)]
    return b"".join(parts if source is None else [*parts, source])
