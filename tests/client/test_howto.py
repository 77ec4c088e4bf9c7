"""The examples of docs/howto/client.md, run against a server and type-checked as they are written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.house.repository import DOCS, Block, blocks
from tests.support import ROOT, mypy, python

PAGE = blocks(DOCS / "howto/client.md")
PROGRAMS = [block for block in PAGE if block.mark == "client"]
USUAL = "http://127.0.0.1:8080"


def expected(block: Block) -> str:
    following = PAGE[PAGE.index(block) + 1]
    assert following.mark == "output"
    return following.text


def test_the_examples_run(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(next(block.text for block in PAGE if block.mark == "app"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "jobyard", "--app", "shop:yard", "up", "--port", "0", "--insecure", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            text = ""
            while not text.endswith("}\n") and (line := server.stdout.readline()):
                text += line
            url = json.loads(text)["url"]
            for number, block in enumerate(PROGRAMS):
                (tmp_path / f"program_{number}.py").write_text(block.text.replace(USUAL, url))
                response = python("-W", "error", f"program_{number}.py", cwd=tmp_path)
                assert (response.stdout, response.returncode) == (expected(block), 0), response.stderr
        finally:
            server.terminate()


def test_the_examples_are_typed(tmp_path: Path) -> None:
    assert len(PROGRAMS) == 3
    for number, block in enumerate(PROGRAMS):
        (tmp_path / f"program_{number}.py").write_text(block.text)
    assert mypy(tmp_path) == ""
