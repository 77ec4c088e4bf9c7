"""The sandbox beside a worker: its daemon kept running, the connection to it, and what others are told of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import socket
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobyard.api.schemas.events import CheckView
from jobyard.app.jobyard import Jobyard
from jobyard.app.process_manager import STEADY_SECONDS, wait_seconds
from jobyard.config.sections import SandboxSection
from jobyard.errors import ConfigurationError, JobyardError
from jobyard.executors.by_kind import ExecutorByKind
from jobyard.executors.sandbox.client import STARTING, SandboxClient, SandboxFault
from jobyard.executors.sandbox.executor import SandboxExecutor
from jobyard.executors.sandbox.live_output import LiveOutput
from jobyard.executors.sandbox.program import KEEP_SECONDS, KIND, QUEUE
from jobyard.operations.sandboxes import PUBLISH_EVERY_SECONDS, publish_sandbox, sandbox_info
from jobyard.ports.executor import Executor
from jobyard.ports.record_store import RecordStore
from jobyard.sandbox.protocol import SandboxState

log = logging.getLogger("jobyard.sandbox")

DAEMON = "jobyard.sandbox.daemon"
# What the daemon may know of our environment: nothing that holds a secret.
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")
STOP_SECONDS = 10.0
CANNOT_START = 126
# A daemon that was well may take so long to be there again before others are told that it is gone.
RESTART_SECONDS = 20.0
# How soon others hear that something changed.
LOOK_SECONDS = 0.2
LEVELS = {name: getattr(logging, name) for name in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")}
LINE = re.compile(rf"[\d-]+ [\d:,]+ ({'|'.join(LEVELS)}) (.*)")
FOLDER = re.compile(r"jobyard-sandbox-(\d+)-\w+")


def daemon_command(section: SandboxSection, path: str, slots: int) -> list[str]:
    words = [sys.executable, "-m", DAEMON, "--socket", path]
    words += ["--min-tier", section.min_tier, "--slots", str(section.slots or slots)]
    if section.languages is not None:
        words += ["--languages", section.languages]
    if section.pool is not None:
        words += ["--pool", str(section.pool)]
    return words


def daemon_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in KEPT_VARIABLES if name in environment}


class DaemonProcess:
    """A process that is kept running. It ends when its standard input does: with us, however we go."""

    def __init__(self, section: SandboxSection, slots: int) -> None:
        self._section = section
        self._slots = slots
        self._folder: Path | None = None
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self.path = ""
        self.last_words = ""
        self.died = asyncio.Event()  # at least once

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        sweep(Path(tempfile.gettempdir()))
        self._folder = Path(tempfile.mkdtemp(prefix=f"jobyard-sandbox-{os.getpid()}-"))
        self.path = str(self._folder / "sandbox.sock")
        self._task = asyncio.get_running_loop().create_task(self._keep(), name="jobyard-sandboxd")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        early_deaths = 0
        while True:
            began = loop.time()
            code = await self._live()
            early_deaths = 0 if loop.time() - began >= STEADY_SECONDS else early_deaths + 1
            seconds = wait_seconds(early_deaths)
            self.died.set()
            said = f" ({self.last_words})" if self.last_words else ""
            log.warning("the sandbox daemon ended with code %d%s; another starts in %g s", code, said, seconds)
            await asyncio.sleep(seconds)

    async def _live(self) -> int:
        """One process from its start to its end."""
        command = [*daemon_command(self._section, self.path, self._slots), "--until-input-ends"]
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=PIPE,
                env=daemon_environment(os.environ),
                start_new_session=True,
            )
        except OSError as error:
            self._hear(f"{command[0]} cannot be started: {error.strerror}")
            return CANNOT_START
        log.info("the sandbox daemon starts, pid %d", process.pid)
        try:
            await self._listen(process)
            return await process.wait()
        finally:
            await end(process)

    async def _listen(self, process: Process) -> None:
        assert process.stderr is not None
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:
                continue  # a line without an end; the rest of it comes
            if not line:
                return
            self._hear(line.decode("utf-8", "replace").strip())

    def _hear(self, line: str) -> None:
        """Its log becomes ours."""
        found = LINE.fullmatch(line)
        level, words = (logging.INFO, line) if found is None else (LEVELS[found[1]], found[2])
        if words:
            self.last_words = words
            log.log(level, "sandboxd: %s", words)


async def end(process: Process) -> None:
    """Asked first; killed when it does not."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            log.error("the sandbox daemon, pid %d, does not end and is killed", process.pid)  # noqa: TRY400
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def sweep(folder: Path) -> None:
    """Folders of sockets that were left by workers which were killed."""
    if not Path("/proc/self").exists():
        return
    for path in folder.glob("jobyard-sandbox-*"):
        found = FOLDER.fullmatch(path.name)
        with contextlib.suppress(OSError):
            if found and not Path(f"/proc/{found[1]}").exists() and path.stat().st_uid == os.getuid():
                shutil.rmtree(path, ignore_errors=True)


class WorkerSandbox:
    """A companion of a worker: there before its first claim, gone after its last settlement."""

    def __init__(self, section: SandboxSection, records: RecordStore, worker: str, concurrency: int) -> None:
        self._section = section
        self._records = records
        self._worker = worker
        self.daemon = None if section.socket else DaemonProcess(section, concurrency)
        self.client = SandboxClient(section.socket or "")
        self._live = LiveOutput(records)
        self._telling: asyncio.Task[None] | None = None
        self._well_at = -RESTART_SECONDS  # when it last could run programs

    def beside(self, executor: Executor) -> Executor:
        """Programs go to the sandbox, everything else where it went."""
        return ExecutorByKind({KIND: SandboxExecutor(self.client, self._section.bounds, self._live)}, executor)

    async def start(self) -> None:
        if self.daemon is not None:
            await self.daemon.start()
            self.client.path = self.daemon.path
        await self.client.start()
        self._telling = asyncio.get_running_loop().create_task(self._tell(), name="jobyard-sandbox-tell")

    async def stop(self) -> None:
        telling, self._telling = self._telling, None
        if telling is not None:
            telling.cancel()
            await asyncio.wait([telling])
        await self._live.stop()
        await self.client.stop()
        if self.daemon is not None:
            await self.daemon.stop()

    # What others are told

    def why_not(self) -> str:
        """Why it runs nothing now; empty when it does."""
        state = self.client.state
        if state is None:
            return self.client.reason
        return "" if state.tier is not None else state.reason

    def _details(self) -> str:
        return "" if self.daemon is None or self.client.state is not None else self.daemon.last_words

    def check(self) -> CheckView:
        why = f"{self.why_not()} {self._details()}".strip()
        return CheckView(name="sandbox", ok=not why, reason=f"The sandbox runs nothing: {why}" if why else "")

    async def _tell(self) -> None:
        before: object = None
        said_at, loop = 0.0, asyncio.get_running_loop()
        while True:
            state = self.client.state
            now = (self.client.reason, self._details()) if state is None else what_it_is(state)
            if now != before:
                before, said_at = now, 0.0
                if state is not None and now is not None:
                    announce(state)
            if not said_at or loop.time() - said_at >= PUBLISH_EVERY_SECONDS:
                said_at = loop.time()
                await self._say()
            await asyncio.sleep(LOOK_SECONDS)

    async def _say(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(SandboxFault):
            if self.client.state is not None:
                await self.client.ask()
        state = self.client.state
        if state is not None and state.tier is not None:
            self._well_at = loop.time()
        elif loop.time() - self._well_at < RESTART_SECONDS:
            return  # a daemon that starts anew is worth waiting for: programs are taken meanwhile
        try:
            info = sandbox_info(self._worker, socket.gethostname(), state, self.why_not(), self._details())
            await publish_sandbox(self._records, info)
        except JobyardError:
            log.debug("what the sandbox can do could not be told", exc_info=True)


def what_it_is(state: SandboxState) -> object:
    """What is worth telling anew; nothing while it starts."""
    if state.tier is None and state.reason.startswith(STARTING):
        return None
    return state.tier, state.reason, state.languages, tuple(state.missing)


def announce(state: SandboxState) -> None:
    if state.tier is None:
        log.warning("programs are not run here: %s", state.reason)
        return
    names: Sequence[str] = [f"{language.name} {language.version}" for language in state.languages]
    why = f" ({state.reason})" if state.reason else ""
    log.info("programs are run in tier %s%s: %s", state.tier, why, ", ".join(names) or "no language passed")
    for name, reason in state.missing.items():
        log.warning("%s is not offered: %s", name, reason)


class SandboxFactory:
    """What `yard.sandbox` holds: how each worker of this process gets its sandbox."""

    def __init__(self, section: SandboxSection) -> None:
        self.section = section
        self.made: WorkerSandbox | None = None  # the latest

    def make(self, records: RecordStore, worker: str, concurrency: int) -> WorkerSandbox:
        self.made = WorkerSandbox(self.section, records, worker, concurrency)
        return self.made


def enable_sandbox(yard: Jobyard, section: SandboxSection, concurrency: int = 2) -> None:
    """From now on the yard's workers, each with so many slots, run programs, too."""
    if KIND in yard.kinds:
        raise ConfigurationError(f"The app has a kind {KIND}, which is the sandbox's own: rename it, or disable that.")
    yard.sandbox = SandboxFactory(section)
    suggest_queue(yard, section.slots or concurrency)


def suggest_queue(yard: Jobyard, slots: int) -> None:
    """Results can be fetched for a while, and nobody fills all slots of a worker alone."""
    yard.suggest(QUEUE, {"keep_seconds": KEEP_SECONDS, "max_per_group": max(1, slots - 1)})
