"""Processes that are kept running: replaced when they die, stopped together, never left behind."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support import eventually

from jobyard.app import process_manager as supervise
from jobyard.app.process_manager import Supervisor

# Each leaves a file named by its number; `obeys` ends on a signal, `stays` does not.
CHILD = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
if sys.argv[2] == "stays":
    signal.signal(signal.SIGTERM, lambda *_: (folder / "terminated").touch())
else:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
(folder / f"pid-{os.getpid()}").touch()
if sys.argv[2] == "fails":
    os._exit(3)
while True:
    time.sleep(0.05)
"""


def started(folder: Path) -> list[int]:
    """In the order in which they began."""
    files = sorted(folder.glob("pid-*"), key=lambda path: path.stat().st_mtime_ns)
    return [int(path.name.removeprefix("pid-")) for path in files]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@asynccontextmanager
async def supervised(
    folder: Path, how: str = "obeys", count: int = 1, seconds: float = 60.0
) -> AsyncIterator[tuple[Supervisor, asyncio.Task[None]]]:
    supervisor = Supervisor(
        lambda _: [sys.executable, "-c", CHILD, str(folder), how], os.environ, count, shutdown_seconds=seconds
    )
    running = asyncio.create_task(supervisor.run())
    try:
        yield supervisor, running
    finally:
        supervisor.force_stop()
        for pid in started(folder):
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        await asyncio.wait([running])


async def test_a_killed_process_is_replaced_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with supervised(tmp_path, count=2) as (supervisor, running):
        await eventually(lambda: len(started(tmp_path)) == 2)
        victim = supervisor.pids()[0]
        with caplog.at_level(logging.WARNING, "jobyard.app"):
            os.kill(victim, signal.SIGKILL)
            await eventually(lambda: len(started(tmp_path)) == 3)
        assert f"worker process 1 (pid {victim}) was killed by SIGKILL; restarting in 0.5 s" in caplog.text
        assert victim not in supervisor.pids()
        supervisor.stop()
        await asyncio.wait_for(running, 60)
        assert not any(map(is_alive, supervisor.pids()))


async def test_a_process_that_always_fails_is_restarted_with_backoff(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "backoff_seconds", lambda deaths: 0.01 * deaths)
    with caplog.at_level(logging.WARNING, "jobyard.app"):
        async with supervised(tmp_path, "fails"):
            await eventually(lambda: "restarting in 0.03 s" in caplog.text)
    assert "exited with code 3; restarting in 0.01 s" in caplog.text


async def test_stopping_does_not_wait_for_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "backoff_seconds", lambda deaths: 600.0)
    async with supervised(tmp_path, "fails") as (supervisor, running):
        await eventually(lambda: len(started(tmp_path)) == 1)
        await eventually(lambda: not is_alive(started(tmp_path)[0]))
        supervisor.stop()
        await asyncio.wait_for(running, 60)


@pytest.mark.parametrize("forced", [False, True])
async def test_a_process_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forced: bool
) -> None:
    """After its time, or shortly after a second request."""
    monkeypatch.setattr(supervise, "SLACK_SECONDS", 0.1)
    monkeypatch.setattr(supervise, "HURRY_SECONDS", 0.1)
    async with supervised(tmp_path, "stays", seconds=600.0 if forced else 0.1) as (supervisor, running):
        [pid] = await eventually(lambda: started(tmp_path))
        supervisor.stop()
        await eventually((tmp_path / "terminated").exists)
        if forced:
            supervisor.force_stop()
        await asyncio.wait_for(running, 60)
        assert not is_alive(pid)


async def test_a_command_that_cannot_start_is_an_error() -> None:
    supervisor = Supervisor(lambda _: ["/no/such/program"], os.environ, 2, shutdown_seconds=600)
    with pytest.raises(FileNotFoundError):
        await supervisor.run()
