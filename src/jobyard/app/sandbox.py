"""The sandbox of a worker: keeps its daemon running, connects to it, and publishes what it can run."""

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
from jobyard.app.declarations import declarations_of
from jobyard.app.jobyard import Jobyard
from jobyard.app.process_manager import STEADY_SECONDS, backoff_seconds
from jobyard.config.sections import SandboxSection
from jobyard.errors import ConfigurationError, JobyardError
from jobyard.executors.by_kind import ExecutorByKind
from jobyard.executors.sandbox.client import SandboxClient, SandboxFault
from jobyard.executors.sandbox.executor import SandboxExecutor
from jobyard.executors.sandbox.live_input import LiveInput
from jobyard.executors.sandbox.live_output import LiveOutput
from jobyard.executors.sandbox.program import KEEP_SECONDS, KIND, QUEUE
from jobyard.operations.sandboxes import PUBLISH_EVERY_SECONDS, publish_sandbox, sandbox_info
from jobyard.operations.webhooks.executor import KIND as WEBHOOK
from jobyard.operations.webhooks.executor import WebhookExecutor
from jobyard.ports.executor import Executor
from jobyard.ports.store import Store
from jobyard.sandbox.protocol import SandboxState

log = logging.getLogger("jobyard.sandbox")

DAEMON = "jobyard.sandbox.daemon"
# Environment variables passed to the daemon: none that may hold a secret.
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")
STOP_SECONDS = 10.0
CANNOT_START = 126
# How long a daemon may be missing before it is published as unavailable: a restart takes seconds, and until then
# programs are accepted and wait.
RESTART_SECONDS = 20.0
# How often the state is compared with the published one.
POLL_SECONDS = 0.2
LEVELS = {name: getattr(logging, name) for name in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")}
LINE = re.compile(rf"[\d-]+ [\d:,]+ ({'|'.join(LEVELS)}) (.*)")
FOLDER = re.compile(r"jobyard-sandbox-(\d+)-\w+")


def daemon_command(section: SandboxSection, path: str, slots: int, only: Sequence[str] = ()) -> list[str]:
    words = [sys.executable, "-m", DAEMON, "--socket", path]
    words += ["--min-tier", section.min_tier, "--slots", str(section.slots or slots)]
    if section.languages is not None:
        words += ["--languages", section.languages]
    if section.pool is not None:
        words += ["--pool", str(section.pool)]
    if section.unix_sockets:
        words.append("--unix-sockets")
    if section.tcp_sockets:
        words += ["--tcp-sockets", str(section.tcp_sockets)]
    for name in only:
        words += ["--only", name]
    return words


def daemon_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in KEPT_VARIABLES if name in environment}


class DaemonProcess:
    """A daemon process, restarted when it dies. It stops when its standard input closes, that is, with this process."""

    def __init__(self, section: SandboxSection, slots: int, only: Sequence[str] = ()) -> None:
        self._section = section
        self._slots = slots
        self._only = only  # languages; empty: all
        self._folder: Path | None = None
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self.path = ""
        self.last_log_line = ""
        self.died = asyncio.Event()  # at least once

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        sweep(Path(tempfile.gettempdir()))
        self._folder = Path(tempfile.mkdtemp(prefix=f"jobyard-sandbox-{os.getpid()}-"))
        self.path = str(self._folder / "sandbox.sock")
        self._task = asyncio.get_running_loop().create_task(self._keep_running(), name="jobyard-sandboxd")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        early_deaths = 0
        while True:
            began = loop.time()
            code = await self._run_once()
            early_deaths = 0 if loop.time() - began >= STEADY_SECONDS else early_deaths + 1
            seconds = backoff_seconds(early_deaths)
            self.died.set()
            reason = f" ({self.last_log_line})" if self.last_log_line else ""
            log.warning("the sandbox daemon exited with code %d%s; restarting in %g s", code, reason, seconds)
            await asyncio.sleep(seconds)

    async def _run_once(self) -> int:
        """Run one process to its end and return its exit code."""
        command = [*daemon_command(self._section, self.path, self._slots, self._only), "--until-input-ends"]
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
            self._on_log_line(f"Cannot start {command[0]}: {error.strerror}")
            return CANNOT_START
        log.info("sandbox daemon started, pid %d", process.pid)
        try:
            await self._forward_log(process)
            return await process.wait()
        finally:
            await terminate(process)

    async def _forward_log(self, process: Process) -> None:
        assert process.stderr is not None
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:
                continue  # an overlong line; its rest follows
            if not line:
                return
            self._on_log_line(line.decode("utf-8", "replace").strip())

    def _on_log_line(self, line: str) -> None:
        """Log a line of the daemon's log, at its level."""
        found = LINE.fullmatch(line)
        level, message = (logging.INFO, line) if found is None else (LEVELS[found[1]], found[2])
        if message:
            self.last_log_line = message
            log.log(level, "sandboxd: %s", message)


async def terminate(process: Process) -> None:
    """Terminate the process; kill it if that takes too long."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            log.error("the sandbox daemon, pid %d, does not stop; killing it", process.pid)  # noqa: TRY400
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def sweep(folder: Path) -> None:
    """Remove socket folders of workers that were killed."""
    if not Path("/proc/self").exists():
        return
    for path in folder.glob("jobyard-sandbox-*"):
        found = FOLDER.fullmatch(path.name)
        with contextlib.suppress(OSError):
            if found and not Path(f"/proc/{found[1]}").exists() and path.stat().st_uid == os.getuid():
                shutil.rmtree(path, ignore_errors=True)


class WorkerSandbox:
    """The sandbox of one worker: started before its first claim, stopped after its last settlement."""

    def __init__(self, section: SandboxSection, store: Store, worker: str, concurrency: int) -> None:
        self._section = section
        self._store = store
        self._worker = worker
        self.daemon = None if section.socket else DaemonProcess(section, concurrency)
        self.client = SandboxClient(section.socket or "")
        self._live = LiveOutput(store)
        self._publisher: asyncio.Task[None] | None = None
        self._available_at = -RESTART_SECONDS  # when it could last run programs

    def wrap(self, executor: Executor) -> Executor:
        """Route programs to the sandbox and all other jobs to `executor`."""
        programs = SandboxExecutor(self.client, self._section.bounds, self._live, LiveInput(self._store))
        webhooks = WebhookExecutor(self._store, allow_private=self._section.webhooks_to_private)
        return ExecutorByKind({KIND: programs, WEBHOOK: webhooks}, executor)

    async def start(self) -> None:
        if self.daemon is not None:
            await self.daemon.start()
            self.client.path = self.daemon.path
        await self.client.start()
        self._publisher = asyncio.get_running_loop().create_task(self._publish_changes(), name="jobyard-sandbox-state")

    async def stop(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.cancel()
            await asyncio.wait([publisher])
        await self._live.stop()
        await self.client.stop()
        if self.daemon is not None:
            await self.daemon.stop()

    # Published state

    def unavailable_reason(self) -> str:
        """Why it cannot run programs now; empty if it can."""
        state = self.client.state
        if state is None:
            return self.client.reason
        return "" if state.tier is not None else state.reason

    def _details(self) -> str:
        return "" if self.daemon is None or self.client.state is not None else self.daemon.last_log_line

    def check(self) -> CheckView:
        why = f"{self.unavailable_reason()} {self._details()}".strip()
        return CheckView(name="sandbox", ok=not why, reason=f"The sandbox cannot run programs: {why}" if why else "")

    async def _publish_changes(self) -> None:
        published: object = None
        logged: SandboxState | None = None
        published_at, loop = 0.0, asyncio.get_running_loop()
        while True:
            state = self.client.state
            current = (self.client.reason, self._details()) if state is None else abilities(state)
            if current != published:
                published, published_at = current, 0.0
                if state is not None:
                    log_abilities(state, logged)
                    logged = state
            if not published_at or loop.time() - published_at >= PUBLISH_EVERY_SECONDS:
                published_at = loop.time()
                await self._publish()
            await asyncio.sleep(POLL_SECONDS)

    async def _publish(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(SandboxFault):
            if self.client.state is not None:
                await self.client.fetch_state()
        state = self.client.state
        if state is not None and state.tier is not None:
            self._available_at = loop.time()
        elif loop.time() - self._available_at < RESTART_SECONDS:
            return  # it is probably restarting: keep accepting programs
        try:
            info = sandbox_info(self._worker, socket.gethostname(), state, self.unavailable_reason(), self._details())
            await publish_sandbox(self._store, info)
        except JobyardError:
            log.debug("cannot publish the state of the sandbox", exc_info=True)


def abilities(state: SandboxState) -> object:
    """The part of the state that is published as soon as it changes."""
    return state.tier, state.reason, state.languages, tuple(state.missing), state.checking


def log_abilities(state: SandboxState, before: SandboxState | None = None) -> None:
    """Log what has changed: self-tests of slow languages end one after the other."""
    if state.tier is None:
        log.warning("cannot run programs: %s", state.reason)
        return
    if before is None or (before.tier, before.reason) != (state.tier, state.reason):
        before = None
        log.info("running programs in tier %s%s", state.tier, f" ({state.reason})" if state.reason else "")
    known = () if before is None else before.languages
    if names := ", ".join(f"{each.name} ({each.version})" for each in state.languages if each not in known):
        log.info("languages that programs can use now: %s", names)
    elif not state.languages and not state.checking:
        log.warning("no language passed its self-test")
    for name, reason in state.missing.items():
        if before is None or name not in before.missing:
            log.warning("language %s is not offered: %s", name, reason)


class SandboxFactory:
    """Creates the sandbox of each worker of this process; held by `yard.sandbox`."""

    def __init__(self, section: SandboxSection) -> None:
        self.section = section
        self.latest: WorkerSandbox | None = None

    def make(self, store: Store, worker: str, concurrency: int) -> WorkerSandbox:
        self.latest = WorkerSandbox(self.section, store, worker, concurrency)
        return self.latest


def enable_sandbox(yard: Jobyard, section: SandboxSection, concurrency: int = 2) -> None:
    """Let the yard's workers run programs. `concurrency` is the number of slots of each worker."""
    if KIND in declarations_of(yard).handlers:
        raise ConfigurationError(
            f"Cannot enable the sandbox: the app defines the kind {KIND!r}, which the sandbox uses. Rename it."
        )
    yard.sandbox = SandboxFactory(section)
    suggest_queue(yard, section.slots or concurrency)


def suggest_queue(yard: Jobyard, slots: int) -> None:
    """Suggest settings for the queue: keep results for a while, and leave one slot per worker to other groups."""
    # Also programs that could not be run: their source is private.
    ages = {"keep_completed_seconds": KEEP_SECONDS, "keep_failed_seconds": KEEP_SECONDS}
    declarations_of(yard).suggest_queue(QUEUE, {**ages, "max_per_group": max(1, slots - 1)})
