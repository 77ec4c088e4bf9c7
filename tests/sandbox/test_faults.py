"""Faults: parts of the sandbox are killed, runs are cancelled, connections closed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest
from tests.sandbox.machine_tiers import best_tier, require_tier
from tests.sandbox.processes import cgroups_of, children, is_running, process_tree, zygote
from tests.story.up import alive
from tests.support import eventually

from jobyard.sandbox.attacks.connection import DaemonConnection, connect
from jobyard.sandbox.attacks.private_daemon import private_daemon
from jobyard.sandbox.daemon import languages, program_run
from jobyard.sandbox.daemon.box import pid_of
from jobyard.sandbox.daemon.daemon import DaemonOptions, SandboxDaemon
from jobyard.sandbox.protocol import Fault, Limits, RunFinished, RunRejected, RunRequest, RunVerdict, Tier

LONG = Limits(time_seconds=600.0, processes=32)
SLEEP = RunRequest(
    id=0, language="python", source=b"import time\nprint(1, flush=True)\ntime.sleep(600)", limits=LONG, stream=True
)


FORKS = b"""
import os, time
for _ in range(3):
    try:
        os.fork()
    except OSError:
        pass
print(1, flush=True)
time.sleep(600)
"""


async def started(connection: DaemonConnection, run: RunRequest) -> asyncio.Future[RunFinished | RunRejected]:
    first = asyncio.Event()
    _, result = connection.begin(run, lambda _: first.set())
    await asyncio.wait_for(first.wait(), 60)
    return result


@pytest.mark.parametrize("which", ["zygote", "reaper"])
async def test_lost_zygote_is_reported_and_replaced(which: str) -> None:
    async with private_daemon(slots=2, languages=["python"]) as daemon, connect(daemon.socket) as connection:
        require_tier(await connection.ready())
        result = await started(connection, SLEEP)
        victim = zygote(connection.daemon_pid)
        os.kill(victim if which == "zygote" else _parent(victim), signal.SIGKILL)
        lost = await asyncio.wait_for(result, 60)
        assert isinstance(lost, RunRejected)
        assert lost.fault is Fault.ZYGOTE_LOST
        after = await connection.run(RunRequest(id=0, language="python", source=b"print(2)", limits=LONG))
        assert isinstance(after, RunFinished), after
        assert after.stdout == b"2\n"
        require_tier(await connection.fetch_state())


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_nothing_outlives_a_killed_daemon() -> None:
    async with private_daemon(slots=2, languages=["python"]) as daemon, connect(daemon.socket) as connection:
        require_tier(await connection.ready())
        result = await started(connection, RunRequest(id=0, language="python", source=FORKS, limits=LONG, stream=True))
        pid = connection.daemon_pid
        before = process_tree(pid)
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not any(map(is_running, before)) and not cgroups_of(pid))
        result.cancel()


async def test_language_is_offered_although_the_zygote_dies_during_its_self_test(tmp_path: Path) -> None:
    known = languages.load()
    slow = msgspec.structs.replace(known["bash"].self_test, source="sleep 1\necho ok", stdout="ok\n")
    bash = msgspec.structs.replace(known["bash"], self_test=slow, slow_start=True)
    file = tmp_path / "languages.yaml"
    file.write_bytes(msgspec.json.encode({"python": known["python"], "bash": bash}))
    async with private_daemon(slots=2, file=file) as daemon, connect(daemon.socket) as connection:
        require_tier(state := await connection.ready())
        if state.tier is Tier.C:
            pytest.skip("tier C runs Python only")
        while not (await connection.fetch_state()).running:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.01)
        os.kill(zygote(connection.daemon_pid), signal.SIGKILL)
        state = await connection.checked_state()
        assert (state.missing, [each.name for each in state.languages]) == ({}, ["python", "bash"])


async def test_cgroups_do_not_outlive_a_daemon_that_dies_after_its_zygote() -> None:
    """The kernel closes the descriptors of a killed daemon one after the other, so the zygote may end first."""
    async with private_daemon(slots=2, languages=["python"]) as daemon, connect(daemon.socket) as connection:
        require_tier(await connection.ready())
        pid = connection.daemon_pid
        victim = zygote(pid)
        os.kill(pid, signal.SIGSTOP)
        os.kill(victim, signal.SIGKILL)
        await eventually(lambda: not is_running(victim))
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not cgroups_of(pid))


async def test_run_cancelled_at_any_moment_leaves_nothing() -> None:
    async with private_daemon(slots=4, pool=0, languages=["python"]) as daemon, connect(daemon.socket) as connection:
        require_tier(await connection.ready())
        before = len(process_tree(connection.daemon_pid))
        for moment in range(60):
            number, result = connection.begin(RunRequest(id=0, language="python", source=b"print(1)", limits=LONG))
            await asyncio.sleep(moment % 12 * 0.0004)  # from before the spawn request until the program runs
            connection.cancel(number)
            async with asyncio.timeout(60):
                await result
        async with asyncio.timeout(60):
            while len(process_tree(connection.daemon_pid)) != before:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        after = await connection.run(RunRequest(id=0, language="python", source=b"print(2)", limits=LONG))
        assert isinstance(after, RunFinished), after


async def test_boxes_that_died_in_the_pool_are_skipped() -> None:
    async with private_daemon(slots=2, languages=["python"]) as daemon, connect(daemon.socket) as connection:
        require_tier(await connection.ready())
        async with asyncio.timeout(60):
            while (await connection.fetch_state()).idle.get("python") != 8:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        pid = connection.daemon_pid
        first = zygote(pid)
        os.kill(pid, signal.SIGSTOP)  # it sees the deaths only together with the next run
        # Otherwise it is the namespace pool, the parent of the inits.
        boxes = [box for box in children(first) if len(children(box)) <= 1]
        killed = [each for box in boxes for each in (*children(box), box)]
        for each in killed:
            os.kill(each, signal.SIGKILL)
        async with asyncio.timeout(60):
            # A process that is still dying has its pipe open, takes the code and never runs it.
            while any(map(alive, killed)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        _, result = connection.begin(RunRequest(id=0, language="python", source=b"print(1)", limits=LONG))
        os.kill(pid, signal.SIGCONT)
        seen = await asyncio.wait_for(result, 60)
        assert isinstance(seen, RunFinished), seen
        assert seen.stdout == b"1\n"


async def test_daemon_stops_promptly_while_spawning_boxes() -> None:
    async with private_daemon(slots=4, languages=["python"]) as daemon, connect(daemon.socket) as connection:
        require_tier(await connection.ready())
        for _ in range(8):
            connection.begin(RunRequest(id=0, language="python", source=b"print(1)", limits=LONG))
        daemon.process.terminate()
        async with asyncio.timeout(60):  # 0.05 s on an idle machine
            await asyncio.to_thread(daemon.process.wait)


async def test_closed_connection_ends_its_runs() -> None:
    async with private_daemon(slots=2, languages=["python"]) as daemon, connect(daemon.socket) as watcher:
        require_tier(await watcher.ready())
        async with connect(daemon.socket) as connection:
            await connection.ready()
            await started(connection, SLEEP)
            assert (await watcher.fetch_state()).running == 1
        async with asyncio.timeout(60):
            while (await watcher.fetch_state()).running:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_cancelled_run_gets_a_response() -> None:
    async with private_daemon(slots=1, languages=["python"]) as daemon, connect(daemon.socket) as connection:
        require_tier(await connection.ready())
        first = asyncio.Event()
        number, result = connection.begin(SLEEP, lambda _: first.set())
        await asyncio.wait_for(first.wait(), 60)
        connection.cancel(number)
        seen = await asyncio.wait_for(result, 60)
        assert isinstance(seen, RunRejected)
        assert seen.fault is Fault.CANCELLED
        after = await connection.run(RunRequest(id=0, language="python", source=b"print(2)", limits=LONG))
        assert isinstance(after, RunFinished)


@pytest.fixture
def python_only(tmp_path: Path) -> Path:
    """Languages of a daemon in this process: testing all of them takes most of its start."""
    path = tmp_path / "languages.yaml"
    path.write_bytes(msgspec.json.encode({"python": languages.load()["python"]}))
    return path


async def test_a_box_that_does_not_end_does_not_hold_its_slot(
    monkeypatch: pytest.MonkeyPatch, python_only: Path
) -> None:
    """The init of a box cannot end before its parent, the zygote, has reaped the program."""
    if best_tier() is not Tier.A:
        pytest.skip("only in tier A the zygote is the parent")
    monkeypatch.setattr(program_run, "_END_TIMEOUT_S", 0.2)
    daemon = SandboxDaemon(DaemonOptions(slots=1, pool=1, languages=python_only))
    others = set(children(os.getpid()))
    await daemon.start()
    try:
        await eventually(lambda: daemon.state().idle["python"])
        (reaper,) = set(children(os.getpid())) - others
        for signal_number, source, seconds, verdict in (
            (signal.SIGSTOP, b"while True: pass", 0.2, RunVerdict.TIME_LIMIT),
            (signal.SIGCONT, b"pass", 60.0, RunVerdict.OK),
        ):
            os.kill(children(reaper)[0], signal_number)
            run = RunRequest(id=0, language="python", source=source, limits=Limits(time_seconds=seconds))
            async with asyncio.timeout(60):
                seen = await daemon.run(run)
            assert isinstance(seen, RunFinished), seen
            assert seen.verdict is verdict
    finally:
        await daemon.stop()


def test_cpu_time_of_a_reaped_program_is_not_read() -> None:
    """Its pid reads as -1, which would stand for the clock of the daemon itself."""
    process = subprocess.Popen(["true"])
    pidfd = os.pidfd_open(process.pid)
    assert pid_of(pidfd) == process.pid
    process.wait()
    try:
        with pytest.raises(ProcessLookupError):
            pid_of(pidfd)
    finally:
        os.close(pidfd)


async def test_cpu_limit_is_not_that_of_the_daemon(python_only: Path) -> None:
    """Programs that end while their CPU time is checked, beside a daemon that has used far more."""
    if best_tier() is None:
        pytest.skip("no sandbox")
    daemon = SandboxDaemon(DaemonOptions(tier=Tier.C, min_tier=Tier.C, slots=4, pool=4, languages=python_only))
    await daemon.start()
    try:
        run = RunRequest(id=0, language="python", source=b"pass", limits=Limits(time_seconds=30, cpu_seconds=0.02))
        while time.process_time() < 0.5:
            pass
        for _ in range(15):
            seen = await asyncio.gather(*(daemon.run(run) for _ in range(4)))
            assert {each.verdict for each in seen if isinstance(each, RunFinished)} == {RunVerdict.OK}, seen
    finally:
        await daemon.stop()
