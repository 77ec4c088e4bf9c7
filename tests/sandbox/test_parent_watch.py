"""The daemon stops with its parent, and notifies systemd."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.story.up import until
from tests.support import ROOT, eventually

from jobyard.sandbox.daemon.parent_watch import DaemonNotifier, on_stdin_closed


async def test_stdin_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    before = os.dup(0)
    os.dup2(reader, 0)
    try:
        stopped = asyncio.Event()
        on_stdin_closed(stopped.set)
        os.write(writer, b"ignored")
        await asyncio.sleep(0.05)  # a wrong stop would come with this write
        assert not stopped.is_set()
        assert os.read(0, 1) == b""  # child processes do not inherit the pipe
        os.close(writer)
        os.close(reader)
        await asyncio.wait_for(stopped.wait(), 60)
    finally:
        os.dup2(before, 0)
        os.close(before)


@pytest.mark.parametrize("name", ["notify", "@jobyard-test-notify"])
async def test_systemd_notifications(tmp_path: Path, name: str) -> None:
    address = name if name.startswith("@") else str(tmp_path / name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + address[1:] if name.startswith("@") else address)
        manager.setblocking(False)
        environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "150000", "HOME": "/"}
        notifier = DaemonNotifier(environment)
        assert environment == {"HOME": "/"}
        heard: list[str] = []

        def listen() -> int:
            with suppress(BlockingIOError):
                while True:
                    heard.append(manager.recv(4096).decode())
            return len(heard)

        async with notifier.running("tier A"):
            await eventually(lambda: listen() > 3)
        listen()
    assert heard[0] == "READY=1\nSTATUS=tier A"
    assert heard[1:-1] == ["WATCHDOG=1"] * (len(heard) - 2)
    assert heard[-1] == "STOPPING=1"


async def test_missing_systemd_is_ignored() -> None:
    for environment in ({}, {"NOTIFY_SOCKET": "/nowhere/at/all", "WATCHDOG_USEC": "soon"}):
        async with DaemonNotifier(environment).running("x"):
            await asyncio.sleep(0)


def test_daemon_stops_when_stdin_closes(tmp_path: Path) -> None:
    """Works on every machine, also in a daemon without a tier."""
    path = tmp_path / "s.sock"
    words = ["-m", "jobyard.sandbox.daemon", "--socket", str(path), "--min-tier", "C", "--until-input-ends"]
    with subprocess.Popen([sys.executable, *words], cwd=ROOT, stdin=subprocess.PIPE) as process:
        try:
            until("it listens", lambda: path.exists() or process.poll() is not None)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert not path.exists()


def test_a_missing_socket_folder_is_an_error_and_is_not_created(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "s.sock"
    words = ["-m", "jobyard.sandbox.daemon", "--socket", str(path), "--min-tier", "C"]
    result = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, path.parent.exists()) == (1, False)
    assert str(path.parent) in result.stderr
