"""examples/cron, as its README says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.house.repository import ROOT, blocks

EXAMPLE = ROOT / "examples/cron"

pytestmark = pytest.mark.story


def test_the_example_does_what_its_readme_says(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "cron")
    script = "".join(block.text for block in blocks(EXAMPLE / "README.md") if block.mark == "run")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JOBYARD")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    response = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"trap 'kill -KILL ${{UP:-}} 2> /dev/null || true' ERR\n{script}"],
        cwd=tmp_path / "cron", env=environment, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    log = (tmp_path / "cron/up.log").read_text("utf-8")
    assert response.returncode == 0, response.stdout + response.stderr + log
    said = response.stdout
    for expected in (
        "ok   schedule: heartbeat, declared in code: */10 * * * * * (UTC), next ",
        "ok   schedule: nightly_report, declared in code: 0 2 * * * (Asia/Seoul), next ",
        "ok   schedule: weekly-clean-up, declared in jobyard.yaml: @weekly (Europe/Berlin), next ",
        "At 09:00 on Monday through Friday (Asia/Seoul)",
        "\tfired\tafter ",
        "monthly: At 03:30 on the first day of every month (Asia/Seoul)",
        "Schedule monthly is paused.",
        "monthly  paused",
        "Schedule monthly is removed.",
        "ok   schedule: 3 in all, 0 paused",
    ):
        assert expected in said, said
    assert "heartbeat: it is declared in the code of app:yard" in response.stderr
    assert "stopped" in log.splitlines()[-1]
    assert "Traceback" not in log + response.stderr
