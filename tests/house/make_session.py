"""docs/images/session.svg: a real run of the server and a few commands, as they looked.

Made by `python -m tests.house.make_session`; port 8080 must be free.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text
from tests.house.repository import ROOT

PICTURE = ROOT / "docs" / "images" / "session.svg"
WIDTH = 118
BIN = Path(sys.executable).parent
TOKEN = re.compile(r"jy_[0-9a-f]{12}_[A-Za-z0-9_-]+")
SERVER = "http://127.0.0.1:8080"
AUTHORISED = f'curl -s -H "Authorization: Bearer $JOBYARD_TOKEN" {SERVER}'
SUBMIT = """-H 'Content-Type: application/json' -d '{"kind": "run_suite", "payload": {"suite": "smoke"}}'"""
COMMANDS = (
    f"{AUTHORISED}/v1/jobs {SUBMIT}",
    f"""timeout 2 {AUTHORISED}/v1/events -N | grep -o '"type":"[^"]*"' | uniq -c""",
    f"jobyard --server {SERVER} jobs list",
    f"jobyard --server {SERVER} queues list",
    f"curl -s {SERVER}/health",
    f"curl -s {SERVER}/v1/jobs",
)


def record() -> str:
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115, PTH123
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "JOBYARD_STORE": "sqlite:///jobs.db"}
        environment["PATH"] = f"{BIN}:{environment['PATH']}"
        log = Path(folder, "up.log")
        with log.open("wb") as out:
            words = [str(BIN / "jobyard"), "--app", "examples.demo_app:yard", "up"]
            server = subprocess.Popen(words, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT)
            try:
                token = _token(log)
                _type(console, "jobyard --app examples.demo_app:yard up &")
                _say(console, log.read_text())
                environment["JOBYARD_TOKEN"] = token
                for command in COMMANDS:
                    _type(console, command)
                    _say(console, _run(command, environment, folder))
                _type(console, "kill %1")
            finally:
                server.send_signal(signal.SIGTERM)
                code = server.wait(60)
        _say(console, log.read_text().splitlines()[-1])
        console.print(Text(f"[1]+  Done, exit code {code}", style="dim"))
    # Fonts from elsewhere are not ours to name; any monospaced one will do.
    return re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="jobyard up"), flags=re.DOTALL)


def _token(log: Path) -> str:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = TOKEN.search(log.read_text())
        if found and "/v1/events" in log.read_text():
            return found.group()
        time.sleep(0.05)
    raise SystemExit(f"the server did not greet: {log.read_text()}")


def _run(command: str, environment: dict[str, str], folder: str) -> str:
    done = subprocess.run(command, shell=True, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    time.sleep(0.5)  # as a reader would
    return done.stdout + done.stderr


def _type(console: Console, command: str) -> None:
    console.print(Text("$ ", style="bold green") + Text(command, style="bold"))


def _say(console: Console, text: str) -> None:
    console.print(Text(TOKEN.sub("jy_…", text).rstrip()[:1500]))
    console.print()


if __name__ == "__main__":
    PICTURE.write_text(record(), encoding="utf-8")
