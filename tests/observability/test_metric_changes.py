"""What worker processes count is added to the metrics of their supervisor, once, whatever becomes of the process."""

from __future__ import annotations

import os

import msgspec
import pytest
from tests.conformance.support import claim_one, new
from tests.observability.test_metrics import values

from jobyard import Jobyard
from jobyard.app.worker_metrics import MetricsReporter, WorkerMetrics, add_report
from jobyard.domain.events import JobStarted
from jobyard.observability.metric_changes import MetricChanges, SampleChange
from jobyard.observability.metrics import BUCKETS, MAX_KINDS, OTHER, Metrics

JOB = (("kind", "k"), ("queue", "q"))
WAIT = "jobyard_job_queue_wait_seconds"


def test_changes_are_added_to_what_the_process_counted_itself() -> None:
    server, worker = Metrics(), Metrics()
    changes = MetricChanges(worker.registry)
    server.enqueued("q", "k", 2)
    for seconds in (0.03, 3.0):
        worker.enqueued("q", "k")
        worker.waited("q", "k", seconds)
        server.add(changes.take())
        assert changes.take() == []
    samples = values(server.text())
    assert samples["jobyard_jobs_enqueued_total", JOB] == 4
    assert samples[f"{WAIT}_count", JOB] == 2
    assert samples[f"{WAIT}_sum", JOB] == pytest.approx(3.03)
    buckets = {dict(labels)["le"]: value for (name, labels), value in samples.items() if name == f"{WAIT}_bucket"}
    assert list(map(float, buckets)) == [*BUCKETS, float("inf")]
    assert (buckets["0.025"], buckets["0.05"], buckets["2.5"], buckets["5.0"], buckets["+Inf"]) == (0, 1, 1, 2, 2)


def test_a_replaced_process_counts_on() -> None:
    server = Metrics()
    for number in (1, 2, 3):
        worker = Metrics()
        worker.enqueued("q", "k")
        server.add(MetricChanges(worker.registry).take())
        assert values(server.text())["jobyard_jobs_enqueued_total", JOB] == number
    assert values(server.text())["jobyard_build_info", (("version", "0.1.0"),)] == 1, "gauges are not added"


def test_labels_of_all_processes_together_are_bounded() -> None:
    server = Metrics()
    for process in range(3):
        worker = Metrics()
        for number in range(MAX_KINDS):
            worker.enqueued("q", f"kind-{process}-{number}")
        server.add(MetricChanges(worker.registry).take())
    samples = values(server.text())
    kinds = {dict(labels)["kind"] for name, labels in samples if name == "jobyard_jobs_enqueued_total"}
    assert len(kinds) == MAX_KINDS + 1
    assert samples["jobyard_jobs_enqueued_total", (("kind", OTHER), ("queue", "q"))] == 2 * MAX_KINDS


def test_a_report_that_cannot_be_read_is_not_counted() -> None:
    server = Metrics()
    before = server.text()
    for line in (b"", b"[", b'[["a"]]', b"{}"):
        add_report(server, line)
    assert values(server.text()) == values(before)
    add_report(
        server, msgspec.json.encode([SampleChange("jobyard_store_errors", "jobyard_store_errors_total", {}, 2.0)])
    )
    assert values(server.text())["jobyard_store_errors_total", ()] == 2


async def test_a_pipe_that_is_full_delays_a_report_and_loses_nothing() -> None:
    measured = WorkerMetrics(Jobyard("memory://"))
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    reporter, server = MetricsReporter(measured, writing), Metrics()
    for number in range(MAX_KINDS):
        for _ in range(2):
            measured.metrics.waited("q", f"kind{number}", 1)
            reporter.run_once()  # far more than a pipe holds
    received = b""
    for _ in range(1000):
        try:
            received += os.read(reading, 65536)
        except BlockingIOError:
            break
        reporter.run_once()
    *lines, rest = received.split(b"\n")
    assert rest == b""
    for line in lines:
        add_report(server, line)
    samples = values(server.text())
    assert {samples[f"{WAIT}_count", (("kind", f"kind{number}"), ("queue", "q"))] for number in range(MAX_KINDS)} == {2}
    os.close(reading)
    measured.metrics.enqueued("q", "k")
    reporter.run_once()  # without a supervisor it does nothing
    os.close(writing)


async def test_the_last_changes_are_sent_when_the_worker_ends() -> None:
    yard = Jobyard("memory://")
    measured = WorkerMetrics(yard)
    reading, writing = os.pipe()
    async with yard, MetricsReporter(measured, writing).reporting():
        await yard.store.insert([new(kind="k")])
        yard.observer.observe(JobStarted(await claim_one(yard.store)))
    server = Metrics()
    with os.fdopen(reading, "rb") as pipe:
        for line in pipe:
            add_report(server, line)
    assert values(server.text())["jobyard_jobs_started_total", (("kind", "k"), ("queue", "default"))] == 1
