"""`jobyard run`: run a program from a file in the sandbox, locally or through a server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import click
import msgspec

from jobyard.api.schemas.execute import ExecuteRequest, FileRequest, LimitsRequest
from jobyard.app.sandbox import DaemonProcess
from jobyard.cli.session import Session, async_command
from jobyard.config.sections import SandboxSection
from jobyard.domain.text import visible
from jobyard.errors import BadInput, ConfigurationError, JobFailed, JobyardError, did_you_mean
from jobyard.executors.sandbox.bounds import check, file_name_problem
from jobyard.executors.sandbox.client import SandboxClient, SandboxFault
from jobyard.executors.sandbox.program import Program
from jobyard.executors.sandbox.result import run_result
from jobyard.sandbox.daemon.languages import BadLanguages, LanguageDefinition, load
from jobyard.sandbox.protocol import Fault, File, Limits, RunFinished, RunVerdict

USUAL = Limits()
# A new daemon runs its self-test of languages before it accepts a program.
START_SECONDS = 60.0
# As `docker run`: 125 if the program could not be run; 126 if it did not compile.
NOT_RUN, NOT_COMPILED = 125, 126
Write: TypeAlias = Callable[[int, bytes], None]


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--language", metavar="NAME", help="The language.  [default: by file extension]")
@click.option(
    "--time", "time_seconds", type=float, default=USUAL.time_seconds, show_default=True, help="Time limit in seconds."
)
@click.option("--cpu", "cpu_seconds", type=float, help="CPU time limit in seconds.  [default: --time]")
@click.option("--memory", "memory_mb", type=int, default=USUAL.memory_mb, show_default=True, help="Memory limit in MB.")
@click.option(
    "--processes", type=int, default=USUAL.processes, show_default=True, help="Maximum processes and threads."
)
@click.option(
    "--output", "output_bytes", type=int, default=USUAL.output_bytes, show_default=True, help="Maximum output in bytes."
)
@click.option("--disk", "disk_mb", type=int, default=USUAL.disk_mb, show_default=True, help="Disk limit in MB.")
@click.option(
    "--file", "files", multiple=True, metavar="PATH", help="Copy this file into the program's folder; repeatable."
)
@click.option("--collect", multiple=True, metavar="NAME", help="Copy this file back to the current folder.")
@async_command
async def run(
    session: Session,
    /,
    file: Path,
    args: tuple[str, ...],
    language: str | None,
    files: tuple[str, ...],
    collect: tuple[str, ...],
    **limits: Any,
) -> None:
    """Run a program in the sandbox.

    Locally, or on the server of --server. It reads the standard input of this command, and its output is shown as it
    comes. Arguments after FILE are passed to the program. The exit code is that of the program, or 128 plus the number
    of the signal that ended it; 126 if it did not compile, 125 if it could not run. A summary is printed to stderr.

    \b
    Example:
      jobyard run solution.py < input.txt
      jobyard --server http://127.0.0.1:8080 run --time 10 --memory 256 main.cpp
    """
    show = discard if session.as_json else write
    signals = cancel_on_signals()
    try:
        program = Program(
            language=language or language_of(file, session.configuration.sandbox),
            source=text_of(file),
            inputs=(standard_input(),),
            args=args,
            files=tuple(map(file_of, files)),
            collect=collect,
            limits=Limits(**limits),
        )
        if session.server is not None:
            result = await run_remotely(session, program, show)
        else:
            result = await run_locally(session.configuration.sandbox, program, show)
    except (SandboxFault, JobyardError) as error:
        session.echo_error(f"jobyard: not run: {error}")
        raise click.exceptions.Exit(NOT_RUN) from error
    except asyncio.CancelledError:
        session.echo_error("jobyard: interrupted; the program was stopped")
        raise click.exceptions.Exit(128 + signals[0] if signals else NOT_RUN) from None
    save_files(
        [
            made
            for made in result.get("files", ())
            if made["name"] in collect and file_name_problem(made["name"]) is None
        ]
    )
    if session.as_json:
        session.print_json(result)
    session.echo_error(f"jobyard: {summary(result)}")
    is_compiled = result["verdict"] != RunVerdict.COMPILE_ERROR
    raise click.exceptions.Exit(result["exit_code"] if is_compiled else NOT_COMPILED)


def cancel_on_signals() -> list[int]:
    """On a signal, end the program first, then this command, as shells expect. Returns the signals received."""
    signals: list[int] = []
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def interrupt(number: int) -> None:
        signals.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread
            loop.add_signal_handler(number, interrupt, number)
    return signals


async def run_locally(section: SandboxSection, program: Program, show: Write) -> dict[str, Any]:
    check(program, section.bounds)
    if not section.socket:  # otherwise the daemon has languages of its own
        require_known(program.language, section)
    # Of this language only: testing all of them would take longer than the program.
    daemon = None if section.socket else DaemonProcess(msgspec.structs.replace(section, pool=1), 1, [program.language])
    client = SandboxClient(section.socket or "", connect_timeout_seconds=START_SECONDS)
    try:
        if daemon is not None:
            await daemon.start()
            client.path = daemon.path
        await client.start()
        running = asyncio.ensure_future(client.run(program.run_request(program.inputs[0], stream=True), show))
        return run_result(await (running if daemon is None else while_alive(running, daemon)))
    finally:
        await client.stop()
        if daemon is not None:
            await daemon.stop()


async def while_alive(running: asyncio.Future[RunFinished], daemon: DaemonProcess) -> RunFinished:
    """Fail as soon as the daemon dies, instead of waiting for its restart."""
    died = asyncio.ensure_future(daemon.died.wait())
    try:
        either: list[asyncio.Future[Any]] = [running, died]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise SandboxFault(Fault.SANDBOX_UNAVAILABLE, daemon.last_log_line or "the daemon ended")
        return await running
    finally:
        died.cancel()
        running.cancel()


async def run_remotely(session: Session, program: Program, show: Write) -> dict[str, Any]:
    stdin = program.inputs[0]
    request = ExecuteRequest(
        language=program.language,
        source_code=program.source,
        input_base64=stdin or None,
        args=program.args,
        files=tuple(FileRequest(name=file.name, content_base64=file.data) for file in program.files),
        collect=program.collect,
        limits=LimitsRequest(**msgspec.structs.asdict(program.limits)),
    )
    async with session.client() as client:
        job_id = (await client.execute(request)).job_id
        languages = await client.languages()
        if not languages.items:
            session.echo_error(f"jobyard: the program waits for a sandbox. {languages.reason}")
        async for name, data in client.output(job_id, cancel_on_leave=True):
            if name in ("stdout", "stderr"):
                show(1 if name == "stdout" else 2, data["text"].encode())
            elif name == "restart":
                session.echo_error("jobyard: the program was restarted")
            elif name == "finished" and data["status"] == "COMPLETED":
                found: dict[str, Any] = data["result"]
                return found
            elif name == "finished":
                raise JobFailed(data["reason"])
    raise JobFailed(f"the server closed the output stream of job {job_id}, which is still active")


def language_of(file: Path, section: SandboxSection) -> str:
    """The first language of the configuration that has this file extension."""
    for name, language in known_languages(section).items():
        if file.suffix.lower() in language.extensions:
            return name
    raise click.UsageError(f"Cannot tell the language of {file.name} from its name: pass --language.")


def require_known(name: str, section: SandboxSection) -> None:
    known = known_languages(section)
    if name not in known:
        raise BadInput(f"Language {name} is not known.{did_you_mean(name, known)} Known: {', '.join(sorted(known))}.")


def known_languages(section: SandboxSection) -> dict[str, LanguageDefinition]:
    try:
        return load(None if section.languages is None else Path(section.languages))
    except BadLanguages as error:
        raise ConfigurationError(str(error)) from error


def text_of(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"Cannot run {file}: it is not UTF-8 text.") from error
    except OSError as error:
        raise ConfigurationError(f"Cannot read {file}: {error.strerror}.") from error


def file_of(name: str) -> File:
    try:
        return File(name=Path(name).name, data=Path(name).read_bytes())
    except OSError as error:
        raise ConfigurationError(f"Cannot read {name}: {error.strerror}.") from error


def standard_input() -> bytes:
    return b"" if sys.stdin.isatty() else sys.stdin.buffer.read()


def write(fd: int, data: bytes) -> None:
    """Unchanged, except on a terminal: control characters of the program are escaped."""
    stream = sys.stdout if fd == 1 else sys.stderr
    stream.buffer.write(for_terminal(data) if stream.isatty() else data)
    stream.buffer.flush()


def for_terminal(data: bytes) -> bytes:
    r"""
    >>> for_terminal(b"a\tb\n\x1b[31m")
    b'a\tb\n\\x1b[31m'
    """
    return visible(data.decode("utf-8", "replace"), lines=True).encode()


def discard(fd: int, data: bytes) -> None: ...


def save_files(files: Sequence[dict[str, Any]]) -> None:
    for file in files:
        path = Path(file["name"])
        path.parent.mkdir(parents=True, exist_ok=True)
        exact = file.get("content_base64")
        path.write_bytes(file["content"].encode() if exact is None else base64.b64decode(exact))


def summary(result: dict[str, Any]) -> str:
    """
    >>> cut = {"stdout": True, "stderr": False}
    >>> summary({"verdict": "OK", "exit_code": 0, "signal": None, "execution_time_ms": 12.3, "cpu_time_ms": None,
    ...     "memory_peak_bytes": 5 << 20, "tier": "A", "truncated": cut})
    'OK, exit code 0, 12.3 ms, memory 5.0 MB, tier A; stdout was truncated'
    """
    ended = f"exit code {result['exit_code']}" if result["signal"] is None else f"signal {result['signal']}"
    parts = [result["verdict"], ended, f"{result['execution_time_ms']:.1f} ms"]
    if result["cpu_time_ms"] is not None:
        parts.append(f"CPU {result['cpu_time_ms']:.1f} ms")
    if result["memory_peak_bytes"] is not None:
        parts.append(f"memory {result['memory_peak_bytes'] / (1 << 20):.1f} MB")
    parts.append(f"tier {result['tier']}")
    cut = [name for name, is_cut in result["truncated"].items() if is_cut]
    notes = [f"{' and '.join(cut)} {'was' if len(cut) == 1 else 'were'} truncated"] if cut else []
    if result["verdict"] == "COMPILE_ERROR":
        return f"COMPILE_ERROR\n{result['compile']['stderr'].rstrip()}"
    return "; ".join([", ".join(parts), *notes, *result.get("notes", ())])
