"""Prometheus metrics of the runner manager: counters of this process, and gauges of the store's state."""

from __future__ import annotations

import re
from collections import Counter as Counts

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from jobyard.domain.outcome import Cancel, Failed, Handoff, Outcome, Snooze
from jobyard.domain.runners.github_job import GitHubJobState
from jobyard.domain.runners.runner import Runner, RunnerState
from jobyard.github.event_ingest import EventIngest, StoredEvent
from jobyard.github.job_records import Effect
from jobyard.github.queries import RunnerQueries
from jobyard.github.reconciler import Reconciler
from jobyard.github.recovery import Recovery
from jobyard.github.runner_ends import CANNOT_START
from jobyard.github.tickets import payload_of
from jobyard.github.webhook import ACTIONS
from jobyard.observability.metrics import OTHER, LabelValues
from jobyard.ports.executor import Attempt, Executor

# Organizations and profiles beyond these numbers are counted together.
MAX_ORGS = 100
MAX_PROFILES = 50
# From a busy cluster's image pull to a job that waits for a free slot for an hour.
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
# The name of each leg is where it ends.
LEGS = (
    ("planned", "received_at", "planned_at"),
    ("minted", "planned_at", "minted_at"),
    ("created", "minted_at", "created_at"),
    ("running", "created_at", "running_at"),
    ("online", "running_at", "online_at"),
    ("in_progress", "online_at", "busy_at"),
    ("total", "received_at", "busy_at"),
)
# A warm runner was created, and ran, before there was a job for it.
WARM_LEGS = (
    *(each for each in LEGS if each[0] not in ("created", "running", "online")),
    ("online", "minted_at", "online_at"),
)
_OVERDUE = re.compile(r"^(\w+) for more than ")
REMOVALS = {
    "its registration with GitHub is gone": "registration_gone",
    "it was registered and never launched": "never_launched",
}


class RunnerMetrics:
    """Counts what the parts of a manager report; nothing is read from the store."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._profile = LabelValues(MAX_PROFILES)

        def counter(name: str, about: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"jobyard_runner_{name}", about, labels, registry=registry)

        self._events = counter(
            "events", "Events about GitHub jobs, by action and by what they changed.", ("action", "effect")
        )
        self._unserved = counter("unserved_jobs", "Queued events of jobs whose labels no profile serves.")
        self._launches = counter(
            "launches", "Attempts to launch a runner, by profile and outcome.", ("profile", "outcome")
        )
        self._ended = counter("runners_ended", "Runners that ended, by profile and outcome.", ("profile", "outcome"))
        self._removed = counter("runners_removed", "Runners removed before they ended, by reason.", ("reason",))
        self._adopted = counter("runners_adopted", "Runners found without a ticket, and adopted.")
        self._redelivered = counter("redeliveries", "Failed webhook deliveries that GitHub was asked to repeat.")
        self._found = counter("lost_jobs_found", "Queued jobs that a scan found, because their event was lost.")
        about = "Time of each step of a launch, by the step that it ends with; total: from the webhook to the job."
        self._legs = Histogram("jobyard_runner_leg_seconds", about, ("leg",), buckets=BUCKETS, registry=registry)

    def attach_ingest(self, ingest: EventIngest) -> None:
        ingest.on_received.append(self.received)

    def attach_manager(self, reconciler: Reconciler, recovery: Recovery) -> None:
        reconciler.events.observers.append(self.observed)
        recovery.observers.append(self.recovered)

    def measured(self, executor: Executor) -> Executor:
        """The executor of tickets, with its launches counted."""
        return MeasuredExecutor(executor, self)

    def received(self, received: StoredEvent) -> None:
        action = received.event.action if received.event.action in ACTIONS else OTHER
        effect, job = received.applied
        self._events.labels(action, effect.value).inc()
        if effect is Effect.UNSERVED and job.state is GitHubJobState.QUEUED:
            self._unserved.inc()

    def observed(self, what: str, runner: Runner, why: str) -> None:
        match what:
            case "ended":
                has_run = runner.job_id is not None or bool(runner.busy_at)
                self._ended.labels(self._profile(runner.profile), "ran_job" if has_run else "without_job").inc()
                self._observe_legs(runner)
            case "removed":
                self._removed.labels(removal_reason(why)).inc()
            case "adopted":
                self._adopted.inc()

    def recovered(self, what: str, count: int) -> None:
        (self._redelivered if what == "redelivered" else self._found).inc(count)

    def launched(self, profile: str, outcome: Outcome) -> None:
        self._launches.labels(self._profile(profile), launch_outcome(outcome)).inc()

    def _observe_legs(self, runner: Runner) -> None:
        for leg, begin, end in WARM_LEGS if runner.warm_token else LEGS:
            began, ended = getattr(runner, begin), getattr(runner, end)
            if began and ended:  # clocks of the cluster and of the manager may differ a little
                self._legs.labels(leg).observe(max(0, ended - began) / 1000)


class MeasuredExecutor:
    def __init__(self, executor: Executor, metrics: RunnerMetrics) -> None:
        self._executor = executor
        self._metrics = metrics

    async def perform(self, attempt: Attempt) -> Outcome:
        outcome = await self._executor.perform(attempt)
        self._metrics.launched(payload_of(attempt.lease).profile, outcome)
        return outcome


def launch_outcome(outcome: Outcome) -> str:
    match outcome:
        case Handoff():
            return "launched"
        case Snooze():
            return "waited"
        case Cancel():
            return "not_needed"
        case Failed(retry=False):
            return "rejected"
    return "failed"


def removal_reason(why: str) -> str:
    """A code of few: the sentence may contain any text of a cluster.

    >>> removal_reason("idle for more than 300 s"), removal_reason("strange for more than 1 s"), removal_reason("?")
    ('idle_timeout', 'other', 'other')
    >>> removal_reason("it cannot start: InvalidImageName")
    'cannot_start'
    """
    if why.startswith(CANNOT_START):
        return "cannot_start"
    overdue = _OVERDUE.match(why)
    if overdue and overdue[1] in set(RunnerState):
        return f"{overdue[1]}_timeout"
    return REMOVALS.get(why, OTHER)


async def gauges_text(queries: RunnerQueries) -> bytes:
    """Gauges of the present state, made for each scrape."""
    snapshot, registry = await queries.snapshot(), CollectorRegistry()
    capacity = snapshot.capacity

    def gauge(name: str, about: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"jobyard_runner_{name}", about, labels, registry=registry)

    jobs = gauge("jobs", "Unfinished GitHub jobs, by state.", ("state",))
    counted = Counts(job.state for job in snapshot.jobs)
    for state in GitHubJobState:
        if state is not GitHubJobState.COMPLETED:
            jobs.labels(state.value).set(counted[state])
    runners = gauge("runners", "Runners, by state.", ("state",))
    of_state = Counts(runner.state for runner in snapshot.runners)
    for each in RunnerState:
        runners.labels(each.value).set(of_state[each])
    full = sum(org.limit is not None and org.running >= org.limit > 0 for org in capacity.orgs.values())
    gauge("orgs_at_limit", "Organizations that run as many runners as they may.").set(full)
    gauge("tickets_waiting", "Launches that wait for a slot or for their time.").set(snapshot.waiting_tickets)
    gauge("slots_used", "Runners that hold a slot.").set(capacity.running + of_state[RunnerState.WARM])
    if capacity.max_total is not None:
        gauge("slots", "Runners that may run at a time, in all.").set(capacity.max_total)
    minutes = gauge("minutes_this_month", "Minutes that runners worked in this month, by organization.", ("org",))
    name = LabelValues(MAX_ORGS)
    for org, spent in sorted((await queries.minutes_this_month()).items(), key=lambda each: -each[1]):
        minutes.labels(name(org)).inc(spent)
    return generate_latest(registry)
