"""Log levels and repetition: an outage does not fill the log, and a cancellation is not an error."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from jobyard.domain import events as e
from jobyard.domain.job import Ending, State
from jobyard.domain.lease import Lease
from jobyard.domain.retry import DEFAULT_BACKOFF
from jobyard.errors import StoreUnavailable
from jobyard.observability import logs
from jobyard.observability.logs import LogObserver


def test_a_repeated_store_error_is_logged_at_intervals(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("jobyard.observability.logs.time.monotonic", lambda: now)
    observer = LogObserver()
    caplog.set_level(logging.WARNING, "jobyard")

    def errors() -> int:
        return sum(record.levelno == logging.ERROR for record in caplog.records)

    for doing in ("exchanging jobs", "renewing leases", "saying that it lives") * 10:
        observer.observe(e.StoreFailed(doing, StoreUnavailable("it is away"), 1.0))
    assert errors() == 1
    observer.observe(e.StoreFailed("exchanging jobs", StoreUnavailable("it wants a password"), 1.0))
    assert errors() == 2
    now += logs.LOG_AGAIN_SECONDS
    observer.observe(e.StoreFailed("exchanging jobs", StoreUnavailable("it is away"), 1.0))
    assert errors() == 3
    observer.observe(e.StoreRecovered(12.0))
    observer.observe(e.StoreFailed("exchanging jobs", StoreUnavailable("it is away"), 1.0))
    assert errors() == 4


@pytest.mark.parametrize(
    ("to", "ending", "level"),
    [(State.FAILED, Ending.ERROR, logging.ERROR), (State.CANCELLED, Ending.CANCELLED, logging.INFO)],
)
def test_the_log_level_depends_on_how_the_job_ended(
    caplog: pytest.LogCaptureFixture, to: State, ending: Ending, level: int
) -> None:
    lease = Lease("a", 1, "t", "k", "q", None, 0, 1, 3, 0, b"{}", None, None, DEFAULT_BACKOFF)
    caplog.set_level(logging.DEBUG, "jobyard")
    LogObserver().observe(e.JobSettled(lease, to, ending, "as requested", 1.0))
    assert [record.levelno for record in caplog.records] == [level]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (
            e.WorkerStarted("w", (), 2, "redis://host:6379/0"),
            "worker w started: all queues, concurrency 2, store redis://host:6379/0",
        ),
        (e.SchedulerStarted("s", 1, "memory://"), "scheduler s started: 1 schedule, store memory://"),
        (e.WorkerStopping("w", 0, 30.0), "worker w is stopping"),
        (e.WorkerStopping("w", 2, 30.0), "worker w is stopping: up to 30 s to finish 2 running jobs"),
        (e.WorkerStopped("w", 0), "worker w stopped"),
        (e.WorkerStopped("w", 1), "worker w stopped; 1 job returned to the queue"),
    ],
)
def test_the_start_of_a_worker_names_its_store_and_its_end_its_jobs(
    caplog: pytest.LogCaptureFixture, event: e.Event, message: str
) -> None:
    caplog.set_level(logging.INFO, "jobyard")
    LogObserver().observe(event)
    assert caplog.messages == [message]


FORGED = "no\n2026-11-17 00:00:00,000 ERROR jobyard.worker: all is lost\x1b[2J"


def test_an_error_text_is_one_line_in_every_program() -> None:
    """Also in a program that has not set up logging: Python then writes warnings to stderr as they are."""
    program = f"""
import logging
import subprocess
import sys
from jobyard.domain import events as e
from jobyard.errors import StoreUnavailable
from jobyard.observability.logs import LogObserver, worker_log

LogObserver().observe(e.StoreFailed("exchanging jobs", StoreUnavailable({FORGED!r}), 1.0))
try:
    raise ValueError({FORGED!r})
except ValueError:
    worker_log.exception("it failed: %s", {FORGED!r})
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stderr
    assert "\x1b" not in said
    starts = [line for line in said.splitlines() if not line.startswith("    ")]
    assert len(starts) == 2, said
    assert all("all is lost" in line and not line.startswith("2026") for line in starts)
