"""Under `jobyard up`, one scrape of the server has what all worker processes counted, also those that are gone."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from tests.story.up import Up, starting, until

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]

JOB = 'kind="gate",queue="default"'
COMPLETED = f'{JOB},state="COMPLETED"'


def value(up: Up, sample: str) -> float:
    found = re.search(rf"^{re.escape(sample)} (\S+)$", up.client.get("/metrics").text, flags=re.MULTILINE)
    return 0.0 if found is None else float(found[1])


def counts(up: Up) -> list[float]:
    return [
        value(up, sample)
        for sample in (
            f"jobyard_jobs_started_total{{{JOB}}}",
            f"jobyard_jobs_finished_total{{{COMPLETED}}}",
            f"jobyard_job_run_duration_seconds_count{{{COMPLETED}}}",
        )
    ]


def test_one_scrape_has_the_counts_of_all_workers(tmp_path: Path) -> None:
    words = ("--processes", "2", "--concurrency", "1", "--lease-seconds", "6")
    with starting(tmp_path, "up", *words) as up:
        up.greet()
        for name in "ab":
            up.enqueue(name)
        pids = until("both workers run a job", lambda: len(up.runs("a") + up.runs("b")) == 2 and up.runs("a"))
        for name in "ab":
            up.flags.put(f"open-{name}")
        until("both are counted", lambda: counts(up) == [2, 2, 2])
        os.kill(pids[0], signal.SIGKILL)  # idle
        until("it is replaced", lambda: up.said().count("started, pid") == 3)
        for name in "cd":
            up.flags.put(f"open-{name}")
            up.enqueue(name)
        until("the sums go on", lambda: counts(up) == [4, 4, 4])
        until("waits are sampled", lambda: value(up, f"jobyard_job_queue_wait_seconds_count{{{JOB}}}") > 0)
        text = up.client.get("/metrics").text
        assert text.count("# TYPE jobyard_jobs_started_total counter") == 1
        used = r"^jobyard_worker_{}{{worker=\"[^\"]+\"}} [\d.e+]+$"
        assert re.findall(used.format("memory_bytes"), text, flags=re.MULTILINE)
        assert re.findall(used.format("cpu_seconds_total"), text, flags=re.MULTILINE)
        up.process.send_signal(signal.SIGTERM)
        assert up.end() == 0
        assert "Traceback" not in up.said()
