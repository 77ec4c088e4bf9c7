"""Workers: list, quiet and stop."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from jobyard.api.convert import time_text, worker_view
from jobyard.api.schemas.jobs import JobFilter, RequestSchema
from jobyard.api.schemas.queues import WorkerJob, WorkerList, WorkerView
from jobyard.domain.access import Permission, Principal
from jobyard.domain.job import Job, State
from jobyard.errors import WorkerNotFound
from jobyard.operations.lost_workers import lost_workers
from jobyard.ports.admin_store import Filter
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.server.authorization import can_see, visible_filters
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes
from jobyard.server.visible_jobs import pages_of

ROUTES = Routes("workers")
# Running jobs that are read for the list, and shown of each worker.
MAX_RUNNING, MAX_JOBS = 500, 20


def serves(principal: Principal, worker: WorkerInfo) -> bool:
    """Whether the worker claims from a queue in the scope of the principal."""
    return not principal.queues or not worker.queues or not set(principal.queues).isdisjoint(worker.queues)


def runs_other_jobs(principal: Principal, worker: WorkerInfo) -> bool:
    """Whether the worker also claims jobs that are out of the scope of the principal."""
    if not principal.has_scope:
        return False
    return not principal.has_whole_queues or not worker.queues or not set(worker.queues) <= set(principal.queues)


def visible_view(principal: Principal, worker: WorkerInfo) -> WorkerView:
    """Of a worker that also runs other jobs, only the queues in scope, their rates and the slots in use."""
    view = worker_view(worker)
    if principal.has_scope:
        view = msgspec.structs.replace(view, kinds=None)  # it may have handlers for kinds that are out of scope
    if not runs_other_jobs(principal, worker):
        return view
    own = principal.queues
    rates = worker.finished_per_minute if principal.has_whole_queues else {}
    return msgspec.structs.replace(
        view,
        queues=tuple(name for name in worker.queues or own if not own or name in own),
        # A token of whole queues sees that slots are taken by others; one of groups or kinds sees no count at all.
        running=view.running if principal.has_whole_queues else None,
        completed=None,
        memory_bytes=None,
        cpu_seconds=None,
        cpu_percent=None,
        finished_per_minute={name: rate for name, rate in rates.items() if name in own},
    )


class WorkerQuery(RequestSchema, frozen=True, kw_only=True):
    lost: bool = False  # also those that were lost within the last hour
    jobs: bool = False  # also what each of them runs


@ROUTES.add("GET", "/v1/workers", Permission.WATCH, query=WorkerQuery, response=WorkerList)
async def list_workers(context: RequestContext) -> WorkerList:
    """List live workers; with lost=true also those that were lost within the last hour."""
    store, principal = context.dependencies.store, context.principal
    workers = await store.workers()
    views = [visible_view(principal, worker) for worker in workers if serves(principal, worker)]
    if context.query.jobs:
        running, hidden = await running_jobs(context), await hidden_jobs(context)
        views = [
            msgspec.structs.replace(
                view,
                jobs=tuple(running.get(view.id, ())[:MAX_JOBS]),
                jobs_out_of_scope=None if view.running is None else hidden[view.id],
            )
            for view in views
        ]
    if context.query.lost:
        lost = [worker for worker in await lost_workers(store, workers) if serves(principal, worker)]
        views += [msgspec.structs.replace(visible_view(principal, worker), is_lost=True) for worker in lost]
    return WorkerList(tuple(views))


async def running_jobs(context: RequestContext) -> dict[str, list[WorkerJob]]:
    """What each worker runs, as far as the token may see it."""
    filters, is_visible = visible_filters(context.principal, JobFilter(state=(State.RUNNING,)))
    found: dict[str, list[WorkerJob]] = {}
    read = 0
    async for page in pages_of(context.dependencies.store, filters):
        for job in filter(is_visible, page.jobs):
            found.setdefault(job.worker or "", []).append(worker_job(job))
        read += len(page.jobs)
        if read >= MAX_RUNNING:
            break
    return found


async def hidden_jobs(context: RequestContext) -> Counter[str]:
    """How many jobs that the token may not see take a slot of each worker."""
    principal = context.principal
    found: Counter[str] = Counter()
    if not principal.queues or not principal.has_whole_queues:
        return found
    read = 0
    async for page in pages_of(context.dependencies.store, [Filter(states=(State.RUNNING,))]):
        found.update(job.worker or "" for job in page.jobs if takes_slot(job) and not can_see(principal, job))
        read += len(page.jobs)
        if read >= MAX_RUNNING:
            break
    return found


def takes_slot(job: Job) -> bool:
    """Not of a job that runs elsewhere, such as in a pod."""
    return job.external_id is None


def worker_job(job: Job) -> WorkerJob:
    shown: dict[str, Any] = {"id": job.id, "kind": job.kind, "queue": job.queue, "group": job.group}
    shown |= {
        "started_at": time_text(job.started_at),
        "percent": None if job.progress is None else job.progress.percent,
        "is_handed_off": not takes_slot(job),
    }
    return WorkerJob(**shown)


async def control(context: RequestContext, what: str) -> None:
    """A restricted token controls only workers that claim from no other queues."""
    worker_id, principal = context.path["id"], context.principal
    if principal.has_scope:
        found = [worker for worker in await context.dependencies.store.workers() if worker.id == worker_id]
        if not found or not serves(principal, found[0]):
            raise WorkerNotFound(f"Worker {worker_id} not found: it stopped, died, or never existed.")
        if runs_other_jobs(principal, found[0]):
            raise HttpError(403, "out_of_scope", "The worker also claims jobs that are out of the scope of the token.")
    await context.operations.control_worker(worker_id, what)


@ROUTES.add("POST", "/v1/workers/{id}/quiet", Permission.OPERATE, status=204)
async def quiet_worker(context: RequestContext) -> None:
    """Quiet a worker: it claims no more jobs."""
    await control(context, "quiet")


@ROUTES.add("POST", "/v1/workers/{id}/stop", Permission.OPERATE, status=204)
async def stop_worker(context: RequestContext) -> None:
    """Stop a worker: it claims no more jobs, finishes the running ones, and exits."""
    await control(context, "stop")
