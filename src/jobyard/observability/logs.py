"""Observer that writes events as log lines, with one logger per component."""

from __future__ import annotations

import logging
import time

from jobyard.domain import events as e
from jobyard.domain.instant import rfc3339
from jobyard.domain.job import State, error_summary
from jobyard.domain.lease import Lease
from jobyard.domain.schedule import Verdict
from jobyard.domain.text import counted, size_text
from jobyard.observability.current import lease_fields
from jobyard.observability.log_sanitizer import protect_logs

worker_log = logging.getLogger("jobyard.worker")
store_log = logging.getLogger("jobyard.store")
scheduler_log = logging.getLogger("jobyard.scheduler")

protect_logs()

# A continuing failure is logged again after this long.
LOG_AGAIN_SECONDS = 10.0
MAX_REMEMBERED_ERRORS = 100


class LogObserver:
    """Logs each job's start and good end at DEBUG, and failures at WARNING or ERROR."""

    def __init__(self) -> None:
        self._logged_at: dict[str, float] = {}  # by message of the store's error

    @property
    def wants_each_job(self) -> bool:
        return worker_log.isEnabledFor(logging.DEBUG)

    def observe(self, event: e.Event) -> None:
        match event:
            case e.JobStarted(lease):
                _log_job(lease, logging.DEBUG, "%s %s started, attempt %d", lease.attempt)
            case e.JobReported(lease, progress):
                _log_job(lease, logging.DEBUG, "%s %s: %g %% %s", progress.percent, progress.message)
            case e.JobSettled():
                self._log_settled(event)
            case e.SettlementRefused(lease, to):
                _log_job(lease, logging.WARNING, "%s %s: settlement as %s refused, the lease was lost", to)
            case e.JobLeaseLost(lease):
                _log_job(lease, logging.WARNING, "%s %s: lease lost, stopping the attempt")
            case e.LeasesExpired(worker, leases):
                jobs = ", ".join(lease.job_id for lease in leases[:3]) + (", …" if len(leases) > 3 else "")
                text = "worker %s stopped renewing its leases: %s reclaimed (%s)"
                worker_log.warning(text, worker, counted(len(leases), "job"), jobs)
            case e.StoreFailed(doing, error, seconds):
                # One outage makes many calls fail: it is logged once, then at intervals until it is over.
                level = logging.ERROR if self._is_new(str(error)) else logging.DEBUG
                store_log.log(level, "%s failed: %s (retrying in %.1f s)", doing, error, seconds)
            case e.StoreRecovered(seconds):
                self._logged_at.clear()
                store_log.warning("the store recovered after %.1f s", seconds)
            case e.RetentionCapReached(queue, removed, most):
                text = "queue %s holds more than keep_at_most = %d finished jobs: %s removed before their time"
                store_log.warning(text, queue, most, counted(removed, "job"))
            case e.EventLoopBlocked():
                _log_blocked(event)
            case e.ClockStepped(seconds):
                worker_log.warning("the store's clock was set by %+.1f s", seconds)
            case _:
                self._log_worker(event)

    def _is_new(self, message: str) -> bool:
        now = time.monotonic()
        if now - self._logged_at.get(message, -LOG_AGAIN_SECONDS) < LOG_AGAIN_SECONDS:
            return False
        if len(self._logged_at) >= MAX_REMEMBERED_ERRORS:
            self._logged_at.clear()
        self._logged_at[message] = now
        return True

    def _log_worker(self, event: e.Event) -> None:
        match event:
            case e.WorkerStarted(worker, queues, concurrency, store):
                served = ", ".join(queues) or "all queues"
                worker_log.info("worker %s started: %s, concurrency %d, store %s", worker, served, concurrency, store)
            case e.WorkerQuiet(worker, running):
                worker_log.info("worker %s is quiet and claims no more jobs; %d are running", worker, running)
            case e.WorkerMemoryHigh(worker, used, limit, running):
                memory = f"{size_text(used)} of its memory limit of {size_text(limit)}"
                text = "worker %s uses %s: it claims no more jobs and is replaced; %d are running"
                worker_log.warning(text, worker, memory, running)
            case e.WorkerStopping(worker, running, grace):
                task = f": up to {grace:g} s to finish {counted(running, 'running job')}" if running else ""
                worker_log.info("worker %s is stopping%s", worker, task)
            case e.WorkerStopped(worker, handed_back):
                returned = f"; {counted(handed_back, 'job')} returned to the queue" if handed_back else ""
                worker_log.info("worker %s stopped%s", worker, returned)
            case _:
                _log_scheduler(event)

    def _log_settled(self, event: e.JobSettled) -> None:
        lease = event.lease
        if event.ending is None:
            _log_job(lease, logging.DEBUG, "%s %s is %s after %.3f s", event.to, event.seconds)
        elif event.to is State.PENDING:
            text = "%s %s: attempt %d of %d ended with %s (%s); it will run again"
            attempts, why = (lease.attempt, lease.max_attempts), error_summary(event.error_type, event.message or "")
            _log_job(lease, logging.WARNING, text, *attempts, event.ending, why, raised=event.raised)
        else:
            # A cancellation was requested, so it is not an error.
            level = logging.INFO if event.to is State.CANCELLED else logging.ERROR
            why = error_summary(event.error_type, event.message or "")
            _log_job(lease, level, "%s %s is %s: %s", event.to, why, raised=event.raised)


def _log_scheduler(event: e.Event) -> None:
    match event:
        case e.SchedulerStarted(scheduler, schedules, store):
            text = "scheduler %s started: %s, store %s"
            scheduler_log.info(text, scheduler, counted(schedules, "schedule"), store)
        case e.SchedulerStopped(scheduler):
            scheduler_log.info("scheduler %s stopped", scheduler)
        case e.TickDecided(schedule, at, verdict, count, job_id, late):
            level = {Verdict.FIRED: logging.DEBUG, Verdict.SKIPPED: logging.INFO}.get(verdict, logging.WARNING)
            last = rfc3339(at)
            if count > 1:
                scheduler_log.log(level, "%s: %d ticks up to %s were %s", schedule, count, last, verdict)
            elif verdict is Verdict.SKIPPED:
                scheduler_log.log(level, "%s: %s is skipped, job %s has not ended", schedule, last, job_id or "")
            elif verdict is Verdict.MISSED:
                scheduler_log.log(level, "%s: %s was missed", schedule, last)
            else:
                scheduler_log.log(level, "%s: %s %s as job %s, %.3f s late", schedule, last, verdict, job_id, late)
        case e.TickDelayed(schedule, at, queue):
            scheduler_log.warning("%s: %s is delayed, queue %s or its group is full", schedule, rfc3339(at), queue)


def _log_blocked(event: e.EventLoopBlocked) -> None:
    """The stack is that of the loop's thread, as `stack_info`: this is another thread."""
    lease = event.lease
    where = f"; it stands in {event.stack[-1].strip().splitlines()[0]}" if event.stack else ""
    who = "something" if lease is None else f"{lease.kind} {lease.job_id}"
    text = f"%s has blocked the event loop for %.0f s{where.replace('%', '%%')}"
    if worker_log.isEnabledFor(logging.WARNING):
        stack = "Stack of the event loop:\n" + "".join(event.stack).rstrip("\n") if event.stack else None
        extra = None if lease is None else lease_fields(lease)
        values = (worker_log.name, logging.WARNING, "", 0, text, (who, event.seconds), None, None, extra, stack)
        worker_log.handle(worker_log.makeRecord(*values))


def _log_job(lease: Lease, level: int, text: str, *more: object, raised: BaseException | None = None) -> None:
    """Log a line that starts with the job's kind and id, with its fields for structured logs."""
    if worker_log.isEnabledFor(level):
        worker_log.log(level, text, lease.kind, lease.job_id, *more, extra=lease_fields(lease), exc_info=raised)
