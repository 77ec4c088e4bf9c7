"""Events as Prometheus counters and histograms, and the state of the store as gauges."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from jobyard.domain import events as e
from jobyard.domain.instant import Instant
from jobyard.domain.job import State
from jobyard.ports.admin_store import QueueAges, QueueInfo
from jobyard.ports.schedule_store import WorkerInfo

# Each label value is a row that Prometheus keeps: queues and kinds beyond these are counted together.
MAX_KINDS = 100
MAX_QUEUES = 100
OTHER = "other"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)


class Names:
    """The first so many names as they are, later ones as one.

    >>> names = Names(1)
    >>> names("a"), names("b"), names("a")
    ('a', 'other', 'a')
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(name)
        return name


class Metrics:
    """An observer with a registry of its own; `text` is what `/metrics` answers."""

    wants_each_job = True

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._queue = Names(MAX_QUEUES)
        self._kind = Names(MAX_KINDS)
        self._children: dict[tuple[Any, ...], Any] = {}
        job = ("queue", "kind")
        self._enqueued = self._counter("jobs_enqueued", "Jobs handed in through this process.", job)
        self._started = self._counter("jobs_started", "Attempts that began here.", job)
        self._finished = self._counter("jobs_finished", "Jobs that reached a final state here.", (*job, "state"))
        self._retries = self._counter("job_retries", "Attempts that ended and will be repeated.", job)
        self._lost = self._counter("leases_lost", "Attempts whose lease was lost while they ran here.", job)
        self._trouble = self._counter("store_errors", "Failed calls to the store.", ())
        self._duration = Histogram(
            "jobyard_job_run_duration_seconds",
            "How long attempts ran.",
            (*job, "state"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._waited = Histogram(
            "jobyard_job_queue_wait_seconds",
            "From when jobs were due until an attempt began here; of a sample of them.",
            job,
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._ticks = self._counter("schedule_ticks", "Due instants of schedules that were decided here.", ("verdict",))
        self._lateness = Histogram(
            "jobyard_schedule_lateness_seconds",
            "From a due instant until its job was inserted here.",
            buckets=BUCKETS,
            registry=self.registry,
        )
        info = Gauge("jobyard_build_info", "What runs here.", ("version",), registry=self.registry)
        info.labels(version("jobyard")).set(1)

    def _counter(self, name: str, about: str, labels: Iterable[str]) -> Counter:
        return Counter(f"jobyard_{name}", about, tuple(labels), registry=self.registry)

    def enqueued(self, queue: str, kind: str, number: int = 1) -> None:
        self._child(self._enqueued, queue, kind).inc(number)

    def waited(self, queue: str, kind: str, seconds: float) -> None:
        self._child(self._waited, queue, kind).observe(seconds)

    def observe(self, event: e.Event) -> None:
        match event:
            case e.JobStarted(lease):
                self._child(self._started, lease.queue, lease.kind).inc()
            case e.JobSettled():
                self._settled(event)
            case e.JobLeaseLost(lease):
                self._child(self._lost, lease.queue, lease.kind).inc()
            case e.StoreFailed():
                self._trouble.inc()
            case e.TickDecided():
                self._ticks.labels(event.verdict.value).inc(event.count)
                if event.verdict.has_job:
                    self._lateness.observe(event.late_seconds)

    def _settled(self, event: e.JobSettled) -> None:
        queue, kind = event.lease.queue, event.lease.kind
        state = "RETRYING" if event.to is State.PENDING and event.ending is not None else str(event.to)
        self._child(self._duration, queue, kind, state).observe(event.seconds)
        if event.to.is_final:
            self._child(self._finished, queue, kind, state).inc()
        elif state == "RETRYING":
            self._child(self._retries, queue, kind).inc()

    def _child(self, metric: Any, queue: str, kind: str, *more: str) -> Any:
        key = (metric, queue, kind, *more)
        child = self._children.get(key)
        if child is None:
            shown = (self._queue(queue), self._kind(kind))
            child = metric.labels(*shown, *more)
            if OTHER not in shown:  # of those beyond there is no end
                self._children[key] = child
        return child

    def text(
        self,
        queues: Iterable[QueueInfo] = (),
        workers: Iterable[WorkerInfo] = (),
        ages: Iterable[QueueAges] = (),
        now: Instant = 0,
    ) -> bytes:
        standing = gauges(queues, workers)
        add_ages(standing, ages, now)
        return generate_latest(self.registry) + generate_latest(standing)


def add_ages(registry: CollectorRegistry, ages: Iterable[QueueAges], now: Instant) -> None:
    """Of queues that are counted together the oldest."""
    name = Names(MAX_QUEUES)
    oldest: dict[str, list[float]] = {}
    for each in ages:
        known = oldest.setdefault(name(each.queue), [0.0, 0.0])
        for place, since in enumerate((each.waiting_since, each.running_since)):
            known[place] = max(known[place], 0.0 if since is None else (now - since) / 1000)
    for place, (word, about) in enumerate((
        ("queue_oldest_job_age_seconds", "How long the job that waits longest has been due; 0: none waits."),
        ("job_longest_running_seconds", "How long the job that runs longest has been running; 0: none runs."),
    )):  # fmt: skip
        gauge = Gauge(f"jobyard_{word}", about, ("queue",), registry=registry)
        for queue, seconds in oldest.items():
            gauge.labels(queue).set(seconds[place])


def gauges(queues: Iterable[QueueInfo], workers: Iterable[WorkerInfo]) -> CollectorRegistry:
    """How things stand in the store at this moment, made anew for each scrape."""
    registry = CollectorRegistry()
    jobs = Gauge("jobyard_jobs", "Jobs in the store.", ("queue", "state"), registry=registry)
    running = Gauge("jobyard_jobs_running", "Jobs that run now.", ("queue",), registry=registry)
    paused = Gauge("jobyard_queue_paused", "Whether the queue is paused.", ("queue",), registry=registry)
    name = Names(MAX_QUEUES)
    for info in queues:
        queue = name(info.name)
        for state in ("waiting", "delayed", "running", "completed", "failed", "cancelled"):
            jobs.labels(queue, state).inc(getattr(info, state))
        running.labels(queue).inc(info.running)
        paused.labels(queue).set(info.paused)
    alive = list(workers)
    for word, about, value in (
        ("workers", "Workers that are alive.", len(alive)),
        ("worker_slots", "Jobs that the live workers can run at once.", sum(one.concurrency for one in alive)),
        ("worker_slots_busy", "Jobs that the live workers run.", sum(one.running for one in alive)),
    ):
        Gauge(f"jobyard_{word}", about, registry=registry).set(value)
    return registry
