"""`jobyard demo runners`: the fakes, the manager in a process of its own, and what is shown of them."""

from __future__ import annotations

import json
import re
import sys
from asyncio.subprocess import Process
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.support import invoke

from jobyard.api.schemas.runners import RunnerOrgList
from jobyard.cli.commands import demo
from jobyard.cli.render.runners_live import RunnerLinePrinter


@pytest.mark.timeout(300)
def test_jobs_of_two_organizations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = demo.DemoScenario("a few jobs", {"acme": 4, "beta": 2}, {"acme": 1})
    monkeypatch.setitem(demo.SCENARIOS, "default", small)
    result = invoke("demo", "runners", "--job-seconds", "0.2", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["jobs"], summary["running"]) == (6, 0)
    assert 1 <= summary["most_running"] <= 3


@pytest.mark.timeout(300)
def test_a_manager_that_is_killed_ends_the_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(demo.SCENARIOS, "default", demo.DemoScenario("a job", {"acme": 1}, {}))
    while_running = demo.while_running

    async def killed_while_watched(process: Process, log: Path, work: Coroutine[Any, Any, Any]) -> Any:
        if getattr(work, "__name__", "") == "watch":
            process.kill()
        return await while_running(process, log, work)

    monkeypatch.setattr(demo, "while_running", killed_while_watched)
    result = invoke("demo", "runners", "--job-seconds", "600")
    assert result.exit_code == 1
    assert re.search(r"The manager \(process \d+\) was killed by SIGKILL\.", result.stderr)


@pytest.mark.timeout(60)
def test_a_manager_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 'Error: out of ideas.' >&2\nexit 3\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    result = invoke("demo", "runners")
    assert result.exit_code == 1
    assert "exited with code 3: Error: out of ideas." in result.stderr


def organizations(running: int) -> RunnerOrgList:
    counts = dict.fromkeys(("starting", "in_progress", "waiting", "held_back", "blocked", "jobs_this_month"), 0)
    org = {"name": "acme", "limit": 10, "own_limit": None, "paused": False, "running": running, **counts}
    return msgspec.convert({"items": [org | {"reasons": {}, "minutes_this_month": 0.0}], "totals": None}, RunnerOrgList)


def test_a_line_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    show = RunnerLinePrinter()
    for seconds in range(3):
        show(organizations(running=1), 4, seconds)
    for seconds in range(3, 6):
        show(organizations(running=0), 0, seconds)
    lines = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()[:2]) for line in lines] == ["0.0 s", "3.0 s"]
