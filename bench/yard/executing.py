"""Programs through the API: the server, the queue on SQLite, a worker and the sandbox, as `jobyard up` starts them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.contender import Outcome
from bench.yard import starting

CONFIGURATION = """\
store:
  url: sqlite:///jobs.db
sandbox:
  enabled: true
queues:
  code:
    max_per_group: 64  # one caller has all slots here
server:
  requests_per_second: 1000000
  request_burst: 1000000
"""
REQUEST = json.dumps({"language": "python", "source_code": starting.PROGRAM}).encode()
HEADERS = {"Content-Type": "application/json"}
START_SECONDS = 60
WARM_UP = 20
PAUSE_SECONDS = 0.01


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    """The port where it answers, once a program has run."""
    (folder / "jobyard.yaml").write_text(CONFIGURATION)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
    words = [sys.executable, "-m", "jobyard", "up", "--insecure", "--port", str(port)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            _wait(port, process, folder / "log")
            yield port
        finally:
            os.kill(process.pid, signal.SIGTERM)
            process.wait(30)


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            Caller(port).run()
        except (OSError, AssertionError, http.client.HTTPException):
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"the server did not run a program: {log.read_text()[-500:]}")


class Caller:
    """One kept connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)

    def run(self) -> float:
        """Seconds from the request to the whole answer."""
        began = time.perf_counter()
        self._connection.request("POST", "/execute?wait=5", REQUEST, HEADERS)
        answer = self._connection.getresponse()
        data = answer.read()
        took = time.perf_counter() - began
        found = json.loads(data)
        assert found.get("status") == "COMPLETED", found
        assert found["result"]["stdout"] == "1\n", found
        return took


def one_by_one(folder: Path, runs: int) -> Outcome:
    """Beside each, the bare interpreter once: what is more than its own start is what everything else costs."""
    with serving(folder) as port:
        caller = Caller(port)
        for _ in range(WARM_UP):
            caller.run()
        ours, bare = [], []
        for _ in range(runs):
            time.sleep(PAUSE_SECONDS)
            ours.append(caller.run() * 1000)
            bare.append(starting.run(starting.BARE)[1] * 1000)
    ours.sort()
    return Outcome(
        {
            "p50_ms": median(ours),
            "p99_ms": ours[len(ours) * 99 // 100],
            "bare_p50_ms": median(bare),
            "more_than_bare_ms": median(ours) - median(bare),
        }
    )


def many(folder: Path, runs: int, callers: int) -> Outcome:
    with serving(folder) as port:
        for _ in range(WARM_UP):
            Caller(port).run()
        times: list[float] = []
        share = runs // callers
        failures: list[BaseException] = []

        def call() -> None:
            try:
                caller = Caller(port)
                times.extend(caller.run() for _ in range(share))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=call) for _ in range(callers)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        elapsed = time.perf_counter() - began
    if failures:
        raise failures[0]
    times.sort()
    return Outcome({"jobs_per_second": len(times) / elapsed, "p50_ms": median(times) * 1000})
