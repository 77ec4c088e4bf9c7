"""An application in its own folder, and two ways to call the command line: in-process and as a process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import select
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import click
import pytest
from click.testing import CliRunner, Result
from tests import fork_server
from tests.fork_server import PIPE, ForkedProcess

from jobyard import Jobyard
from jobyard.cli import cli
from jobyard.cli.app_loader import load_app
from jobyard.errors import JobyardError

T = TypeVar("T")

JOBYARD = str(Path(sys.executable).parent / "jobyard")
PATIENCE_SECONDS = 60.0
USAGE = "usage"  # a usage error of click: exit code 2, no code

APP = """
import asyncio
import logging
from jobyard import Context, Jobyard

yard = Jobyard("sqlite:///shop.db")
yard.queue("mail", max_running=10, max_per_group=2)
not_a_yard = 3

@yard.job(queue="mail")
async def send(ctx: Context, to: str, copies: int = 1) -> dict[str, object]:
    async with ctx.step("connect"):
        await ctx.log("connected")
    await ctx.progress(50, "half")
    return {"to": to, "copies": copies}

@yard.job(queue="mail", max_attempts=1)
async def fail(ctx: Context) -> None:
    raise ValueError("no [red]way[/red]")

@yard.job(queue="slow")
async def hang(ctx: Context) -> None:
    await ctx.progress(10, "hanging")
    logging.getLogger("shop").info("the handler speaks")
    print("hanging", flush=True)
    await asyncio.Event().wait()
"""


class Shop:
    """A folder with an application; commands run there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.module = f"shop_{uuid.uuid4().hex}"
        self.app = f"{self.module}:yard"
        (folder / f"{self.module}.py").write_text(APP)

    @property
    def yard(self) -> Jobyard:
        return load_app(self.app)

    def run(self, *words: str, stdin: str | None = None, **environment: str) -> Result:
        return invoke(*words, stdin=stdin, env={"JOBYARD_APP": self.app} | environment)

    def json(self, *words: str) -> Any:
        result = self.run(*words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def do(self, work: Callable[[Jobyard], Awaitable[T]]) -> T:
        """Run a coroutine with the opened application."""

        async def body() -> T:
            async with self.yard as yard:
                return await work(yard)

        return asyncio.run(body())

    def enqueue(self, kind: str, payload: Any = None, **options: Any) -> str:
        async def work(yard: Jobyard) -> str:
            return (await yard.enqueue(kind, payload, **options)).id

        return self.do(work)

    def work_off(self) -> None:
        """Run all due jobs, in-process."""
        result = self.run("worker", "--until-empty", "--concurrency", "4")
        assert result.exit_code == 0, result.output

    def environment(self) -> dict[str, str]:
        return os.environ | {"JOBYARD_APP": self.app, "PYTHONWARNINGS": "", "COLUMNS": "80", "LINES": "30"}

    @contextlib.contextmanager
    def start(self, *words: str) -> Iterator[ForkedProcess]:
        """A process that does not outlive its test."""
        process = fork_server.start(
            "jobyard", words, environment=self.environment(), folder=self.folder, stdout=PIPE, stderr=PIPE
        )
        with process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    @contextlib.contextmanager
    def on_terminal(self, *words: str, **more: str) -> Iterator[Terminal]:
        own, theirs = pty.openpty()
        environment = self.environment() | {"TERM": "xterm"} | more
        process = fork_server.start(
            "jobyard",
            words,
            environment=environment,
            folder=self.folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        terminal = Terminal(own, process)
        try:
            yield terminal
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            terminal.hang_up()


def invoke(*words: str, stdin: str | None = None, env: dict[str, str] | None = None) -> Result:
    """Run a command in-process. `exception` of the result is the jobyard error that ended the command, if any."""
    errors: list[JobyardError] = []

    def recording(context: click.Context) -> Any:
        try:
            return type(cli).invoke(cli, context)
        except click.ClickException as error:
            if isinstance(error.__cause__, JobyardError):
                errors.append(error.__cause__)
            raise

    with mock.patch.object(cli, "invoke", recording):
        result = CliRunner().invoke(cli, list(words), input=stdin, env=env)
    result.exception = errors[0] if errors else result.exception
    return result


def error_code(result: Result) -> str:
    """The code of the jobyard error that ended the command; empty if it was none."""
    return result.exception.code if isinstance(result.exception, JobyardError) else ""


class Terminal:
    def __init__(self, file: int, process: ForkedProcess) -> None:
        self._file = file
        self.process = process
        self.seen = ""

    def expect(self, text: str) -> None:
        """Read until the text is shown."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in self.seen:
            assert time.monotonic() < deadline, f"{text!r} was not shown: {self.seen!r}"
            if not self._read(1.0):
                raise AssertionError(f"ended without {text!r}: {self.seen!r}")

    def type(self, text: str) -> None:
        os.write(self._file, text.encode())

    def hang_up(self) -> None:
        """Close the terminal, as a closed window does. Safe twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def end(self) -> int:
        """Read to the end; returns the exit code."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._read(1.0):
            assert time.monotonic() < deadline, self.seen
        return self.process.wait(PATIENCE_SECONDS)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._file], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._file, 65536)
        except OSError:  # Linux says so when the other side has closed
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for variable in ("JOBYARD_STORE", "JOBYARD_APP", "JOBYARD_SERVER", "API_URL", "LOG_LEVEL", "QUEUE_CONCURRENCY"):
        monkeypatch.delenv(variable, raising=False)
    return Shop(tmp_path)
