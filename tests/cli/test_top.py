"""The live view and the demo."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from examples import demo, demo_app
from rich.console import Console
from tests.cli.support import PATIENCE_SECONDS, Shop, shop

from jobyard.cli.render.top import frame
from jobyard.cli.snapshot import Sampler, TopSnapshot
from jobyard.domain.job import QueueSettings
from jobyard.operations.local import LocalOperations
from jobyard.ports.admin_store import GroupInfo, QueueInfo
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock

__all__ = ["shop"]

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_once_prints_plain_lines(shop: Shop) -> None:
    shop.enqueue("send", {"to": "a"}, group="g")
    lines = shop.run("top", "--once").stdout.splitlines()
    assert "workers=0" in lines[0]
    assert "mail waiting=1 delayed=0 running=0/10 completed=0 failed=0" in lines[1]
    snapshot = shop.json("top")
    assert snapshot["queues"][0]["waiting"] == 1
    assert snapshot["groups"][0]["name"] == "g"


def test_live_on_a_terminal_until_q(shop: Shop) -> None:
    shop.enqueue("send", {"to": "a"}, group="team-a")
    with shop.on_terminal("top") as terminal:
        terminal.expect("mail/team-a")
        terminal.expect("No live workers.")
        terminal.type("q")
        assert terminal.end() == 0


def test_it_ends_when_its_terminal_goes_away(shop: Shop) -> None:
    shop.enqueue("send", {"to": "a"}, group="team-a")
    with shop.on_terminal("top", "--interval", "60") as terminal:
        terminal.expect("mail/team-a")
        terminal.hang_up()
        terminal.process.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_without_a_terminal_it_prints_until_a_signal(shop: Shop, number: signal.Signals) -> None:
    shop.enqueue("send", {"to": "a"})
    with shop.start("top", "--interval", "0.05") as process:
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(6)]
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert sum("mail waiting=1" in line for line in seen) == 3
    assert (process.returncode, errors) == (0, "")


def full_snapshot() -> TopSnapshot:
    settings = QueueSettings(max_running=100, max_per_group=10)
    counts: dict[str, Any] = {"waiting": 1_000_000, "delayed": 10_000, "running": 99}
    queues = [
        QueueInfo(
            name=f"a-rather-long-queue-name-{n}",
            settings=settings,
            paused=True,
            completed=100,
            failed=50,
            cancelled=0,
            **counts,
        )
        for n in range(3)
    ]
    groups = [
        GroupInfo(
            queue=queues[0].name,
            name=f"organisation-{n}",
            limit=None,
            effective_limit=10,
            paused=False,
            waiting=5,
            delayed=0,
            running=n % 11,
        )
        for n in range(100)
    ]
    workers = [
        WorkerInfo(id=f"a-host-with-a-long-name-{n}", host="h", pid=n, queues=(), concurrency=8) for n in range(20)
    ]
    return TopSnapshot(at=1_000_000, queues=queues, groups=groups, workers=workers, running=[], jobs_per_second=1234.5)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 60), (200, 50)])
def test_a_frame_fits_its_terminal(width: int, height: int) -> None:
    console = Console(width=width, height=height, force_terminal=True, no_color=True, record=True, file=io.StringIO())
    footer = ("one", "two")
    console.print(frame(full_snapshot(), "sqlite:///jobs.db", [1.0, 2.0], console, footer))
    lines = console.export_text().splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert lines[-1] == "two"
    text = "\n".join(lines)
    assert "1,000,000" in text
    assert "1,234.5 jobs/s" in text
    assert "more)" in text


async def test_throughput_is_what_workers_completed_between_beats() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    await store.open()
    sampler = Sampler(LocalOperations(store))
    info = WorkerInfo(id="w", host="h", pid=1, queues=(), concurrency=1, started_at=clock.now())

    async def beat(completed: int, seconds: float = 5) -> float:
        clock.advance(seconds)
        await store.heartbeat(
            WorkerInfo(**{f: getattr(info, f) for f in info.__struct_fields__} | {"completed": completed}), 60
        )
        return (await sampler.sample()).jobs_per_second

    assert await beat(10) == 2.0
    assert await beat(60) == 10.0
    assert (await sampler.sample()).jobs_per_second == 10.0
    assert await beat(60) == 0.0
    assert [await beat(60 + n, 1) for n in range(1, 6)][-1] == 1.0
    clock.advance(120)
    assert (await sampler.sample()).jobs_per_second == 0.0
    assert list(sampler.history)[:2] == [2.0, 10.0]
    await store.close()


def test_the_demo_runs_and_ends_by_itself() -> None:
    environment = os.environ | {"JOBYARD_DEMO_SECONDS": "2", "NO_COLOR": "1"}
    result = subprocess.run(
        [sys.executable, str(DEMO)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS * 2,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count(".venv/bin/jobyard ") == 3
    assert re.search(r"test-execution waiting=\d+ delayed=\d+ running=\d+/12", result.stdout)
    assert not has_crashed(result.stderr)


def has_crashed(errors: str) -> bool:
    """The log of a job that failed, as some of the demo do, has its stack indented."""
    return any(line.startswith("Traceback") for line in errors.splitlines())


def started_demo() -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, str(DEMO)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    read_until(process, "workers=1")
    return process


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"ended without {text}")


def test_a_second_interrupt_ends_the_demo_at_once() -> None:
    process = started_demo()
    process.send_signal(signal.SIGINT)
    read_until(process, "Stopping")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_SECONDS * 2)
    assert (process.returncode, has_crashed(errors)) == (130, False)


async def test_the_demo_feeds_every_team_however_slow_one_is() -> None:
    yard = demo_app.yard
    async with yard.using(MemoryStore(ManualClock())):
        await yard.set_limit("test-execution", "team-a", 0)
        for number in range(400):
            await demo.feed_once(yard, number)
        groups = {group.name: group async for group in yard.groups("test-execution")}
        assert {name: group.waiting for name, group in groups.items()} == dict.fromkeys(demo.TEAMS, demo.KEEP_WAITING)
        await demo.forget_limits(yard)
        assert {group.limit async for group in yard.groups("test-execution")} == {None}


def test_the_demo_ends_on_a_signal() -> None:
    process = started_demo()
    process.terminate()
    output, errors = process.communicate(timeout=PATIENCE_SECONDS * 2)
    assert process.returncode == 0, errors
    assert "Stopping" in output
    assert not has_crashed(errors)
