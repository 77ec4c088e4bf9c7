"""The harness of a story: a store, the processes that use it, their histories, and the checks at the end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from tests import fork_server
from tests.fork_server import ForkedProcess
from tests.story.app import declare
from tests.story.flags import Flags
from tests.story.ledger import Ledger
from tests.story.process import SETTINGS_VARIABLE, ProcessSettings
from tests.story.results import Kill, Result, record, recoveries, resumptions
from tests.story.sizes import LEASE_SECONDS
from tests.support import PATIENCE_SECONDS, pauses

from jobyard import Jobyard
from jobyard.config.store_factory import make_store
from jobyard.domain.ids import new_id
from jobyard.domain.job import Job, NewJob, QueueSettings
from jobyard.errors import StoreError
from jobyard.operations.queries import Queries
from jobyard.operations.workflow_audit import audit_workflows
from jobyard.ports.admin_store import Filter, QueueInfo
from jobyard.testing.history import History, RecordingStore, check, summary

ROOT = Path(__file__).parents[2]
# No process may log one of these, whatever the story does to it.
ALARMS = re.compile(r"\b(locked|Traceback|disk failed|is damaged)\b")


class Process:
    def __init__(self, name: str, popen: ForkedProcess | subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.log = log
        self._popen = popen

    @property
    def is_up(self) -> bool:
        return self._popen.poll() is None

    @property
    def is_stopped(self) -> bool:
        """Whether every thread is stopped."""
        stats = Path(f"/proc/{self._popen.pid}/task").glob("*/stat")
        return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in stats)

    @property
    def memory_bytes(self) -> int:
        pages = int(Path(f"/proc/{self._popen.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def exit_code(self) -> int | None:
        return self._popen.poll()

    def send(self, number: signal.Signals) -> None:
        """Does nothing if the process has ended; its pid is not reused before its exit code is read."""
        self._popen.send_signal(number)

    def end(self) -> None:
        if self.is_up:
            self._popen.kill()
        self._popen.wait()


class Harness:
    def __init__(self, folder: Path, title: str, url: str, through: str = "") -> None:
        """`through`: another URL by which the processes reach the store."""
        self.title = title
        self.url = through or url
        self.flags = Flags(folder / "flags")
        self.ledger = Ledger(folder / "flags")
        self.kills: list[Kill] = []
        self.returns: list[int] = []  # when the store was there again, in nanoseconds of CLOCK_MONOTONIC
        self.folder = folder
        self._processes: list[Process] = []
        self._killed: set[int] = set()  # process ids, of a pool
        self._numbers = itertools.count(1)
        self._started = time.monotonic()
        self.yard = Jobyard(store=RecordingStore(make_store(url), folder / "test.history"))
        self.tasks = declare(self.yard, folder / "flags")

    @property
    def database(self) -> Path:
        """Of a story on SQLite."""
        return Path(self.url.removeprefix("sqlite:///"))

    # Processes

    def start(self, script: str, count: int = 0) -> Process:
        return self._start(script, f"tests.story.{script}", count=count)

    def worker(
        self,
        *,
        concurrency: int = 4,
        lease_seconds: float = LEASE_SECONDS,
        shutdown_timeout: float = 30.0,
        queues: Iterable[str] = (),
        polls: bool = True,
    ) -> Process:
        """`jobyard worker`, forked from a process that has loaded Python."""
        arguments = ["--app", "tests.story.worker:yard", "worker"]
        arguments += [f"--concurrency={concurrency}", f"--lease-seconds={lease_seconds}"]
        arguments += [f"--shutdown-timeout={shutdown_timeout}", *(f"--queue={queue}" for queue in queues)]
        return self._start("worker", "jobyard", arguments, polls=polls)

    async def start_pool(self, role: str, count: int, clocks: tuple[float, ...] = (), **settings: Any) -> Process:
        """The parent of `count` schedulers or workers; one that is killed is replaced."""
        parent = self._start("pool", "tests.story.process_pool", count=count, role=role, clocks=clocks, **settings)
        await self.until(lambda: len(self.pids(role)) >= count, f"{count} of them are up")
        return parent

    def pids(self, role: str) -> list[int]:
        """Processes of a pool that are up."""
        pids = (int(path.name.rpartition("-")[2]) for path in self.flags.paths(f"{role}-"))
        return [pid for pid in pids if pid not in self._killed]

    def kill_pid(self, pid: int) -> None:
        self._killed.add(pid)
        os.kill(pid, signal.SIGKILL)

    def _start(self, what: str, module: str, arguments: Sequence[str] = (), count: int = 0, **more: Any) -> Process:
        name = f"{what}-{next(self._numbers)}"
        settings = ProcessSettings(
            name=name,
            store=self.url,
            journal=str(self.folder / f"{name}.history"),
            flags=str(self.folder / "flags"),
            count=count,
            **more,
        )
        variables = {**os.environ, SETTINGS_VARIABLE: msgspec.json.encode(settings).decode()}
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            file = output.fileno()
            started = fork_server.start(module, arguments, environment=variables, folder=ROOT, stdout=file, stderr=file)
        process = Process(name, started, log)
        self._processes.append(process)
        return process

    async def workers(self, count: int, **settings: Any) -> list[Process]:
        """`count` workers, all ready to claim jobs."""
        started = [self.worker(**settings) for _ in range(count)]
        await self.ready(started)
        return started

    async def ready(self, workers: Iterable[Process]) -> None:
        wanted = list(workers)

        async def all_seen() -> bool:
            return len(await self.up(wanted)) == len(wanted)

        await self.until(all_seen, f"the workers {', '.join(sorted(worker.name for worker in wanted))} are up")

    async def up(self, workers: Iterable[Process]) -> list[Process]:
        """The workers that have sent a heartbeat."""
        seen = {info.id for info in await self.yard.store.workers()}
        return [worker for worker in workers if worker.name in seen]

    def kill(self, worker: Process) -> None:
        self.kills.append(Kill(worker.name, time.monotonic_ns()))
        worker.send(signal.SIGKILL)

    def store_is_back(self) -> None:
        self.returns.append(time.monotonic_ns())

    async def stop(self, processes: Iterable[Process]) -> None:
        """Send SIGTERM and expect exit code 0."""
        asked = list(processes)
        for process in asked:
            process.send(signal.SIGTERM)
        await self.ended(asked)

    async def ended(self, processes: Iterable[Process], exit_code: int = 0) -> None:
        for process in processes:
            await self.until(lambda process=process: not process.is_up, f"{process.name} has ended")
            assert process.exit_code == exit_code, f"{process.name}: {process.exit_code}\n{process.log.read_text()}"

    # Jobs

    async def configure(self, queue: str = "default", **settings: Any) -> None:
        """Keep every job: the checks at the end read how each one ended."""
        await self.yard.store.configure(queue, QueueSettings(keep_completed=1 << 30, keep_failed=1 << 30, **settings))

    async def enqueue(self, kind: str, payload: Any = None, **options: Any) -> str:
        return (await self.yard.enqueue(kind, payload, **options)).id

    async def enqueue_all(self, jobs: Iterable[tuple[str, Any, dict[str, Any]]]) -> list[str]:
        """Many at once, as (kind, payload, options)."""
        new = [
            NewJob(id=new_id(), kind=kind, payload=msgspec.json.encode(payload), **options)
            for kind, payload, options in jobs
        ]
        return [inserted.id for inserted in await self.yard.store.insert(new)]

    async def enqueue_workflows(self, kind: str, payloads: Mapping[str, dict[str, Any]]) -> dict[str, str]:
        """Workflows that know themselves by these names in the ledger; their ids by name."""
        jobs = [(kind, {"job": name, **payload}, {"is_workflow": True}) for name, payload in payloads.items()]
        return dict(zip(payloads, await self.enqueue_all(jobs), strict=True))

    async def is_waiting_for(self, job_id: str, what: str) -> bool:
        job = await self.yard.get(job_id)
        return job.waiting_for == what

    async def all_jobs(self) -> list[Job]:
        return [job async for job in Queries(self.yard.store).walk(Filter())]

    async def queue(self, name: str = "default") -> QueueInfo:
        return next(info for info in await self.yard.queues() if info.name == name)

    async def drained(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        async def nothing_left() -> bool:
            return all(info.waiting + info.delayed + info.running == 0 for info in await self.yard.queues())

        await self.until(nothing_left, "every job has ended", patience_seconds)

    async def done(self, *job_ids: str) -> list[Job]:
        return [await Queries(self.yard.store).end(job_id, PATIENCE_SECONDS) for job_id in job_ids]

    # Waiting and judging

    async def until(
        self,
        condition: Callable[[], bool] | Callable[[], Awaitable[bool]],
        what: str,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        deadline = time.monotonic() + patience_seconds
        pause = pauses(0.02)
        while True:
            with contextlib.suppress(StoreError):  # a server that is down says nothing
                holds = condition()
                if holds if isinstance(holds, bool) else await holds:
                    return
            if time.monotonic() > deadline:
                raise AssertionError(f"Not within {patience_seconds:g} s: {what}.{await self._state()}")
            await asyncio.sleep(next(pause))

    async def verify(self) -> Result:
        """What must hold at the end of every story. Ends the processes first: the history must be complete."""
        for process in self._processes:
            process.end()
        history = History.read(sorted(self.folder.glob("*.history")))
        violations = [str(violation) for violation in check(history, await self.all_jobs())]
        violations += [f"audit: {sentence}" for sentence in await self.yard.store.audit()]
        violations += [f"audit: {problem}" for problem in await audit_workflows(self.yard.store)]
        if self.url.startswith("sqlite:"):
            violations += [f"integrity_check: {line}" for line in integrity(self.database) if line != "ok"]
        violations += [f"{process.log.name}: {line}" for process in self._processes for line in _alarms(process.log)]
        result = Result(
            story=self.title,
            processes=len(self._processes) + sum(len(self.flags.paths(f"{role}-")) for role in ("scheduler", "worker")),
            kills=len(self.kills) + len(self.returns) + len(self._killed),
            seconds=time.monotonic() - self._started,
            violations=violations,
            history=summary(history),
            recovery_seconds=recoveries(history, self.kills) + resumptions(history, self.returns),
        )
        record(result)
        assert not violations, "\n  ".join([f"{len(violations)} violations in {self.folder}:", *violations[:50]])
        return result

    async def _state(self) -> str:
        try:
            lines = [str(info) for info in await self.yard.queues()]
        except StoreError as error:
            lines = [str(error)]
        for process in self._processes[-8:]:
            tail = process.log.read_text().splitlines()[-5:]
            lines += [f"{process.name} (exit code {process.exit_code}):", *(f"  {line}" for line in tail)]
        return "\n" + "\n".join(lines)

    def clear(self) -> None:
        for process in self._processes:
            process.end()


def _alarms(log: Path) -> list[str]:
    # The indented traceback of a job that fails is part of its story.
    lines = (line for line in log.read_text().splitlines() if not line.startswith("    Traceback"))
    return [line for line in lines if ALARMS.search(line)]


def integrity(database: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
