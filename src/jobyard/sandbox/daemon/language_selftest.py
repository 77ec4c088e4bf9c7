"""A language is offered when its tools answer and its own small program gives what it should."""

from __future__ import annotations

import asyncio
from pathlib import Path

from jobyard.sandbox.daemon.languages import LanguageDefinition
from jobyard.sandbox.daemon.supervisor import RunSupervisor
from jobyard.sandbox.protocol import Language, Limits, RunFinished, RunRejected, RunRequest

_VERSION_TIMEOUT_S = 10.0
_LIMITS = Limits(time_seconds=10.0, memory_mb=256)


async def test_languages(
    supervisor: RunSupervisor, definitions: dict[str, LanguageDefinition]
) -> tuple[tuple[Language, ...], dict[str, str]]:
    """What works, and why the rest does not."""
    found: list[Language] = []
    missing: dict[str, str] = {}
    for name, definition in definitions.items():
        why = supervisor.cannot(definition) or _tools_missing(definition)
        if not why:
            version = await _version(definition)
            why = await _try(supervisor, name, definition)
        if why:
            missing[name] = why
        else:
            size = supervisor.runtime.pool_size(name)
            found.append(Language(name=name, version=version, compiled=definition.compile is not None, pool=size))
    return tuple(found), missing


def _tools_missing(definition: LanguageDefinition) -> str:
    commands = [definition.version, definition.start, definition.run]
    if definition.compile is not None:
        commands.append(definition.compile.command)
    for command in commands:
        if command and command[0].startswith("/") and not Path(command[0]).exists():
            return f"{command[0]} is not installed"
    return ""


async def _version(definition: LanguageDefinition) -> str:
    process = await asyncio.create_subprocess_exec(
        *definition.version,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        cwd="/",
    )
    try:
        async with asyncio.timeout(_VERSION_TIMEOUT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return "unknown"
    return output.decode(errors="replace").strip().partition("\n")[0]


async def _try(supervisor: RunSupervisor, name: str, definition: LanguageDefinition) -> str:
    check = definition.self_test
    request = RunRequest(id=0, language=name, source=check.source.encode(), stdin=check.stdin.encode(), limits=_LIMITS)
    answer = await supervisor.run(request)
    match answer:
        case RunRejected():
            return f"its self-test was refused: {answer.message}"
        case RunFinished(stdout=stdout) if stdout == check.stdout.encode():
            return ""
        case RunFinished():
            said = (answer.stderr or answer.stdout).decode(errors="replace")[:300]
            return f"its self-test ended with {answer.verdict}: {said}"
