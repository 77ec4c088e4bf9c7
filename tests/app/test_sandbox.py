"""The sandbox of a worker: its daemon process, and the state that it publishes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2 as httpx
import msgspec
import pytest
from tests.conformance.support import new
from tests.sandbox.fake_daemon import daemon
from tests.servers.ports import free_port
from tests.story.up import alive
from tests.support import eventually

from jobyard import Context, Jobyard
from jobyard.app import sandbox
from jobyard.app.health_server import WorkerHealth
from jobyard.app.sandbox import WorkerSandbox, daemon_command, daemon_environment, enable_sandbox, sweep
from jobyard.app.worker_metrics import WorkerMetrics
from jobyard.cli.findings.sandboxes import one_sandbox, sandbox_findings
from jobyard.config.sections import SandboxSection
from jobyard.errors import ConfigurationError
from jobyard.executors.sandbox.program import KIND, QUEUE, Program
from jobyard.operations.health import Health
from jobyard.operations.queries import Queries
from jobyard.operations.sandboxes import Sandboxes, SandboxInfo, known_sandboxes, publish_sandbox
from jobyard.ports.clock import SystemClock
from jobyard.ports.store import Level
from jobyard.sandbox.protocol import SandboxState, Tier
from jobyard.stores.memory import MemoryStore


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not `tmp_path`: with the name of a test in it, the path of a socket becomes too long for the system."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
async def yard(monkeypatch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[Jobyard]:
    monkeypatch.setattr(sandbox, "DAEMON", "tests.sandbox.fake_daemon")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    yard = Jobyard("memory://")
    enable_sandbox(yard, SandboxSection(enabled=True))
    async with yard:
        yield yard


def made(yard: Jobyard) -> WorkerSandbox:
    assert yard.sandbox is not None
    assert yard.sandbox.latest is not None
    return yard.sandbox.latest


async def output(yard: Jobyard, *lines: str) -> str:
    private = msgspec.json.encode(Program(language="python", source="\n".join(lines)))
    job = new(kind=KIND, queue=QUEUE, private_payload=private)
    await yard.store.insert([job])
    found: str = msgspec.json.decode(await Queries(yard.store).result(job.id, 60))["stdout"]
    return found


async def test_worker_starts_and_stops_its_daemon(yard: Jobyard, folder: Path) -> None:
    async with yard.worker(concurrency=3):
        assert await output(yard, "out hello") == "hello\n"
        process = made(yard).daemon
        assert process is not None
        assert process.pid is not None
        [own] = folder.glob("jobyard-sandbox-*")
        assert own.stat().st_mode & 0o777 == 0o700
        state = made(yard).client.state
        assert state is not None
        assert state.slots == 3
    assert not alive(process.pid)
    assert list(folder.glob("jobyard-sandbox-*")) == []


async def test_dead_daemon_is_replaced_and_the_job_retried(yard: Jobyard) -> None:
    async with yard.worker():
        process = made(yard).daemon
        assert process is not None
        await eventually(lambda: made(yard).client.state)
        first = process.pid
        assert first is not None
        waiting = asyncio.ensure_future(output(yard, "sleep 0.5", "out x"))
        await asyncio.sleep(0.2)
        os.kill(first, signal.SIGKILL)
        assert await waiting == "x\n"
        await eventually(lambda: process.pid != first)


async def test_state_is_published_through_the_store(yard: Jobyard) -> None:
    async with yard.worker(name="w1"):
        await eventually(lambda: Sandboxes(yard.store).tier_of("c"))
        [info] = await known_sandboxes(yard.store)
        assert (info.worker, info.tier, info.slots, info.missing) == ("w1", Tier.A, 2, {"bash": "not installed"})
        assert made(yard).check().ok


async def test_check_shows_why_the_daemon_cannot_start(yard: Jobyard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "DAEMON", "tests.no_such_module")
    async with yard.worker():
        check = await eventually(lambda: found if "tests.no_such_module" in (found := made(yard).check()).reason else 0)
        assert not check.ok
        assert check.name == "sandbox"
    assert yard.store


async def test_check_shows_a_missing_interpreter(yard: Jobyard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    async with yard.worker():
        check = await eventually(lambda: found if "/nowhere/python" in (found := made(yard).check()).reason else 0)
        assert not check.ok


async def test_programs_are_accepted_while_a_daemon_restarts(tmp_path: Path) -> None:
    yard = Jobyard("memory://")
    async with daemon(tmp_path) as fake, yard:
        enable_sandbox(yard, SandboxSection(enabled=True, socket=fake.path))
        async with yard.worker():
            await eventually(lambda: Sandboxes(yard.store).tier_of("python"))
            await fake.stop()
            await asyncio.sleep(0.5)
            assert await Sandboxes(yard.store).tier_of("python") is Tier.A
            made(yard)._available_at -= 100
            await eventually(lambda: away(yard))
            await fake.start()
            await eventually(lambda: Sandboxes(yard.store).tier_of("python"))


async def away(yard: Jobyard) -> bool:
    return any(info.tier is None and info.reason for info in await known_sandboxes(yard.store))


async def test_check_fails_for_a_daemon_without_a_tier(tmp_path: Path) -> None:
    yard = Jobyard("memory://")
    async with daemon(tmp_path, state=SandboxState(reason="no namespaces here")) as fake, yard:
        enable_sandbox(yard, SandboxSection(enabled=True, socket=fake.path))
        async with yard.worker():
            await eventually(lambda: made(yard).client.state)
            check = made(yard).check()
            assert (check.ok, "no namespaces here" in check.reason) == (False, True)
            [info] = await eventually(lambda: some(yard))
            assert (info.tier, info.reason) == (None, "no namespaces here")
            assert made(yard).daemon is None


async def test_worker_readiness_shows_the_reason(tmp_path: Path) -> None:
    yard = Jobyard("memory://")
    port = free_port()
    async with daemon(tmp_path, state=SandboxState(reason="no namespaces here")) as fake, yard:
        enable_sandbox(yard, SandboxSection(enabled=True, socket=fake.path))
        health = WorkerHealth(yard, WorkerMetrics(yard), "127.0.0.1", port)
        worker = yard.worker()
        async with health.serving(worker, lambda: False), worker, httpx.AsyncClient(timeout=60) as client:
            await eventually(lambda: made(yard).client.state)
            answer = await client.get(f"http://127.0.0.1:{port}/readyz")
            assert (answer.status_code, "no namespaces here" in answer.json()["reason"]) == (503, True)
            fake.change_state(SandboxState(tier=Tier.B, slots=2))
            await eventually(lambda: made(yard).check().ok)
            assert (await client.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200


async def test_server_without_a_sandbox_stays_ready() -> None:
    store = MemoryStore(SystemClock())
    await store.open()
    health = Health(store, lambda: False)
    health.has_sandbox = True
    view = await health.ready()
    [check] = [check for check in view.checks if check.name == "sandbox"]
    assert (view.status, check.ok, check.reason) == ("ok", True, "No live worker has a sandbox.")
    await store.close()


async def some(yard: Jobyard) -> list[SandboxInfo]:
    return [info for info in await known_sandboxes(yard.store) if "namespaces" in info.reason]


async def test_results_are_kept_for_an_hour_by_default(yard: Jobyard) -> None:
    [queue] = [info for info in await yard.queues() if info.name == QUEUE]
    assert (queue.settings.keep_completed_seconds, queue.settings.keep_failed_seconds) == (3600, 3600)
    assert queue.settings.max_per_group == 1
    other = Jobyard("memory://")
    other.queue(QUEUE, keep_failed_for=7200)
    enable_sandbox(other, SandboxSection(enabled=True), concurrency=8)
    async with other:
        [queue] = [info for info in await other.queues() if info.name == QUEUE]
    # One slot is left to other groups by default.
    assert (queue.settings.keep_failed_seconds, queue.settings.max_per_group) == (7200, 7)


def test_conflicting_kind_is_rejected() -> None:
    yard = Jobyard("memory://")

    @yard.job(name=KIND)
    async def execute(ctx: Context) -> None: ...

    with pytest.raises(ConfigurationError, match=KIND):
        enable_sandbox(yard, SandboxSection(enabled=True))


def test_daemon_command_and_environment() -> None:
    section = SandboxSection(min_tier="A", slots=7, languages="/etc/l.yaml", pool=0)
    words = daemon_command(section, "/s", 2)[3:]
    assert words == ["--socket", "/s", "--min-tier", "A", "--slots", "7", "--languages", "/etc/l.yaml", "--pool", "0"]
    assert daemon_command(SandboxSection(unix_sockets=True), "/s", 2)[-1] == "--unix-sockets"
    assert daemon_command(SandboxSection(tcp_sockets=16), "/s", 2)[-2:] == ["--tcp-sockets", "16"]
    assert daemon_environment({"PATH": "/bin", "JOBYARD_STORE": "redis://:secret@h", "PGPASSWORD": "x"}) == {
        "PATH": "/bin"
    }


def test_folders_of_killed_workers_are_removed(tmp_path: Path) -> None:
    (tmp_path / "jobyard-sandbox-999999999-abc").mkdir()
    (tmp_path / f"jobyard-sandbox-{os.getpid()}-abc").mkdir()
    (tmp_path / "jobyard-sandbox-notes").mkdir()
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"jobyard-sandbox-{os.getpid()}-abc",
        "jobyard-sandbox-notes",
    ]


async def test_doctor_reports_each_sandbox(tmp_path: Path) -> None:
    store = MemoryStore(SystemClock())
    await store.open()
    assert [finding async for finding in sandbox_findings(store, SandboxSection())] == []
    [none] = [finding async for finding in sandbox_findings(store, SandboxSection(enabled=True))]
    assert (none.level, none.check) == (Level.WARN, "sandbox")
    await publish_sandbox(store, SandboxInfo(worker="w1", reason="no namespaces here"))
    async with daemon(tmp_path) as fake:
        refuses, runs, lacks = [
            finding async for finding in sandbox_findings(store, SandboxSection(enabled=True, socket=fake.path))
        ]
    assert (refuses.level, refuses.message) == (Level.FAIL, "worker w1 runs no programs: no namespaces here")
    assert (runs.level, "tier A, 4 slots, python (3.11.2), c (12.2)" in runs.message) == (Level.OK, True)
    assert (lacks.level, "does not offer bash: not installed" in lacks.message) == (Level.WARN, True)
    assert one_sandbox(SandboxInfo(worker="w"), "w")[0].level is Level.FAIL
    await store.close()
