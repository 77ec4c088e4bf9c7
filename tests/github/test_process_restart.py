"""A manager that is killed and started again, and the processes that it had started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import Iterator

import pytest
from tests import fork_server
from tests.fork_server import PIPE, ForkedProcess
from tests.github.process_machine import STUBBORN, Machine, is_running, machine, short_waits
from tests.support import ROOT, eventually

from jobyard.github.launcher import Phase
from jobyard.github.process import launcher as launcher_module
from jobyard.github.process.folder import RunnerFolder

__all__ = ["machine", "short_waits"]


@contextlib.contextmanager
def manager(machine: Machine, when: str) -> Iterator[ForkedProcess]:
    """A manager that launches a runner; killed at the end of the block."""
    process = fork_server.start(
        "tests.github.process_manager",
        [str(machine.source), str(machine.work), when],
        environment=os.environ,
        folder=ROOT,
        stdout=PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        yield process
        process.kill()


async def has_launched(process: ForkedProcess) -> None:
    assert process.stdout is not None
    assert await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), 60) == "launched\n"


async def test_a_killed_manager_finds_its_runners_again(machine: Machine) -> None:
    machine.acts("while [ ! -e stop ]; do sleep 0.02; done; exit 3")
    await machine.launcher.stop()
    with manager(machine, "after") as process:
        await has_launched(process)
    await machine.launcher.start(machine.changes.append)
    found = machine.named("r1")
    assert found is not None
    assert (found.phase, found.org_name, found.ticket_id, found.runner_id) == (Phase.RUNNING, "acme", "t1", 77)
    assert is_running(machine.pid("r1"))
    (machine.work / "r1" / "runner" / "stop").touch()
    ended = await machine.in_phase("r1", Phase.ENDED)
    assert ended.exit_code == 3


async def test_a_manager_that_is_killed_before_it_has_recorded_the_process(machine: Machine) -> None:
    await machine.launcher.stop()
    with manager(machine, "between"):
        pid = await machine.own_pid("r1")
    await machine.launcher.start(machine.changes.append)
    found = machine.named("r1")
    assert found is not None
    assert found.phase is Phase.RUNNING
    await machine.launcher.remove(found)
    await machine.gone("r1")
    assert not is_running(pid)


async def test_a_manager_that_is_killed_before_it_starts_the_process(machine: Machine) -> None:
    await machine.launcher.stop()
    with manager(machine, "before"):
        await eventually((machine.work / "r1" / "state.json").exists, 30)
    await machine.launcher.start(machine.changes.append)
    pending = machine.named("r1")
    assert pending is not None
    assert pending.phase is Phase.PENDING
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launcher_module, "NEVER_STARTED_SECONDS", 0.0)
        ended = await machine.in_phase("r1", Phase.ENDED)
    assert "before it started" in ended.reason


async def test_a_removal_is_finished_by_the_next_manager(machine: Machine) -> None:
    machine.acts(STUBBORN)
    await machine.launcher.stop()
    with manager(machine, "removing") as process:
        await has_launched(process)
    assert (machine.work / "r1").exists()
    machine.launcher = machine.make(stop_grace=0.1)
    await machine.launcher.start(machine.changes.append)
    await machine.gone("r1")


async def test_a_process_number_that_is_used_again_is_not_the_runner(machine: Machine) -> None:
    await machine.launch()
    await machine.log("r1", "started")
    await machine.launcher.stop()
    path = machine.work / "r1" / "state.json"
    pid = machine.pid("r1")
    record = RunnerFolder(machine.work / "r1").load()
    assert record is not None
    assert record.process is not None
    # A process is known by its number and the tick of its start: a number is never used again within a tick.
    next_tick = record.process.started + 2
    await eventually(lambda: time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") > next_tick)
    stranger = await asyncio.create_subprocess_exec("sleep", "1000", start_new_session=True)
    path.write_text(path.read_text().replace(f'"pid":{pid}', f'"pid":{stranger.pid}'))
    machine.launcher = machine.make()
    await machine.launcher.start(machine.changes.append)
    found = machine.named("r1")
    assert found is not None
    await machine.launcher.remove(found, force=True)
    await machine.gone("r1")
    assert is_running(stranger.pid)
    assert not is_running(pid)  # it carries the marker
    stranger.kill()
    await stranger.wait()
