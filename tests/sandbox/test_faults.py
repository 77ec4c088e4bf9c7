"""What happens when parts of the sandbox itself are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from tests.sandbox.processes import children, family, groups_of, is_running, zygote

from jobyard.sandbox.attacks.connection import DaemonConnection, connect
from jobyard.sandbox.attacks.private_daemon import private_daemon
from jobyard.sandbox.protocol import Fault, Limits, RunFinished, RunRejected, RunRequest

LONG = Limits(time_seconds=30.0, processes=32)
SLEEP = RunRequest(
    id=0, language="python", source=b"import time\nprint(1, flush=True)\ntime.sleep(30)", limits=LONG, stream=True
)


FORKS = b"""
import os, time
for _ in range(3):
    try:
        os.fork()
    except OSError:
        pass
print(1, flush=True)
time.sleep(30)
"""


async def started(connection: DaemonConnection, run: RunRequest) -> asyncio.Future[RunFinished | RunRejected]:
    first = asyncio.Event()
    _, answer = connection.begin(run, lambda _: first.set())
    await asyncio.wait_for(first.wait(), 20)
    return answer


@pytest.mark.parametrize("which", ["zygote", "keeper"])
async def test_a_lost_zygote_is_told_and_replaced(which: str) -> None:
    async with private_daemon(slots=2) as daemon, connect(daemon.socket) as connection:
        state = await connection.ready()
        if state.tier is None:
            pytest.skip(state.reason)
        answer = await started(connection, SLEEP)
        victim = zygote(connection.daemon_pid)
        os.kill(victim if which == "zygote" else _parent(victim), signal.SIGKILL)
        lost = await asyncio.wait_for(answer, 10)
        assert isinstance(lost, RunRejected)
        assert lost.fault is Fault.ZYGOTE_LOST
        after = await connection.run(RunRequest(id=0, language="python", source=b"print(2)"))
        assert isinstance(after, RunFinished), after
        assert after.stdout == b"2\n"
        assert (await connection.fetch_state()).tier is state.tier


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_nothing_outlives_a_killed_daemon() -> None:
    async with private_daemon(slots=2) as daemon, connect(daemon.socket) as connection:
        state = await connection.ready()
        if state.tier is None:
            pytest.skip(state.reason)
        answer = await started(connection, RunRequest(id=0, language="python", source=FORKS, limits=LONG, stream=True))
        pid = connection.daemon_pid
        before = family(pid)
        os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + 5
        began = time.monotonic()
        while (left := [each for each in before if is_running(each)] + groups_of(pid)) and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert not left
        assert time.monotonic() - began < 3  # a second on a machine that does nothing else
        answer.cancel()


async def test_a_run_cancelled_at_any_moment_is_answered_and_leaves_nothing() -> None:
    async with private_daemon(slots=4, pool=0) as daemon, connect(daemon.socket) as connection:
        state = await connection.ready()
        if state.tier is None:
            pytest.skip(state.reason)
        before = len(family(connection.daemon_pid))
        for moment in range(60):
            number, answer = connection.begin(RunRequest(id=0, language="python", source=b"print(1)"))
            await asyncio.sleep(moment % 12 * 0.0004)  # never, and from the order to the program
            connection.cancel(number)
            async with asyncio.timeout(5):
                await answer
        async with asyncio.timeout(5):
            while len(family(connection.daemon_pid)) != before:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        after = await connection.run(RunRequest(id=0, language="python", source=b"print(2)"))
        assert isinstance(after, RunFinished), after


async def test_members_that_died_in_their_pool_are_no_verdict() -> None:
    async with private_daemon(slots=2) as daemon, connect(daemon.socket) as connection:
        state = await connection.ready()
        if state.tier is None:
            pytest.skip(state.reason)
        async with asyncio.timeout(10):
            while (await connection.fetch_state()).idle.get("python") != 8:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        pid = connection.daemon_pid
        first = zygote(pid)
        os.kill(pid, signal.SIGSTOP)  # it hears of nothing until the run has come, too
        for box in children(first):
            if len(children(box)) <= 1:  # or it is the parent of the sleeping inits
                for each in (*children(box), box):
                    os.kill(each, signal.SIGKILL)
        _, answer = connection.begin(RunRequest(id=0, language="python", source=b"print(1)"))
        os.kill(pid, signal.SIGCONT)
        seen = await asyncio.wait_for(answer, 10)
        assert isinstance(seen, RunFinished), seen
        assert seen.stdout == b"1\n"


async def test_a_daemon_stops_at_once_also_while_it_makes_members() -> None:
    async with private_daemon(slots=4) as daemon, connect(daemon.socket) as connection:
        state = await connection.ready()
        if state.tier is None:
            pytest.skip(state.reason)
        for _ in range(8):
            connection.begin(RunRequest(id=0, language="python", source=b"print(1)"))
        daemon.process.terminate()
        async with asyncio.timeout(4):  # a twentieth of a second on a machine that does nothing else
            await asyncio.to_thread(daemon.process.wait)


async def test_runs_end_with_their_connection() -> None:
    async with private_daemon(slots=2) as daemon, connect(daemon.socket) as watcher:
        state = await watcher.ready()
        if state.tier is None:
            pytest.skip(state.reason)
        async with connect(daemon.socket) as connection:
            await connection.ready()
            await started(connection, SLEEP)
            assert (await watcher.fetch_state()).running == 1
        async with asyncio.timeout(5):
            while (await watcher.fetch_state()).running:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_cancelled_run_is_answered() -> None:
    async with private_daemon(slots=1) as daemon, connect(daemon.socket) as connection:
        state = await connection.ready()
        if state.tier is None:
            pytest.skip(state.reason)
        first = asyncio.Event()
        number, answer = connection.begin(SLEEP, lambda _: first.set())
        await asyncio.wait_for(first.wait(), 20)
        connection.cancel(number)
        seen = await asyncio.wait_for(answer, 10)
        assert isinstance(seen, RunRejected)
        assert seen.fault is Fault.CANCELLED
        after = await connection.run(RunRequest(id=0, language="python", source=b"print(2)"))
        assert isinstance(after, RunFinished)
