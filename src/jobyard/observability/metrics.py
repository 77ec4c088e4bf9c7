"""Prometheus metrics: counters and histograms of events, and gauges of the store's state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from itertools import islice
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jobyard.domain import events as e
from jobyard.domain.instant import Instant
from jobyard.domain.job import QueueSettings, State
from jobyard.observability.metric_changes import SampleChange, SummedRegistry
from jobyard.ports.admin_store import QueueAges, QueueInfo
from jobyard.ports.schedule_store import WorkerInfo

# Each label value is a series that Prometheus keeps: queues and kinds beyond these limits are counted together.
MAX_KINDS = 100
MAX_QUEUES = 100
MAX_WORKERS = 200
OTHER = "other"
DEFAULT = QueueSettings()
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)


class LabelValues:
    """The first `limit` names as they are, later ones as "other".

    >>> names = LabelValues(1)
    >>> names("a"), names("b"), names("a")
    ('a', 'other', 'a')
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __call__(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(name)
        return name

    def prefer(self, names: Iterable[str]) -> None:
        """Show these from now on, also if the others have used up the limit; at most twice the limit in all."""
        self._known.update(islice(names, 2 * self._limit - len(self._known)))


class Metrics:
    """An observer with a registry of its own; `text` is the body of `/metrics`."""

    wants_each_job = True

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._queue = LabelValues(MAX_QUEUES)
        self._kind = LabelValues(MAX_KINDS)
        self._summed = SummedRegistry(self.registry, self._shown)
        self._children: dict[tuple[Any, ...], Any] = {}
        job = ("queue", "kind")
        self._enqueued = self._counter("jobs_enqueued", "Jobs enqueued through this process.", job)
        self._started = self._counter("jobs_started", "Attempts started by this process.", job)
        self._finished = self._counter("jobs_finished", "Jobs finished by this process.", (*job, "state"))
        self._retries = self._counter("job_retries", "Attempts that ended and will be retried.", job)
        self._lost = self._counter("leases_lost", "Attempts that lost their lease in this process.", job)
        self._store_errors = self._counter("store_errors", "Failed calls to the store.", ())
        self._duration = self._histogram("job_run_duration_seconds", "Duration of attempts.", (*job, "state"))
        about = "Time from when a job was due until its attempt started in this process; of a sample of jobs."
        self._waited = self._histogram("job_queue_wait_seconds", about, job)
        self._ticks = self._counter("schedule_ticks", "Ticks of schedules that this process decided.", ("verdict",))
        about = "Time from a tick until this process inserted its job."
        self._lateness = self._histogram("schedule_lateness_seconds", about, ())
        request = ("method", "route")
        self._requests = self._counter("http_requests", "HTTP requests, by route and status.", (*request, "status"))
        about = "Time from the headers of a request until its response begins."
        self._request_duration = self._histogram("http_request_duration_seconds", about, request)
        self._wrong_tokens = self._counter("http_wrong_tokens", "Requests and logins with an invalid token.", ())
        info = Gauge("jobyard_build_info", "The running version.", ("version",), registry=self.registry)
        info.labels(version("jobyard")).set(1)

    def _counter(self, name: str, about: str, labels: Iterable[str]) -> Counter:
        return Counter(f"jobyard_{name}", about, tuple(labels), registry=self.registry)

    def _histogram(self, name: str, about: str, labels: Iterable[str]) -> Histogram:
        return Histogram(f"jobyard_{name}", about, tuple(labels), buckets=BUCKETS, registry=self.registry)

    def _shown(self, label: str, value: str) -> str:
        return {"queue": self._queue, "kind": self._kind}.get(label, str)(value)

    def add(self, changes: Sequence[SampleChange]) -> None:
        """Add what another process counted."""
        self._summed.add(changes)

    def enqueued(self, queue: str, kind: str, number: int = 1) -> None:
        self._child(self._enqueued, queue, kind).inc(number)

    def waited(self, queue: str, kind: str, seconds: float) -> None:
        self._child(self._waited, queue, kind).observe(seconds)

    def requested(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an HTTP request. `route` is its path as declared, so that ids make no series of their own."""
        children = self._children.get((method, route, status))
        if children is None:
            children = (self._requests.labels(method, route, status), self._request_duration.labels(method, route))
            self._children[method, route, status] = children
        children[0].inc()
        children[1].observe(seconds)

    def token_rejected(self) -> None:
        self._wrong_tokens.inc()

    def observe(self, event: e.Event) -> None:
        match event:
            case e.JobStarted(lease):
                self._child(self._started, lease.queue, lease.kind).inc()
            case e.JobSettled():
                self._settled(event)
            case e.JobLeaseLost(lease):
                self._child(self._lost, lease.queue, lease.kind).inc()
            case e.StoreFailed():
                self._store_errors.inc()
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
            if OTHER not in shown:  # names beyond the limits would fill the memory
                self._children[key] = child
        return child

    def text(
        self,
        queues: Iterable[QueueInfo] = (),
        workers: Iterable[WorkerInfo] = (),
        ages: Iterable[QueueAges] = (),
        now: Instant = 0,
    ) -> bytes:
        infos, alive = list(queues), list(workers)
        name = queue_labels(infos, alive)
        self._queue.prefer(info.name for info in infos if info.name not in self._queue and name(info.name) != OTHER)
        current = gauges(infos, alive)
        add_ages(current, ages, now, name)
        return generate_latest(self._summed) + generate_latest(current)


def queue_labels(queues: Iterable[QueueInfo], workers: Iterable[WorkerInfo]) -> LabelValues:
    """The labels of the queues: those with settings or a worker of their own first, then those with the most jobs."""
    served = {queue for worker in workers for queue in worker.queues}

    def rank(info: QueueInfo) -> tuple[bool, int]:
        jobs = info.waiting + info.delayed + info.running + info.completed + info.failed
        return info.settings == DEFAULT and info.name not in served, -jobs

    names = LabelValues(MAX_QUEUES)
    for info in sorted(queues, key=rank):
        names(info.name)
    return names


def add_ages(registry: CollectorRegistry, ages: Iterable[QueueAges], now: Instant, name: LabelValues) -> None:
    """Add the age gauges; of queues that are counted together, the oldest counts."""
    oldest: dict[str, list[float]] = {}
    for each in ages:
        known = oldest.setdefault(name(each.queue), [0.0, 0.0])
        for index, since in enumerate((each.waiting_since, each.running_since)):
            known[index] = max(known[index], 0.0 if since is None else (now - since) / 1000)
    for index, (word, about) in enumerate((
        ("queue_oldest_job_age_seconds", "Age of the oldest waiting job since it was due; 0 without one."),
        ("job_longest_running_seconds", "Age of the longest running job; 0 without one."),
    )):  # fmt: skip
        gauge = Gauge(f"jobyard_{word}", about, ("queue",), registry=registry)
        for queue, seconds in oldest.items():
            gauge.labels(queue).set(seconds[index])


def gauges(queues: Iterable[QueueInfo], workers: Iterable[WorkerInfo]) -> CollectorRegistry:
    """Gauges of the store's present state, made for each scrape."""
    registry = CollectorRegistry()
    jobs = Gauge("jobyard_jobs", "Jobs in the store.", ("queue", "state"), registry=registry)
    running = Gauge("jobyard_jobs_running", "Running jobs.", ("queue",), registry=registry)
    paused = Gauge("jobyard_queue_paused", "Whether the queue is paused.", ("queue",), registry=registry)
    about = "Finished jobs that keep_at_most removed before their time."
    by_cap = Counter("jobyard_jobs_removed_by_cap", about, ("queue",), registry=registry)
    infos, alive = list(queues), list(workers)
    name = queue_labels(infos, alive)
    for info in infos:
        queue = name(info.name)
        for state in ("waiting", "delayed", "running", "completed", "failed", "cancelled"):
            jobs.labels(queue, state).inc(getattr(info, state))
        running.labels(queue).inc(info.running)
        paused.labels(queue).set(info.paused)
        by_cap.labels(queue).inc(info.removed_by_cap)
    for word, about, value in (
        ("workers", "Live workers.", len(alive)),
        ("worker_slots", "Job slots of the live workers.", sum(one.concurrency for one in alive)),
        ("worker_slots_busy", "Busy job slots of the live workers.", sum(one.running for one in alive)),
    ):
        Gauge(f"jobyard_{word}", about, registry=registry).set(value)
    registry.register(WorkerUsage(alive[:MAX_WORKERS]))
    return registry


class WorkerUsage(Collector):
    """Memory and processor time of each live worker, as of its last heartbeat."""

    def __init__(self, workers: Iterable[WorkerInfo]) -> None:
        self._workers = [worker for worker in workers if worker.memory_bytes]

    def collect(self) -> Iterator[Metric]:
        memory = "Memory of the worker with its child processes."
        cpu = "Processor time of the worker with its child processes."
        of_memory = GaugeMetricFamily("jobyard_worker_memory_bytes", memory, labels=("worker",))
        of_cpu = CounterMetricFamily("jobyard_worker_cpu_seconds", cpu, labels=("worker",))
        for worker in self._workers:
            of_memory.add_metric((worker.id,), worker.memory_bytes)
            of_cpu.add_metric((worker.id,), worker.cpu_seconds)
        yield of_memory
        yield of_cpu
