"""Counters and gauges have the promised names, and their labels are bounded."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jobyard import Context, Jobyard
from jobyard.domain.job import QueueSettings
from jobyard.errors import JobFailed
from jobyard.observe.metrics import MAX_KINDS, MAX_QUEUES, OTHER, Metrics, gauges
from jobyard.ports.store import QueueInfo, WorkerInfo


def values(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def queue(name: str, **counts: int) -> QueueInfo:
    zero = dict.fromkeys(("waiting", "delayed", "running", "completed", "failed", "cancelled"), 0)
    return QueueInfo(name=name, settings=QueueSettings(), paused=name == "paused", **{**zero, **counts})


async def test_what_jobs_do_is_counted() -> None:
    metrics = Metrics()
    yard = Jobyard("memory://", observer=metrics)

    @yard.job()
    async def good(ctx: Context) -> None: ...

    @yard.job(max_attempts=2, backoff=0)
    async def bad(ctx: Context) -> None:
        raise ValueError("no")

    async with yard, yard.worker():
        for _ in range(3):
            await (await yard.enqueue("good")).result(10)
        with pytest.raises(JobFailed):
            await (await yard.enqueue("bad")).result(10)
    told = values(metrics.text())
    well = (("kind", "good"), ("queue", "default"))
    badly = (("kind", "bad"), ("queue", "default"))
    assert told["jobyard_jobs_started_total", well] == 3
    assert told["jobyard_jobs_started_total", badly] == 2
    assert told["jobyard_jobs_finished_total", (*well, ("state", "COMPLETED"))] == 3
    assert told["jobyard_jobs_finished_total", (*badly, ("state", "FAILED"))] == 1
    assert told["jobyard_job_retries_total", badly] == 1
    assert told["jobyard_job_run_duration_seconds_count", (*badly, ("state", "RETRYING"))] == 1
    assert told["jobyard_job_run_duration_seconds_count", (*well, ("state", "COMPLETED"))] == 3


def test_how_things_stand() -> None:
    workers = [WorkerInfo(id=one, host="h", pid=1, queues=(), concurrency=5, running=2) for one in "ab"]
    told = values(Metrics().text([queue("q", waiting=3, running=1, failed=2), queue("paused")], workers))
    assert told["jobyard_jobs", (("queue", "q"), ("state", "waiting"))] == 3
    assert told["jobyard_jobs", (("queue", "q"), ("state", "failed"))] == 2
    assert told["jobyard_jobs_running", (("queue", "q"),)] == 1
    assert told["jobyard_queue_paused", (("queue", "paused"),)] == 1
    assert told["jobyard_queue_paused", (("queue", "q"),)] == 0
    assert told["jobyard_workers", ()] == 2
    assert told["jobyard_worker_slots", ()] == 10
    assert told["jobyard_worker_slots_busy", ()] == 4


def test_labels_are_bounded() -> None:
    metrics = Metrics()
    for number in range(5 * MAX_KINDS):
        metrics.enqueued("q", f"kind{number}")
    kinds = {dict(labels)["kind"] for name, labels in values(metrics.text()) if name == "jobyard_jobs_enqueued_total"}
    assert len(kinds) == MAX_KINDS + 1
    told = values(metrics.text())
    assert told["jobyard_jobs_enqueued_total", (("kind", OTHER), ("queue", "q"))] == 4 * MAX_KINDS
    many = gauges([queue(f"q{number:04d}", waiting=1) for number in range(3 * MAX_QUEUES)], [])
    assert many.get_sample_value("jobyard_jobs", {"queue": OTHER, "state": "waiting"}) == 2 * MAX_QUEUES


def test_it_names_no_job_and_no_tenant() -> None:
    metrics = Metrics()
    labels = {label for family in metrics.registry.collect() for sample in family.samples for label in sample.labels}
    assert labels <= {"queue", "kind", "state", "version", "le"}
