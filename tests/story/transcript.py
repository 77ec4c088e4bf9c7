"""Writes docs/transcript.md from a real run of what `make run` runs: `python -m tests.story.transcript`."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.house.repository import DOCS
from tests.story.test_readme import free_port, made_to_run, shell

PAGE = DOCS / "transcript.md"
SHOWN = "8080"
WIDTH = 116
JOBYARD = str(Path(sys.executable).parent / "jobyard")
HEAD = """# A run of the server

Made by `python -m tests.story.transcript` from a real run, with the second at which each command was typed. The token
and long lines are cut.

"""


class Transcript:
    def __init__(self, port: int) -> None:
        self._port = str(port)
        self._began = time.monotonic()
        self._secret = ""
        self.lines: list[str] = []

    def hide(self, token: str) -> None:
        self._secret = token

    def typed(self, command: str) -> None:
        self.lines += ["", f"[{time.monotonic() - self._began:5.1f} s] $ {self._as_shown(command)}"]

    def printed(self, text: str) -> None:
        for line in text.rstrip("\n").splitlines():
            shown = self._as_shown(line)
            self.lines.append(shown if len(shown) <= WIDTH else f"{shown[:WIDTH]}…")

    def _as_shown(self, text: str) -> str:
        if self._secret:
            text = text.replace(self._secret, f"{self._secret[:8]}…")
        return text.replace(f":{self._port}", f":{SHOWN}").replace(JOBYARD, "jobyard")

    def run(self, command: str, token: str) -> str:
        self.typed(command)
        answer = shell(command, token)
        self.printed(answer)
        return answer


def main() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    who = '-H "Authorization: Bearer $JOBYARD_TOKEN"'
    with tempfile.TemporaryDirectory() as folder:
        told = Transcript(port)
        told.typed("make run")
        with made_to_run(Path(folder), port) as (process, printed):
            [token] = re.findall(r"export JOBYARD_TOKEN=(\S+)", "\n".join(printed))
            told.hide(token)
            os.environ["JOBYARD_SERVER"] = url
            told.printed("\n".join(printed).replace(folder, "run"))
            body = '{"kind": "run_suite", "payload": {"suite": "smoke", "tests": 5}, "group": "team-a"}'
            job = json.loads(
                told.run(f"curl -s {url}/v1/jobs {who} -H 'Content-Type: application/json' -d '{body}'", token)
            )
            told.run(f"timeout 3 curl -sN {url}/v1/jobs/{job['id']}/events {who} || true", token)
            told.run(f"{JOBYARD} --server {url} jobs show {job['id']}", token)
            told.run(f"curl -s {url}/health {who}", token)
            told.typed("# Ctrl-C in the first terminal")
            process.send_signal(signal.SIGINT)
            told.printed(f"exit code {process.wait(60)}")
    PAGE.write_text(HEAD + "```console\n" + "\n".join(told.lines).strip("\n") + "\n```\n", "utf-8")


if __name__ == "__main__":
    main()
