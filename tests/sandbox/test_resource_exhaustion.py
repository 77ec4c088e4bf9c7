"""Exhausted descriptors, memory and time: the daemon reports a fault, recovers, and leaks nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from tests.sandbox.machine_tiers import require_tier
from tests.sandbox.processes import cgroups_of, children, process_tree, zygote

from jobyard.sandbox.attacks.connection import DaemonConnection, connect
from jobyard.sandbox.attacks.leaks import descendants
from jobyard.sandbox.attacks.private_daemon import private_daemon
from jobyard.sandbox.daemon import canaries
from jobyard.sandbox.daemon.cgroup_discovery import start_time
from jobyard.sandbox.protocol import Fault, Limits, RunFinished, RunRejected, RunRequest, Tier

OWN_DISK = 15  # differs from the pool's, so a box is spawned for the run
HELLO = RunRequest(id=0, language="python", source=b"print(1)", limits=Limits(time_seconds=30, disk_mb=OWN_DISK))


async def ready(connection: DaemonConnection) -> None:
    require_tier(await connection.ready())


async def until_full(connection: DaemonConnection) -> None:
    async with asyncio.timeout(60):
        while (await connection.fetch_state()).idle.get("python") != 8:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208


def inner_groups(pid: int) -> int:
    return sum(len([each for each in Path(path).iterdir() if each.name.isdigit()]) for path in cgroups_of(pid))


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="no prlimit here")
async def test_daemon_recovers_from_descriptor_exhaustion() -> None:
    command = ("prlimit", "--nofile=320:320", sys.executable)
    async with (
        private_daemon(slots=24, command=command, languages=["python"]) as daemon,
        connect(daemon.socket) as connection,
    ):
        await ready(connection)
        await until_full(connection)
        pid = connection.daemon_pid
        before, groups = descriptors(pid), inner_groups(pid)
        results = await asyncio.gather(*(connection.run(HELLO) for _ in range(72)))
        refused = [each for each in results if isinstance(each, RunRejected)]
        assert refused, "the descriptor limit is too high for this test"
        assert {each.fault for each in refused} == {Fault.SPAWN_FAILED}
        assert "Too many open files" in refused[0].message
        async with asyncio.timeout(60):
            while descriptors(pid) > before + 8 or inner_groups(pid) > groups:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert isinstance(await connection.run(HELLO), RunFinished)


async def test_boxes_that_die_before_they_are_ready_leave_nothing() -> None:
    """The zygote's responses arrive after the boxes have died."""
    async with (
        private_daemon(slots=24, languages=["python", "javascript"]) as daemon,
        connect(daemon.socket) as connection,
    ):
        await ready(connection)
        await until_full(connection)
        pid = connection.daemon_pid
        before = len(process_tree(pid))
        for moment in (0, 1, 3, 6):
            small = [Limits(disk_mb=OWN_DISK, memory_mb=size, time_seconds=1) for size in (4, 8, 16)] * 8
            runs = [RunRequest(id=0, language="javascript", source=b"1", limits=each) for each in small]
            if "javascript" not in {known.name for known in (await connection.fetch_state()).languages}:
                runs = [RunRequest(id=0, language="python", source=b"1", limits=each) for each in small]
            results = [connection.begin(run)[1] for run in runs]
            await asyncio.sleep(moment * 0.005)  # from no box spawned to most of them
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(0.2)
            os.kill(pid, signal.SIGCONT)
            async with asyncio.timeout(60):
                await asyncio.gather(*results)
        async with asyncio.timeout(60):
            while len(process_tree(pid)) > before:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_runs_wait_for_a_zygote_that_is_lost_twice() -> None:
    async with private_daemon(slots=4, languages=["python"]) as daemon, connect(daemon.socket) as connection:
        await ready(connection)
        pid = connection.daemon_pid
        first = zygote(pid)
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(60):
            while not (another := [each for child in children(pid) for each in children(child) if each != first]):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        os.kill(another[0], signal.SIGKILL)  # while its canaries run
        results = await asyncio.gather(*(connection.run(HELLO) for _ in range(8)))
        assert [each for each in results if not isinstance(each, RunFinished)] == []


async def test_driver_spawned_on_demand_is_measured_from_its_code() -> None:
    async with private_daemon(slots=2, languages=["javascript"]) as daemon, connect(daemon.socket) as connection:
        await ready(connection)
        if "javascript" not in {known.name for known in (await connection.fetch_state()).languages}:
            pytest.skip("javascript is not offered")
        run = RunRequest(
            id=0, language="javascript", source=b"console.log(1)", limits=Limits(time_seconds=30, disk_mb=OWN_DISK)
        )
        seen = await connection.run(run)
        assert isinstance(seen, RunFinished)
        assert seen.stdout == b"1\n"
        assert seen.execution_time_ms > 0
        assert seen.setup_ms > 0
        assert seen.cpu_time_ms is not None
        assert seen.cpu_time_ms <= seen.execution_time_ms * (os.cpu_count() or 1) + 10


async def test_time_of_a_driver_is_positive_when_the_daemon_learns_late_that_it_was_ready() -> None:
    async with (
        private_daemon(slots=1, pool=0, languages=["javascript"]) as daemon,
        connect(daemon.socket) as connection,
    ):
        await ready(connection)
        if "javascript" not in {known.name for known in (await connection.fetch_state()).languages}:
            pytest.skip("javascript is not offered")
        if os.geteuid() != 0:
            pytest.skip("needs root, to see what the driver waits for")
        limits = Limits(time_seconds=30)
        _, response = connection.begin(RunRequest(id=0, language="javascript", source=b"console.log(1)", limits=limits))
        while not (drivers := [pid for pid in descendants(connection.daemon_pid) if "node" in executable(pid)]):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        os.kill(connection.daemon_pid, signal.SIGSTOP)
        try:
            while "node" in executable(drivers[0]) and "pipe_read" not in waits_for(drivers[0]):  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # until it waits for its code, or has ended
        finally:
            os.kill(connection.daemon_pid, signal.SIGCONT)
        seen = await response
        assert isinstance(seen, RunFinished)
        assert seen.stdout == b"1\n"
        assert seen.execution_time_ms > 0


def executable(pid: int) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115
    return ""


def waits_for(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/wchan").read_text()
    return ""


async def test_socket_path_of_maximum_length() -> None:
    with tempfile.TemporaryDirectory(prefix="long-") as short:
        folder = Path(short) / ("f" * (107 - len(short) - 1 - 14))
        folder.mkdir()
        async with private_daemon(tier=Tier.C, folder=folder) as daemon, connect(daemon.socket) as connection:
            assert len(os.fspath(daemon.socket)) == 107
            await connection.ready()
            assert [each.name for each in folder.iterdir()] == [daemon.socket.name]
            assert daemon.socket.stat().st_mode & 0o777 == 0o600
        assert list(folder.iterdir()) == []


def test_bait_of_killed_daemons_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = f"jobyard-canary-{os.getpid()}"
    old, young = tmp_path / f"{own}-1-x", tmp_path / f"{own}-{start_time(os.getpid())}-x"
    for path in (old, young):
        path.touch()
    with canaries.bait() as (name, _, _):
        assert Path(name).exists()
        assert (old.exists(), young.exists()) == (False, True)
    assert [path.name for path in tmp_path.iterdir()] == [young.name]
