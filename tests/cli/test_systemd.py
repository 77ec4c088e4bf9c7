"""systemd is notified when ready, while the loop runs, and when stopping, with enough time."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.support import PATIENCE_SECONDS, Shop, shop

from jobyard.cli.systemd import PINGS, SystemdNotifier

__all__ = ["shop"]

WATCHDOG_SECONDS = 0.6
BLOCKING = """
import os, pathlib, time
from jobyard import Context, Jobyard

yard = Jobyard("sqlite:///shop.db")

@yard.job()
async def block(ctx: Context) -> str | None:
    pathlib.Path("blocked").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    return os.environ.get("NOTIFY_SOCKET")
"""


class Manager:
    """A service manager's ear."""

    def __init__(self) -> None:
        name = f"jobyard-test-{uuid.uuid4().hex}"
        self.ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ear.bind(f"\0{name}")
        self.environment = {"NOTIFY_SOCKET": f"@{name}", "WATCHDOG_USEC": str(round(WATCHDOG_SECONDS * 1_000_000))}

    def hear(self, seconds: float = PATIENCE_SECONDS) -> list[str]:
        """The next thing that is said; nothing after the time."""
        self.ear.settimeout(seconds)
        try:
            return self.ear.recv(4096).decode().split("\n")
        except TimeoutError:
            return []

    def hear_of(self, word: str) -> list[str]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while word not in (said := self.hear()):
            assert said, f"{word} was not said"
            assert time.monotonic() < deadline, f"{word} was not said"
        return said

    def forget(self) -> None:
        """What was said until now."""
        self.ear.settimeout(0)
        try:
            while True:
                self.ear.recv(4096)
        except BlockingIOError:
            return


@pytest.fixture
def manager() -> Iterator[Manager]:
    made = Manager()
    with made.ear:
        yield made


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.005)


def test_a_worker_says_that_it_is_ready_alive_and_stopping(
    shop: Shop, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop.folder / f"{shop.module}.py").write_text(BLOCKING)
    for name, value in manager.environment.items():
        monkeypatch.setenv(name, value)
    with shop.start("worker", "--concurrency", "3", "--shutdown-timeout", "20") as process:
        ready = manager.hear_of("READY=1")
        assert any(word.startswith("STATUS=") and word.endswith("all queues, 3 at a time") for word in ready)
        manager.hear_of("WATCHDOG=1")
        monkeypatch.delenv("NOTIFY_SOCKET")
        job = shop.enqueue("block")
        wait_for(shop.folder / "blocked")
        manager.forget()
        assert manager.hear(WATCHDOG_SECONDS) == [], "the loop stands still, and yet it is said to turn"
        (shop.folder / "go").touch()
        manager.hear_of("WATCHDOG=1")
        process.send_signal(signal.SIGTERM)
        assert "EXTEND_TIMEOUT_USEC=35000000" in manager.hear_of("STOPPING=1")
        assert process.wait(PATIENCE_SECONDS) == 0
    assert shop.json("jobs", "show", job)["result"] is None, "what a handler starts would speak for the worker"


def test_a_server_says_where_it_is(shop: Shop, manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in manager.environment.items():
        monkeypatch.setenv(name, value)
    with shop.start("server", "--port", "0") as process:
        assert any(word.startswith("STATUS=http://127.0.0.1:") for word in manager.hear_of("READY=1"))
        manager.hear_of("WATCHDOG=1")
        process.send_signal(signal.SIGTERM)
        assert "EXTEND_TIMEOUT_USEC=15000000" in manager.hear_of("STOPPING=1")
        printed, logged = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0
    assert printed == "", "a token would stay in the journal"
    assert "jobyard tokens create" in logged
    assert "up at http://127.0.0.1:" in logged


async def test_signs_of_life_stop_when_what_matters_stands_still(manager: Manager) -> None:
    environment = dict(manager.environment)
    turning = True
    notify = SystemdNotifier(environment)
    assert environment == {}
    async with notify.pinging(lambda: turning):
        assert await asyncio.to_thread(manager.hear) == ["WATCHDOG=1"]
        turning = False
        manager.forget()
        assert await asyncio.to_thread(manager.hear, WATCHDOG_SECONDS) == []
        turning = True
        assert await asyncio.to_thread(manager.hear) == ["WATCHDOG=1"]
    manager.forget()
    assert await asyncio.to_thread(manager.hear, 2 * WATCHDOG_SECONDS / PINGS) == []


async def test_no_notifications_without_systemd(manager: Manager, tmp_path: Path) -> None:
    async with (silent := SystemdNotifier({"WATCHDOG_USEC": "10000"})).pinging():
        silent.ready("x")
    gone = SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    gone.ready("the manager went away")
    another = SystemdNotifier(manager.environment | {"WATCHDOG_PID": str(os.getppid())})
    assert another.watchdog_seconds is None, "another process is watched"
