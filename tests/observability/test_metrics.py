"""Counters and gauges have the promised names, and their labels are bounded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.conformance.support import claim_one, new
from tests.support import Watched, eventually

from jobyard import Context, Jobyard
from jobyard.domain.events import JobStarted
from jobyard.domain.job import QueueSettings
from jobyard.errors import JobFailed, StoreUnavailable
from jobyard.observability.metrics import MAX_KINDS, MAX_QUEUES, OTHER, Metrics, gauges
from jobyard.observability.wait_times import MAX_SAMPLE, WaitTimeSampler
from jobyard.ports.admin_store import QueueAges, QueueInfo
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock


def values(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def queue(name: str, **counts: int) -> QueueInfo:
    zero: dict[str, Any] = dict.fromkeys(("waiting", "delayed", "running", "completed", "failed", "cancelled"), 0)
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
            await (await yard.enqueue("good")).result(60)
        with pytest.raises(JobFailed):
            await (await yard.enqueue("bad")).result(60)
    samples = values(metrics.text())
    well = (("kind", "good"), ("queue", "default"))
    badly = (("kind", "bad"), ("queue", "default"))
    assert samples["jobyard_jobs_started_total", well] == 3
    assert samples["jobyard_jobs_started_total", badly] == 2
    assert samples["jobyard_jobs_finished_total", (*well, ("state", "COMPLETED"))] == 3
    assert samples["jobyard_jobs_finished_total", (*badly, ("state", "FAILED"))] == 1
    assert samples["jobyard_job_retries_total", badly] == 1
    assert samples["jobyard_job_run_duration_seconds_count", (*badly, ("state", "RETRYING"))] == 1
    assert samples["jobyard_job_run_duration_seconds_count", (*well, ("state", "COMPLETED"))] == 3


def test_how_things_stand() -> None:
    workers = [WorkerInfo(id=one, host="h", pid=1, queues=(), concurrency=5, running=2) for one in "ab"]
    samples = values(
        Metrics().text([queue("q", waiting=3, running=1, failed=2, removed_by_cap=9), queue("paused")], workers)
    )
    assert samples["jobyard_jobs_removed_by_cap_total", (("queue", "q"),)] == 9
    assert samples["jobyard_jobs", (("queue", "q"), ("state", "waiting"))] == 3
    assert samples["jobyard_jobs", (("queue", "q"), ("state", "failed"))] == 2
    assert samples["jobyard_jobs_running", (("queue", "q"),)] == 1
    assert samples["jobyard_queue_paused", (("queue", "paused"),)] == 1
    assert samples["jobyard_queue_paused", (("queue", "q"),)] == 0
    assert samples["jobyard_workers", ()] == 2
    assert samples["jobyard_worker_slots", ()] == 10
    assert samples["jobyard_worker_slots_busy", ()] == 4


def test_ages_are_of_the_oldest_jobs() -> None:
    ages = [
        QueueAges(queue="a", waiting_since=7_000, running_since=9_500),
        QueueAges(queue="b"),
        *(QueueAges(queue=f"q{number:04d}", waiting_since=number) for number in range(MAX_QUEUES)),
    ]
    samples = values(Metrics().text(ages=ages, now=10_000))
    waits, runs = "jobyard_queue_oldest_job_age_seconds", "jobyard_job_longest_running_seconds"
    assert (samples[waits, (("queue", "a"),)], samples[runs, (("queue", "a"),)]) == (3.0, 0.5)
    assert (samples[waits, (("queue", "b"),)], samples[runs, (("queue", "b"),)]) == (0.0, 0.0)
    assert samples[waits, (("queue", OTHER),)] == (10_000 - (MAX_QUEUES - 2)) / 1000


async def test_wait_times_are_measured_for_a_sample_of_jobs() -> None:
    metrics, clock = Metrics(), ManualClock()
    store = Watched(MemoryStore(clock))
    waits = WaitTimeSampler(metrics)
    await waits.start(store.as_store())
    await eventually(lambda: waits.wants_each_job)
    await store.insert([new(id="a", kind="now"), new(id="b", kind="later", delay_seconds=60)])
    await store.insert([new(kind="many") for _ in range(3 * MAX_SAMPLE)])
    clock.advance(62)
    for _ in range(2 + 3 * MAX_SAMPLE):
        waits.observe(JobStarted(await claim_one(store.as_store())))
    assert not waits.wants_each_job, "that is enough for a while"
    name = "jobyard_job_queue_wait_seconds"
    await eventually(lambda: (f"{name}_sum", (("kind", "many"), ("queue", "default"))) in values(metrics.text()))
    samples = values(metrics.text())
    assert samples[f"{name}_sum", (("kind", "now"), ("queue", "default"))] == 62.0
    assert samples[f"{name}_sum", (("kind", "later"), ("queue", "default"))] == 2.0, "the delay was wanted"
    assert samples[f"{name}_count", (("kind", "many"), ("queue", "default"))] == MAX_SAMPLE - 2
    assert store.calls["find"] == 1
    await eventually(lambda: waits.wants_each_job)
    await waits.stop()
    await waits.stop()
    assert not waits.wants_each_job


async def test_a_store_that_is_away_does_not_end_the_sample() -> None:
    metrics, store = Metrics(), Watched(MemoryStore(ManualClock()))
    waits = WaitTimeSampler(metrics)
    await waits.start(store.as_store())
    store.failing, store.failing_verbs = StoreUnavailable("away"), ("find",)
    for tries in (1, 2):
        await eventually(lambda: waits.wants_each_job)
        await store.insert([new(kind="k")])
        waits.observe(JobStarted(await claim_one(store.as_store())))
        await eventually(lambda tries=tries: store.calls["find"] == tries)  # type: ignore[misc]
        store.failing = None
    await eventually(lambda: b'queue_wait_seconds_count{kind="k",queue="default"} 1.0' in metrics.text())
    await waits.stop()


def test_labels_are_bounded() -> None:
    metrics = Metrics()
    for number in range(5 * MAX_KINDS):
        metrics.enqueued("q", f"kind{number}")
    kinds = {dict(labels)["kind"] for name, labels in values(metrics.text()) if name == "jobyard_jobs_enqueued_total"}
    assert len(kinds) == MAX_KINDS + 1
    samples = values(metrics.text())
    assert samples["jobyard_jobs_enqueued_total", (("kind", OTHER), ("queue", "q"))] == 4 * MAX_KINDS
    many = gauges([queue(f"q{number:04d}", waiting=1) for number in range(3 * MAX_QUEUES)], [])
    assert many.get_sample_value("jobyard_jobs", {"queue": OTHER, "state": "waiting"}) == 2 * MAX_QUEUES


def test_queues_in_use_are_shown_before_others() -> None:
    metrics = Metrics()
    for number in range(2 * MAX_QUEUES):
        metrics.enqueued(f"a{number:04d}", "k")
    junk = [queue(f"a{number:04d}", waiting=1) for number in range(5 * MAX_QUEUES)]
    limited = msgspec.structs.replace(queue("limited"), settings=QueueSettings(max_running=1))
    worker = WorkerInfo(id="w", host="h", pid=1, queues=("served",), concurrency=5)
    real = {"served", "limited", "zz"}
    infos = [*junk, limited, queue("served"), queue("zz", completed=50)]
    ages = [QueueAges(queue=info.name, waiting_since=7_000) for info in infos]
    samples = values(metrics.text(infos, [worker], ages, 10_000))
    for name in ("jobyard_jobs_running", "jobyard_queue_oldest_job_age_seconds"):
        shown = {dict(labels)["queue"] for sample, labels in samples if sample == name}
        assert (real <= shown, len(shown)) == (True, MAX_QUEUES + 1)
    for each in real:
        metrics.enqueued(each, "k")
    samples = values(metrics.text(infos, [worker]))
    shown = {dict(labels)["queue"] for sample, labels in samples if sample == "jobyard_jobs_enqueued_total"}
    assert (real <= shown, len(shown) <= 2 * MAX_QUEUES + 1) == (True, True)


def test_it_names_no_job_and_no_tenant() -> None:
    metrics = Metrics()
    labels = {label for family in metrics.registry.collect() for sample in family.samples for label in sample.labels}
    assert labels <= {"queue", "kind", "state", "version", "le"}
