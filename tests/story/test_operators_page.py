"""The operator guide: each of its commands works on a running `jobyard up`, as the page shows it."""

from __future__ import annotations

import re
import shlex
import signal
from pathlib import Path

import pytest
from tests.cli.support import invoke
from tests.house.repository import DOCS, blocks
from tests.story.engines import on_every_store
from tests.story.up import starting, until

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]

PAGE = DOCS / "operators.md"


def commands() -> list[str]:
    """Those of the first block, and those that the table of remedies shows."""
    [first, *_] = blocks(PAGE)
    of_block = [line.partition("#")[0].strip() for line in first.text.splitlines()]
    rows = re.search(r"\| what you see .*?\n\n", PAGE.read_text("utf-8"), flags=re.DOTALL)
    assert rows is not None
    return [*of_block, *re.findall(r"`(jobyard [^`]+)`", rows[0])]


@on_every_store
def test_each_command_works(tmp_path: Path, engine: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with starting(tmp_path, "up", JOBYARD_STORE=url) as up:
        up.greet()
        up.flags.put("open-a")
        job = up.enqueue("a")
        until("it is done", lambda: up.job(job)["state"] == "COMPLETED")
        waiting = up.enqueue("b")
        environment = {"JOBYARD_STORE": url, "JOBYARD_APP": "", "JOBYARD_SERVER": "", "API_URL": ""}
        assert invoke("queues", "set", "mail", "--max-running", "3", "--create", env=environment).exit_code == 0
        tried = 0
        for line in commands():
            words = [waiting[:-1] if word == "JOB_ID" else word for word in shlex.split(line)[1:]]
            if "up" in words:
                continue  # it runs
            words += ["--json"] if words[0] == "top" else []
            words += ["--yes"] if words[:2] == ["dead", "redrive"] else []
            result = invoke(*words, env=environment)
            can_fail = words[0] == "backup" and engine != "sqlite"
            assert result.exit_code == (1 if can_fail else 0), f"{line}: {result.output}"
            tried += 1
        assert tried >= 12
        up.flags.put("open-b")
        until("it is done", lambda: up.job(waiting)["state"] == "COMPLETED")
        up.process.send_signal(signal.SIGTERM)
        assert up.end() == 0
