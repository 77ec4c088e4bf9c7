"""Noisy neighbours: with bombs in all slots except one, the last one is served. How fast is a row of the benchmarks."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.sandbox.processes import zygote

from jobyard.sandbox.attacks.attack import Attack
from jobyard.sandbox.attacks.catalogue import ATTACKS
from jobyard.sandbox.attacks.connection import DaemonConnection
from jobyard.sandbox.attacks.leaks import groups
from jobyard.sandbox.protocol import Limits, RunFinished, RunRequest, RunVerdict

PATIENT = Limits(time_seconds=60)  # on a busy machine, too
NORMAL = RunRequest(id=0, language="python", source=b"print(sum(range(1000)))\n", limits=PATIENT)
SLEEPER = RunRequest(id=0, language="python", source=b"import time\ntime.sleep(60)\n", limits=PATIENT)
MANY_CHILDREN = b"import os, time\nfor _ in range(20):\n    if os.fork() == 0:\n        break\ntime.sleep(60)\n"
CHILDREN = RunRequest(id=0, language="python", source=MANY_CHILDREN, limits=PATIENT)
FORKS, MEMORY = (next(attack for attack in ATTACKS if attack.number == number) for number in (1, 3))
RUNS = 15
SHARES = {"cpu.shares": "1024", "cpu.weight": "100"}  # what the kernel gives a new cgroup: of version 1, of version 2


async def bombard(connection: DaemonConnection, bombs: Sequence[Attack]) -> None:
    for bomb in itertools.cycle(bombs):
        assert isinstance(bomb.program, str)
        seen = await connection.run(
            RunRequest(id=0, language="python", source=bomb.program.encode(), limits=Limits(time_seconds=1))
        )
        assert isinstance(seen, RunFinished), seen
        assert seen.verdict in {
            RunVerdict.TIME_LIMIT,
            RunVerdict.MEMORY_LIMIT,
            RunVerdict.CPU_LIMIT,
            RunVerdict.RUNTIME_ERROR,
        }


@pytest.mark.parametrize("bombs", [(FORKS,), (MEMORY,), (FORKS, MEMORY)], ids=["forks", "memory", "both"])
async def test_ordinary_runs_are_served_beside_bombs(bombs: tuple[Attack, ...], connection: DaemonConnection) -> None:
    slots = (await connection.fetch_state()).slots
    neighbours = [
        asyncio.create_task(bombard(connection, bombs[place % len(bombs) :] + bombs)) for place in range(slots - 1)
    ]
    await until_running(connection, slots - 1)
    for _ in range(RUNS):
        seen = await connection.run(NORMAL)
        assert isinstance(seen, RunFinished)
        assert (seen.verdict, seen.stdout) == (RunVerdict.OK, b"499500\n")
    for each in neighbours:
        each.cancel()
    ended = await asyncio.gather(*neighbours, return_exceptions=True)
    assert [each for each in ended if not isinstance(each, asyncio.CancelledError)] == []
    await until_running(connection, 0)


async def test_a_run_with_many_processes_has_the_share_of_one_run(connection: DaemonConnection) -> None:
    """The kernel divides the processors among cgroups, whatever the number of processes in each."""
    async with running(connection, SLEEPER), running(connection, CHILDREN):
        crowded = await crowded_group(connection)
        others = [group for group in processor_groups(connection) if group != crowded and members(group)]
        assert others
        assert {share(group) for group in (crowded, *others)} <= set(SHARES.items())


async def test_programs_have_a_lower_priority_than_what_limits_them(connection: DaemonConnection) -> None:
    """Otherwise busy programs delay the timers of the daemon, and the spawning of boxes."""
    async with running(connection, CHILDREN):
        programs = {niceness(pid) for pid in members(await crowded_group(connection))}
        assert min(programs) > niceness(connection.daemon_pid)
        assert min(programs) > niceness(zygote(connection.daemon_pid))


@asynccontextmanager
async def running(connection: DaemonConnection, request: RunRequest) -> AsyncIterator[None]:
    """A run that is cancelled at exit."""
    run_id, response = connection.begin(request)
    try:
        yield
    finally:
        connection.cancel(run_id)
        await response


async def crowded_group(connection: DaemonConnection) -> Path:
    """Wait until the children are there, and return their cgroup."""
    if not list(processor_groups(connection)):
        pytest.skip("no cgroups here: a run has one process")
    while not (found := [each for each in processor_groups(connection) if len(members(each)) > 20]):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return found[0]


def processor_groups(connection: DaemonConnection) -> Iterator[Path]:
    """The cgroup of each box in the hierarchy that divides the processors."""
    for group in groups(connection.daemon_pid):
        if any((group / name).exists() for name in SHARES) and group.name.isdigit():
            yield group


def members(group: Path) -> list[int]:
    with suppress(OSError):
        return [int(line) for line in (group / "cgroup.procs").read_text().split()]
    return []


def share(group: Path) -> tuple[str, str]:
    name = next(name for name in SHARES if (group / name).exists())
    return name, (group / name).read_text().strip()


def niceness(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[16])


async def until_running(connection: DaemonConnection, count: int) -> None:
    """Wait until as many runs are under way, or none if `count` is 0."""
    while (running := (await connection.fetch_state()).running) < count or (running and not count):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
