"""Supervisor of runs: assigns slots and boxes, compiles, runs, reports. Knows languages and tiers, not sockets."""

from __future__ import annotations

import asyncio
import json
import logging
import marshal
import math
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from jobyard.sandbox import protocol as p
from jobyard.sandbox.daemon.box import SpawnFailed
from jobyard.sandbox.daemon.inside import protocol as wire
from jobyard.sandbox.daemon.languages import LanguageDefinition
from jobyard.sandbox.daemon.program_run import BoxDied, CompletedRun, OnOutput, ProgramRun, RunControl
from jobyard.sandbox.daemon.tier_runtime import EXEC, TierRuntime
from jobyard.sandbox.daemon.toolchain import Toolchain, compile_command
from jobyard.sandbox.daemon.validation import find_problem
from jobyard.sandbox.daemon.zygote_client import ZygoteClient

_log = logging.getLogger(__name__)
# A zygote with many namespaces dies slowly and closes its descriptors last. With less time, its loss would be reported
# as an internal fault.
_LOSS_TIMEOUT_S = 3.0
_MARSHAL = 2  # plain values only, in a format all versions share: boxes may run another Python
_COLLECT_BYTES = 16 << 20
_MAX_DEAD_BOXES = 16  # enough to drain a pool whose boxes all died


class RunFailed(Exception):
    def __init__(self, fault: p.Fault, message: str, *, may_have_run: bool = False) -> None:
        super().__init__(message)
        self.fault, self.may_have_run = fault, may_have_run


class RunSupervisor:
    def __init__(self, runtime: TierRuntime, languages: dict[str, LanguageDefinition], slots: int) -> None:
        self.runtime, self._languages = runtime, languages
        self._slots = asyncio.Semaphore(slots)
        self._versions: dict[str, str] = {}  # of the offered languages; empty until there are any
        self._being_checked = ""  # the language whose self-test runs
        self._toolchain = Toolchain(self._compile)
        self.running = 0

    def unsupported_reason(self, language: LanguageDefinition) -> str:
        """Return why the tier cannot run this language, or an empty string."""
        runtime = self.runtime
        if runtime.groups is None and language.memory != "address_space":
            return f"its memory can be limited only by a cgroup, and tier {runtime.tier} has none here"
        if language.kind != "python" and not runtime.has_folder:
            return f"tier {runtime.tier} runs Python only"
        return ""

    def offer(self, languages: Iterable[p.Language]) -> None:
        """Offer these languages only, and keep them warm."""
        self._versions = {language.name: language.version for language in languages}
        self.runtime.keep_warm(self.runtime.kind_of(name) for name in self._versions)

    async def run_self_test(self, request: p.RunRequest) -> p.RunFinished | p.RunRejected:
        """Run a program in a language that is not offered yet."""
        self._being_checked = request.language
        try:
            return await self.run(request)
        finally:
            self._being_checked = ""

    def idle(self) -> dict[str, int]:
        return {name: self.runtime.idle(self.runtime.kind_of(name)) for name in self._versions}

    async def run(
        self, request: p.RunRequest, on_output: OnOutput | None = None, control: RunControl | None = None
    ) -> p.RunFinished | p.RunRejected:
        """Run a program. On cancellation it is killed and leaves nothing behind."""
        try:
            return await self._run(request, on_output, control)
        except RunFailed as error:
            return p.RunRejected(id=request.id, fault=error.fault, message=str(error), may_have_run=error.may_have_run)

    async def _run(
        self, request: p.RunRequest, on_output: OnOutput | None, control: RunControl | None
    ) -> p.RunFinished:
        language = self._languages.get(request.language)
        is_offered = not self._versions or request.language in (*self._versions, self._being_checked)
        if language is None or not is_offered:
            raise RunFailed(p.Fault.UNKNOWN_LANGUAGE, f"language {request.language!r} is not offered here")
        if why := find_problem(request):
            raise RunFailed(p.Fault.INTERNAL, why)
        if why := find_unsupported(request, language):
            raise RunFailed(p.Fault.UNSUPPORTED, why)
        if request.files and not self.runtime.has_folder:
            raise RunFailed(p.Fault.UNSUPPORTED, f"tier {self.runtime.tier} has no folder for files")
        requested_at = time.monotonic()
        async with self._slots:
            built = None
            if language.compile is not None:
                built = await self._toolchain.build(language, self._versions.get(request.language, ""), request)
                if built.program is None:
                    return self._not_compiled(request, built.result)
                requested_at = time.monotonic()
            code = encode_code(language, request, self.runtime, built.program if built else None)
            kind = EXEC if runs_by_command(language, request) else self.runtime.kind_of(request.language)
            collect = request.collect if self.runtime.has_folder else ()
            completed, setup_ms = await self.run_in_box(
                kind,
                code,
                self._limits(request.limits, language),
                request.stdin,
                requested_at,
                on_output,
                collect,
                control=control if request.interactive else None,
            )
            if not self.runtime.has_folder:
                why = f"tier {self.runtime.tier} has no folder for files"
                completed.notes = dict.fromkeys(range(len(request.collect)), why)
        return self._finished(request, language, completed, setup_ms, built.result if built else None)

    def _limits(self, limits: p.Limits, language: LanguageDefinition) -> p.Limits:
        """Add the language runtime's own threads to the process limit."""
        if not language.processes:
            return limits
        return msgspec.structs.replace(limits, processes=limits.processes + language.processes)

    async def _compile(self, language: LanguageDefinition, request: p.RunRequest, limits: p.Limits) -> CompletedRun:
        step = language.compile
        assert step is not None
        files = [(language.file, request.source, 0o644), *((file.name, file.data, 0o644) for file in request.files)]
        bounds = rlimits(limits, language, has_group=self.runtime.groups is not None)
        code = pack(compile_command(step, request), files, bounds, environment=language.environment)
        completed, _ = await self.run_in_box(
            EXEC, code, limits, b"", time.monotonic(), None, (step.makes,), limits.disk_mb << 20
        )
        return completed

    def _not_compiled(self, request: p.RunRequest, result: p.CompileResult) -> p.RunFinished:
        verdict, tier = p.RunVerdict.COMPILE_ERROR, self.runtime.tier
        return p.RunFinished(id=request.id, verdict=verdict, exit_code=result.exit_code, tier=tier, compiled=result)

    def _finished(
        self,
        request: p.RunRequest,
        language: LanguageDefinition,
        completed: CompletedRun,
        setup_ms: float,
        compiled: p.CompileResult | None,
    ) -> p.RunFinished:
        return p.RunFinished(
            id=request.id,
            verdict=language.verdict_of(completed.verdict, completed.exit_code, completed.stderr),
            exit_code=completed.exit_code,
            signal=completed.signal,
            crash=language.crash_report(completed.exit_code, completed.stderr),
            stdout=completed.stdout,
            stderr=completed.stderr,
            stdout_truncated=completed.stdout_truncated,
            stderr_truncated=completed.stderr_truncated,
            execution_time_ms=completed.wall_ms,
            cpu_time_ms=completed.cpu_ms,
            memory_peak_bytes=completed.memory_peak_bytes,
            memory_source=completed.memory_source,
            setup_ms=setup_ms,
            tier=self.runtime.tier,
            compiled=compiled,
            files=tuple(p.File(name=request.collect[index], data=data) for index, data in completed.files.items()),
            notes=tuple(f"{request.collect[index]}: {why}" for index, why in completed.notes.items()),
        )

    async def run_in_box(
        self,
        kind: str,
        code: bytes,
        limits: p.Limits,
        stdin: bytes,
        requested_at: float,
        on_output: OnOutput | None = None,
        collect: tuple[str, ...] = (),
        collect_bytes: int = _COLLECT_BYTES,
        control: RunControl | None = None,
    ) -> tuple[CompletedRun, float]:
        """Run code in a box; also return how long the box took to be ready, in ms."""
        for _ in range(_MAX_DEAD_BOXES):
            zygote = self.runtime.zygote  # self.runtime may change during the run
            try:
                box = self.runtime.take(kind, limits)
            except SpawnFailed as error:
                raise await _lost(zygote, RunFailed(p.Fault.SPAWN_FAILED, str(error))) from error
            self.running += 1
            try:
                run = ProgramRun(box, limits, on_output)
                completed = await run.run(code, stdin, collect, collect_bytes, control)
            except BoxDied:
                _log.warning("a box of kind %s died in its pool", kind)
                continue
            except SpawnFailed as error:
                raise await _lost(zygote, RunFailed(p.Fault.SPAWN_FAILED, str(error))) from error
            except OSError as error:
                raise await _lost(zygote, RunFailed(p.Fault.INTERNAL, str(error), may_have_run=True)) from error
            finally:
                self.running -= 1
                zygote.dispose(box)
                self.runtime.refill(kind)
            if not completed.exit_reported and completed.killed_for is None and not completed.oom_kills:
                raise await _lost(
                    zygote,
                    RunFailed(p.Fault.INTERNAL, "the init of the box exited without a report", may_have_run=True),
                )
            return completed, max(0.0, run.started_at / 1e6 - requested_at * 1e3)
        raise RunFailed(p.Fault.SPAWN_FAILED, "boxes die before they receive their code")


async def _lost(zygote: ZygoteClient, otherwise: RunFailed) -> RunFailed:
    """Attribute a failure to the zygote if it is lost, which is noticed a moment after the loss of its boxes."""
    if await zygote.is_lost_within(_LOSS_TIMEOUT_S):
        when = "while the program ran" if otherwise.may_have_run else "before the program started"
        return RunFailed(p.Fault.ZYGOTE_LOST, f"the zygote was lost {when}", may_have_run=otherwise.may_have_run)
    return otherwise


def encode_code(
    language: LanguageDefinition, request: p.RunRequest, runtime: TierRuntime, program: bytes | None = None
) -> bytes:
    """Encode what the box reads from its code pipe."""
    limits = rlimits(request.limits, language, has_group=runtime.groups is not None, has_own_uid=runtime.has_own_uid)
    files = [(file.name, file.data, 0o644) for file in request.files]
    if language.kind != "exec" and not runs_by_command(language, request):
        extra = {"args": list(request.args), "file": language.file, "has_folder": runtime.has_folder}
        extra["merge_stderr"] = request.merge_stderr
        return pack([], files, limits, extra, request.source, as_json=language.kind == "driver")
    if program is not None and language.compile is not None:
        files.insert(0, (language.compile.makes, program, 0o755))
    else:
        files.insert(0, (language.file, request.source, 0o644))
    command = [word.replace("{memory_mb}", str(request.limits.memory_mb)) for word in language.run]
    extra = {"merge_stderr": request.merge_stderr}
    return pack([*command, *request.args], files, limits, extra, environment=language.environment)


def runs_by_command(language: LanguageDefinition, request: p.RunRequest) -> bool:
    """Whether the language's driver cannot run this: a started runtime cannot exchange its stderr."""
    return request.merge_stderr and language.kind == "driver"


def find_unsupported(request: p.RunRequest, language: LanguageDefinition) -> str:
    """Return what the language does not allow in the request, or an empty string."""
    taken = {file.name.partition("/")[0] for file in request.files} & set(language.own_files)
    if taken:
        return f"files: {min(taken)!r} is reserved for the program itself"
    if runs_by_command(language, request) and not language.run:
        return f"{request.language} cannot merge stderr into stdout"
    step = language.compile
    if step is None:
        return f"{request.language} has no compiler options" if request.compile_options else ""
    if (option := step.forbidden_option(request.compile_options)) is not None:
        return f"compiler option {option!r} is not allowed"
    given = request.compile_limits
    if given.time_seconds is not None and not 0 < given.time_seconds <= step.max_time_seconds:
        return f"the compiler may run for at most {step.max_time_seconds:g} s"
    if given.memory_mb is not None and not 4 <= given.memory_mb <= step.max_memory_mb:
        return f"the compiler may use at most {step.max_memory_mb} MB"
    return ""


def rlimits(
    limits: p.Limits, language: LanguageDefinition, *, has_group: bool, has_own_uid: bool = True
) -> dict[str, int]:
    seconds = limits.cpu_seconds if limits.cpu_seconds is not None else limits.time_seconds * 64
    found = {
        "cpu": math.ceil(seconds) + 1,
        "files_open": limits.files_open + language.files_open,
        "file_bytes": limits.disk_mb << 20,
    }
    if not has_group:
        found["address_space"] = limits.memory_mb << 20
        if has_own_uid:  # RLIMIT_NPROC counts all processes of the user, so it needs a user of its own
            found["processes"] = limits.processes + language.processes + 1  # for the init
    return found


def pack(
    argv: list[str],
    files: list[tuple[str, bytes, int]],
    limits: dict[str, int],
    extra: dict[str, Any] | None = None,
    source: bytes | None = None,
    *,
    as_json: bool = False,
    environment: dict[str, str] | None = None,
) -> bytes:
    head = {
        "argv": argv,
        "env": {**wire.ENVIRONMENT, **(environment or {})},
        "files": [[name, len(data), mode] for name, data, mode in files],
        "limits": limits,
        **(extra or {}),
    }
    if source is not None:
        head["source"] = len(source)
    text = json.dumps(head).encode() if as_json else marshal.dumps(head, _MARSHAL)
    parts = [wire.CODE_HEAD.pack(len(text)), text, *(data for _, data, _ in files)]
    return b"".join(parts if source is None else [*parts, source])
