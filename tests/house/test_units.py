"""The units of systemd: accepted by systemd itself, hardened, and with as much time as a stop may take."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.house.repository import ROOT

from jobyard.cli.commands.worker import LONGEST_END_SECONDS
from jobyard.cli.server_process import STOP_SECONDS
from jobyard.config.sections import Configuration

UNITS = sorted((ROOT / "deploy/systemd").glob("*.service"))
NAMES = {path.name.partition(".")[0].removeprefix("jobyard-").rstrip("@"): path for path in UNITS}
INSTALLED = "/opt/jobyard/bin/jobyard"
# systemd's own measure, from 0 (safe) to 10; below 2 it calls a unit "OK".
MOST_EXPOSED = 2.0
# One makes namespaces and mounts for others, and needs root for the best of them.
EXPOSED = {"jobyard-sandboxd.service": 6.0}

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def unit_settings(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in path.read_text("utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def analyze(*words: str, path: Path) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *words, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The unit with the program where it is on this machine."""
    unit: Path = request.param
    made = tmp_path / unit.name
    program = Path(sys.executable).parent / "jobyard"
    made.write_text(unit.read_text("utf-8").replace(INSTALLED, str(program)))
    return made


def test_there_is_one_for_each_service() -> None:
    assert set(NAMES) == {"server", "worker", "scheduler", "sandboxd"}


@needs_systemd
@pytest.mark.parametrize("here", UNITS, ids=lambda path: path.name, indirect=True)
def test_systemd_accepts_it(here: Path) -> None:
    result = analyze("verify", "--man=no", path=here)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize("here", UNITS, ids=lambda path: path.name, indirect=True)
def test_it_is_hardened(here: Path) -> None:
    most = EXPOSED.get(here.name, MOST_EXPOSED)
    result = analyze("security", "--offline=yes", f"--threshold={most * 10:g}", path=here)
    assert result.returncode == 0, result.stdout[-200:] + result.stderr


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_as_services_must(name: str) -> None:
    unit = unit_settings(NAMES[name])
    assert unit["ExecStart"] == [f"{INSTALLED} {name}"]
    assert (unit["Type"], unit["Restart"], unit["RestartSec"]) == (["notify"], ["always"], ["5"])
    assert int(unit["WatchdogSec"][0]) >= 30
    assert "JOBYARD_LOG__FORMAT=json" in unit["Environment"]
    # What systemd kills it after must be later than the end that it comes to by itself.
    assert float(unit["TimeoutStopSec"][0]) >= LONGEST[name]


LONGEST = {
    "server": Configuration().server.shutdown_timeout + STOP_SECONDS,
    "worker": Configuration().worker.shutdown_timeout + LONGEST_END_SECONDS,
    "scheduler": 5.0,
    "sandboxd": 5.0,
}
