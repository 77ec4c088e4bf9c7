"""`jobyard up` and `jobyard server` as processes, with an application in a folder of their own."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
from tests import fork_server
from tests.fork_server import ForkedProcess
from tests.story.flags import Flags
from tests.support import PATIENCE_SECONDS, ROOT, pauses

JOBYARD = str(Path(sys.executable).parent / "jobyard")
APP = """
import os, pathlib
from tests import fork_server
from tests.fork_server import ForkedProcess
from tests.story.flags import Flags
from jobyard import Context, Jobyard

yard = Jobyard("sqlite:///jobs.db")
flags = Flags(pathlib.Path("flags"))

@yard.job()
async def gate(ctx: Context, name: str) -> int:
    flags.put(f"started-{name}-{os.getpid()}")
    await flags.wait(f"open-{name}")
    return os.getpid()
"""


class Up:
    """A running server: its address, the token that it printed, and a client that shows this token."""

    def __init__(self, folder: Path, process: ForkedProcess, log: Path) -> None:
        self.folder = folder
        self.process = process
        self.log = log
        self.flags = Flags(folder / "flags")
        self.url = ""
        self.client = httpx.Client()

    def greet(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line)
            if line == "}\n":
                break
        assert lines, self.said()
        greeting: dict[str, Any] = json.loads("".join(lines))
        self.url = greeting["url"]
        headers = {} if greeting["token"] is None else {"Authorization": f"Bearer {greeting['token']}"}
        self.client = httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_SECONDS)
        return greeting

    def said(self) -> str:
        return self.log.read_text("utf-8")

    def enqueue(self, name: str) -> str:
        response = self.client.post("/v1/jobs", json={"kind": "gate", "payload": {"name": name}})
        assert response.status_code == 202, response.text
        return str(response.json()["id"])

    def job(self, job_id: str) -> dict[str, Any]:
        response: dict[str, Any] = self.client.get(f"/v1/jobs/{job_id}").json()
        return response

    def runs(self, name: str) -> list[int]:
        """The processes that began this job, once each."""
        return [int(path.name.rpartition("-")[2]) for path in self.flags.paths(f"started-{name}-")]

    def interrupt(self) -> None:
        """As Ctrl-C does: the signal goes to every process of the group that the terminal knows."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> int:
        """Its exit code; by then its output has ended too."""
        return self.process.wait(PATIENCE_SECONDS)


def alive(pid: int) -> bool:
    """Not gone, and not merely waiting to be asked for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(what: str, holds: Any) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause = pauses(0.02, 0.2)
    while True:
        response = holds()
        if response:
            return response
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(next(pause))


@contextmanager
def starting(folder: Path, *words: str, app: bool = True, **variables: str) -> Iterator[Up]:
    """No process outlives the test: workers end with their parent."""
    (folder / "house.py").write_text(APP)
    log = folder / "log.txt"
    before = ("--app", "house:yard") if app else ("--store", "sqlite:///jobs.db")
    environment: Mapping[str, str] = {**os.environ, "PYTHONPATH": str(ROOT), "PORT": "0", **variables}
    with log.open("w") as errors:
        process = fork_server.start(
            "jobyard",
            [*before, *words, "--json"],
            environment=environment,
            folder=folder,
            stdout=fork_server.PIPE,
            stderr=errors.fileno(),
            new_session=True,
        )
    up = Up(folder, process, log)
    with process:
        try:
            yield up
        finally:
            up.client.close()
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
