"""`jobyard demo runners`: the fakes, the manager in a process of its own, and what is shown of them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from tests.cli.support import invoke

from jobyard.api.schemas.runners import RunnerOrgList
from jobyard.cli.commands import demo
from jobyard.cli.render.runners_live import LinePrinter


@pytest.mark.timeout(120)
def test_jobs_of_two_organizations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = demo.Scenario("a few jobs", {"acme": 4, "beta": 2}, {"acme": 1})
    monkeypatch.setitem(demo.SCENARIOS, "default", small)
    result = invoke("demo", "runners", "--job-seconds", "0.2", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["jobs"] == 6
    assert 1 <= summary["most_running"] <= 3


def organizations(running: int) -> RunnerOrgList:
    counts = dict.fromkeys(("starting", "in_progress", "waiting", "held_back", "blocked", "jobs_this_month"), 0)
    org = {"name": "acme", "limit": 10, "own_limit": None, "paused": False, "running": running, **counts}
    return msgspec.convert({"items": [org | {"reasons": {}, "minutes_this_month": 0.0}], "totals": None}, RunnerOrgList)


def test_a_line_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    show = LinePrinter()
    for seconds in range(3):
        show(organizations(running=1), 4, seconds)
    for seconds in range(3, 6):
        show(organizations(running=0), 0, seconds)
    lines = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()[:2]) for line in lines] == ["0.0 s", "3.0 s"]
