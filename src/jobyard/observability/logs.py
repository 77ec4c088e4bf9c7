"""Events as log lines, one logger per component."""

from __future__ import annotations

import logging
import time

from jobyard.domain import events as e
from jobyard.domain.instant import rfc3339
from jobyard.domain.job import State
from jobyard.domain.lease import Lease
from jobyard.domain.schedule import Verdict
from jobyard.observability.current import facts

worker_log = logging.getLogger("jobyard.worker")
store_log = logging.getLogger("jobyard.store")
scheduler_log = logging.getLogger("jobyard.scheduler")

# An outage that goes on is spoken of again after this long.
SAY_AGAIN_SECONDS = 10.0
REMEMBERED_TROUBLES = 100


class LogObserver:
    """Quiet while all is well: a job's life is DEBUG, what went wrong is WARNING or ERROR."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}  # what went wrong with the store, and when that was last said

    @property
    def wants_each_job(self) -> bool:
        return worker_log.isEnabledFor(logging.DEBUG)

    def observe(self, event: e.Event) -> None:
        match event:
            case e.JobStarted(lease):
                _about(lease, logging.DEBUG, "%s %s started, attempt %d", lease.attempt)
            case e.JobReported(lease, progress):
                _about(lease, logging.DEBUG, "%s %s: %g %% %s", progress.percent, progress.message)
            case e.JobSettled():
                self._settled(event)
            case e.SettlementRefused(lease, to):
                _about(lease, logging.WARNING, "%s %s: %s refused, the lease was lost", to)
            case e.JobLeaseLost(lease):
                _about(lease, logging.WARNING, "%s %s: lease lost, stopping the run")
            case e.LeasesExpired(worker, ended):
                jobs = ", ".join(lease.job_id for lease in ended[:3]) + (", …" if len(ended) > 3 else "")
                worker_log.warning(
                    "worker %s stopped renewing its leases: %d jobs taken back (%s)", worker, len(ended), jobs
                )
            case e.StoreFailed(doing, error, seconds):
                # Many things fail for one reason: it is said once, then now and then, until the store is back.
                level = logging.ERROR if self._is_news(str(error)) else logging.DEBUG
                store_log.log(level, "%s failed: %s (again in %.1f s)", doing, error, seconds)
            case e.StoreRecovered(seconds):
                self._said.clear()
                store_log.warning("the store is back after %.1f s", seconds)
            case e.EventLoopBlocked(seconds):
                worker_log.warning("the event loop has not turned for %.0f s: a handler blocks it", seconds)
            case _:
                self._of_the_worker(event)

    def _is_news(self, trouble: str) -> bool:
        now = time.monotonic()
        if now - self._said.get(trouble, -SAY_AGAIN_SECONDS) < SAY_AGAIN_SECONDS:
            return False
        if len(self._said) >= REMEMBERED_TROUBLES:
            self._said.clear()
        self._said[trouble] = now
        return True

    def _of_the_worker(self, event: e.Event) -> None:
        match event:
            case e.WorkerStarted(worker, queues, concurrency):
                takes = ", ".join(queues) or "all queues"
                worker_log.info("worker %s started: %s, %d at a time", worker, takes, concurrency)
            case e.WorkerQuiet(worker, running):
                worker_log.info("worker %s takes no more jobs, as it was told; %d go on", worker, running)
            case e.WorkerStopping(worker, running, grace):
                worker_log.info("worker %s stops: %d jobs have up to %g s to finish", worker, running, grace)
            case e.WorkerStopped(worker, handed_back):
                worker_log.info("worker %s stopped, %d jobs handed back", worker, handed_back)
            case _:
                _of_the_scheduler(event)

    def _settled(self, event: e.JobSettled) -> None:
        lease = event.lease
        if event.ending is None:
            _about(lease, logging.DEBUG, "%s %s is %s after %.3f s", event.to, event.seconds)
        elif event.to is State.PENDING:
            tries = (lease.attempt, lease.max_attempts)
            said = "%s %s: attempt %d of %d: %s (%s); it will run again"
            _about(lease, logging.WARNING, said, *tries, event.ending, event.message)
        else:
            # Somebody wanted it to be cancelled: that is no fault.
            level = logging.INFO if event.to is State.CANCELLED else logging.ERROR
            _about(lease, level, "%s %s is %s: %s", event.to, event.message)


def _of_the_scheduler(event: e.Event) -> None:
    match event:
        case e.SchedulerStarted(scheduler, schedules):
            scheduler_log.info("scheduler %s started: %d schedules", scheduler, schedules)
        case e.SchedulerStopped(scheduler):
            scheduler_log.info("scheduler %s stopped", scheduler)
        case e.TickDecided(schedule, at, verdict, count, job_id, late):
            level = {Verdict.FIRED: logging.DEBUG, Verdict.SKIPPED: logging.INFO}.get(verdict, logging.WARNING)
            last = rfc3339(at)
            if count > 1:
                scheduler_log.log(level, "%s: %d instants up to %s were %s", schedule, count, last, verdict)
            elif verdict is Verdict.SKIPPED:
                scheduler_log.log(level, "%s: %s is skipped, job %s is not over", schedule, last, job_id or "before it")
            elif verdict is Verdict.MISSED:
                scheduler_log.log(level, "%s: %s was missed", schedule, last)
            else:
                scheduler_log.log(level, "%s: %s %s as job %s, after %.3f s", schedule, last, verdict, job_id, late)
        case e.TickDelayed(schedule, at, queue):
            scheduler_log.warning("%s: %s waits, queue %s or its group is full", schedule, rfc3339(at), queue)


def _about(lease: Lease, level: int, text: str, *more: object) -> None:
    """A line that begins with the job's kind and id, and carries them for programs."""
    if worker_log.isEnabledFor(level):
        worker_log.log(level, text, lease.kind, lease.job_id, *more, extra=facts(lease))
