"""The commands of the page about workflow files work as they are pasted, in their order."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.house.repository import DOCS, blocks
from tests.support import ROOT

pytestmark = pytest.mark.timeout(300)

PAGE = blocks(DOCS / "howto/workflow-files.md")
FOLDER = "examples/workflow-files"


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    shutil.copytree(ROOT / FOLDER, folder, ignore=shutil.ignore_patterns("*.db*", "__pycache__", "*.svg"))
    [urls] = [block.text for block in PAGE if block.text.startswith("id: urls")]
    (folder / "workflows/urls.yaml").write_text(urls)
    [first, *lines] = next(block.text for block in PAGE if block.mark == "tried").splitlines()
    assert first == f"cd {FOLDER}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JOBYARD_")}
    outputs: dict[str, str] = {}
    workers: list[subprocess.Popen[bytes]] = []
    try:
        for line in lines:
            words = shlex.split(line.removesuffix("&"))
            assert words[0] == "jobyard"
            command = [sys.executable, "-m", "jobyard", *words[1:]]
            if line.endswith("&"):
                workers.append(subprocess.Popen(command, cwd=folder, env=environment))
                continue
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
            outputs[" ".join(words[1:3])] = done.stdout
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait()
    assert outputs["workflows check"] == "2 valid workflows in workflows, 0 problems.\n"
    assert outputs["workflows run"].splitlines()[-1] == '{"stored":20}'
    assert [row.split("\t")[0] for row in outputs["workflows list"].splitlines()[1:]] == ["scan", "urls"]
    assert (folder / "scan.svg").read_text().startswith("<svg")
