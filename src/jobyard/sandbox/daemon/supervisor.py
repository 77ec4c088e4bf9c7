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

from jobyard.sandbox.daemon.execution import DiedIdle, Ended, Execution, Tell
from jobyard.sandbox.daemon.inside import protocol
from jobyard.sandbox.daemon.languages import Definition
from jobyard.sandbox.daemon.member import SpawnFailed
from jobyard.sandbox.daemon.nursery import Nursery
from jobyard.sandbox.daemon.place import EXEC, Place
from jobyard.sandbox.daemon.requests import problem
from jobyard.sandbox.daemon.toolchain import Toolchain
from jobyard.sandbox.protocol import Compiled, Fault, File, Finished, Language, Limits, Refused, Run, Verdict

_log = logging.getLogger(__name__)
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": protocol.PROGRAM_FOLDER, "LANG": "C.UTF-8"}
_LOOK_FOR_LOSS_S = 3.0  # many namespaces take their time to die, and its descriptors go last
_MARSHAL = 2  # plain values only, and the same in every version since: members may run another Python
_COLLECT_BYTES = 16 << 20
_DEAD_IN_A_ROW = 16  # as many as a pool may have
NOT_BEGUN: Final = "the zygote was lost before the program began"
_WHILE_IT_RAN = "the zygote was lost while the program ran"


class Fails(Exception):
    """The platform could not run the program."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class Supervisor:
    def __init__(self, place: Place, languages: dict[str, Definition], slots: int) -> None:
        self.place, self._languages = place, languages
        self._slots = asyncio.Semaphore(slots)
        self._versions: dict[str, str] = {}  # of the languages on offer; empty while they are tested
        self._toolchain = Toolchain(self._compile)
        self.running = 0

    def cannot(self, language: Definition) -> str:
        """Why the tier has no use for this language; nothing when it has."""
        place = self.place
        if place.groups is None and language.memory != "address_space":
            return f"its memory can only be held by a control group, which tier {place.tier} has not got here"
        if language.kind != "python" and not place.has_folder:
            return f"tier {place.tier} runs Python only"
        return ""

    def offer(self, languages: Iterable[Language]) -> None:
        """These, and no others; keep them warm."""
        self._versions = {language.name: language.version for language in languages}
        self.place.fill(self.place.kind_of(name) for name in self._versions)

    def idle(self) -> dict[str, int]:
        return {name: self.place.idle(self.place.kind_of(name)) for name in self._versions}

    async def run(self, request: Run, tell: Tell | None = None) -> Finished | Refused:
        """How it ended, or why it never began. Cancelled, it leaves nothing behind."""
        try:
            return await self._run(request, tell)
        except Fails as error:
            return Refused(id=request.id, fault=error.fault, message=str(error))

    async def _run(self, request: Run, tell: Tell | None) -> Finished:
        language = self._languages.get(request.language)
        if language is None or (self._versions and request.language not in self._versions):
            raise Fails(Fault.UNKNOWN_LANGUAGE, f"no language {request.language!r} here")
        if why := problem(request):
            raise Fails(Fault.INTERNAL, why)
        if request.files and not self.place.has_folder:
            raise Fails(Fault.SANDBOX_UNAVAILABLE, f"tier {self.place.tier} has no folder to put files into")
        asked = time.monotonic()
        async with self._slots:
            built = None
            if language.compile is not None:
                built = await self._toolchain.build(language, self._versions.get(request.language, ""), request)
                if built.program is None:
                    return self._not_compiled(request, built.told)
                asked = time.monotonic()
            code = code_of(language, request, self.place, built.program if built else None)
            kind = self.place.kind_of(request.language)
            wanted = request.collect if self.place.has_folder else ()
            ended, setup_ms = await self.execute(
                kind, code, self._limits(request.limits, language), request.stdin, asked, tell, wanted
            )
            if not self.place.has_folder:
                why = f"tier {self.place.tier} has no folder that files could be left in"
                ended.notes = dict.fromkeys(range(len(request.collect)), why)
        return self._finished(request, ended, setup_ms, built.told if built else None)

    def _limits(self, limits: Limits, language: Definition) -> Limits:
        """The runtime's own threads are not the program's."""
        if not language.processes:
            return limits
        return msgspec.structs.replace(limits, processes=limits.processes + language.processes)

    async def _compile(self, language: Definition, request: Run, limits: Limits) -> Ended:
        how = language.compile
        assert how is not None
        files = [(language.file, request.source, 0o644), *((file.name, file.data, 0o644) for file in request.files)]
        code = pack(list(how.command), files, rlimits(limits, language, has_group=self.place.groups is not None))
        ended, _ = await self.execute(
            EXEC, code, limits, b"", time.monotonic(), None, (how.makes,), limits.disk_mb << 20
        )
        return ended

    def _not_compiled(self, request: Run, told: Compiled) -> Finished:
        return Finished(
            id=request.id,
            verdict=Verdict.COMPILE_ERROR,
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
            tier=self.place.tier,
            compiled=told,
        )

    def _finished(self, request: Run, ended: Ended, setup_ms: float, compiled: Compiled | None) -> Finished:
        return Finished(
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
            tier=self.place.tier,
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
        tell: Tell | None = None,
        collect: tuple[str, ...] = (),
        collect_bytes: int = _COLLECT_BYTES,
    ) -> tuple[Ended, float]:
        """One member's whole life with a program; how it ended, and how long the member took to come."""
        for _ in range(_DEAD_IN_A_ROW):
            nursery = self.place.nursery  # it may be another one when this is over
            try:
                member = self.place.take(kind, limits)
            except SpawnFailed as error:
                raise await _lost(nursery, str(error), Fault.SPAWN_FAILED, NOT_BEGUN) from error
            self.running += 1
            try:
                execution = Execution(member, limits, tell)
                ended = await execution.run(code, stdin, collect, collect_bytes)
            except DiedIdle:
                _log.warning("a member of kind %s had died in its pool", kind)
                continue
            except SpawnFailed as error:
                raise await _lost(nursery, str(error), Fault.SPAWN_FAILED, NOT_BEGUN) from error
            except OSError as error:
                raise await _lost(nursery, str(error)) from error
            finally:
                self.running -= 1
                nursery.bury(member)
                self.place.refill(kind)
            if not ended.was_told and ended.killed_for is None and not ended.oom_kills:
                raise await _lost(nursery, "the member's init ended without a word")
            return ended, max(0.0, execution.began / 1e6 - asked * 1e3)
        raise Fails(Fault.SPAWN_FAILED, "members die before they have their code")


async def _lost(
    nursery: Nursery,
    otherwise: str,
    fault: Fault = Fault.INTERNAL,
    words: str = _WHILE_IT_RAN,
) -> Fails:
    """The zygote's end is seen a moment after that of its members."""
    if await nursery.is_lost_within(_LOOK_FOR_LOSS_S):
        return Fails(Fault.ZYGOTE_LOST, words)
    return Fails(fault, otherwise)


def code_of(language: Definition, request: Run, place: Place, program: bytes | None = None) -> bytes:
    """What the member reads from its pipe."""
    limits = rlimits(request.limits, language, has_group=place.groups is not None, has_own_uid=place.has_own_uid)
    files = [(file.name, file.data, 0o644) for file in request.files]
    if language.kind != "exec":
        extra = {"args": list(request.args), "file": language.file, "has_folder": place.has_folder}
        return pack([], files, limits, extra, request.source, as_json=language.kind == "driver")
    if program is not None and language.compile is not None:
        files.insert(0, (language.compile.makes, program, 0o755))
    else:
        files.insert(0, (language.file, request.source, 0o644))
    return pack([*language.run, *request.args], files, limits)


def rlimits(limits: Limits, language: Definition, *, has_group: bool, has_own_uid: bool = True) -> dict[str, int]:
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
