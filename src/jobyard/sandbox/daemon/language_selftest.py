"""Language self-tests: a language is offered if its tools exist and its test program prints what it should."""

from __future__ import annotations

import asyncio
from pathlib import Path

from jobyard.sandbox.daemon.languages import LanguageDefinition
from jobyard.sandbox.daemon.supervisor import RunSupervisor
from jobyard.sandbox.protocol import Language, Limits, RunFinished, RunRejected, RunRequest

_VERSION_TIMEOUT_S = 10.0
_LIMITS = Limits(time_seconds=10.0, memory_mb=256)


async def check_language(supervisor: RunSupervisor, name: str, definition: LanguageDefinition) -> Language | str:
    """Return the language if it works, else why it does not."""
    why = supervisor.unsupported_reason(definition) or _missing_tool(definition)
    if why:
        return why
    version = await _version(definition)
    if why := await _run_self_test(supervisor, name, definition):
        return why
    step = definition.compile
    return Language(
        name=name,
        version=version,
        compiled=step is not None,
        pool=supervisor.runtime.pool_size(name),
        extensions=definition.extensions,
        own_files=definition.own_files,
        compile_options=() if step is None else step.options,
        max_compile_seconds=None if step is None else step.max_time_seconds,
        max_compile_memory_mb=None if step is None else step.max_memory_mb,
        example=definition.example,
    )


def _missing_tool(definition: LanguageDefinition) -> str:
    commands = [definition.version, definition.start, definition.run]
    if definition.compile is not None:
        commands.append(definition.compile.command)
    for command in commands:
        if command and command[0].startswith("/") and not Path(command[0]).exists():
            return f"{command[0]} is not installed"
    return ""


async def _version(definition: LanguageDefinition) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            *definition.version,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            cwd="/",
        )
    except OSError:  # runs in this language wait for its test, so it must end
        return "unknown"
    try:
        async with asyncio.timeout(_VERSION_TIMEOUT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return "unknown"
    return output.decode(errors="replace").strip().partition("\n")[0]


async def _run_self_test(supervisor: RunSupervisor, name: str, definition: LanguageDefinition) -> str:
    check = definition.self_test
    request = RunRequest(id=0, language=name, source=check.source.encode(), stdin=check.stdin.encode(), limits=_LIMITS)
    response = await supervisor.run_self_test(request)
    match response:
        case RunRejected():
            return f"cannot run its self-test: {response.message}"
        case RunFinished(stdout=stdout) if stdout == check.stdout.encode():
            return ""
        case RunFinished():
            message = (response.stderr or response.stdout).decode(errors="replace")[:300]
            return f"its self-test ended with {response.verdict}: {message}"
