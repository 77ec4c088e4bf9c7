"""Workers: who is alive, what they do, and when they should stop taking jobs."""

from __future__ import annotations

from jobyard.api.convert import worker_view
from jobyard.api.schemas.queues import WorkerList
from jobyard.domain.access import Permission, Principal
from jobyard.errors import WorkerNotFound
from jobyard.operations.worker_control import control_worker
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("workers")


def serves(principal: Principal, worker: WorkerInfo) -> bool:
    """Whether the worker takes jobs of any queue that they are confined to."""
    return not principal.queues or not worker.queues or not set(principal.queues).isdisjoint(worker.queues)


@ROUTES.add("GET", "/v1/workers", Permission.WATCH, "Workers that are alive", answer=WorkerList)
async def list_workers(context: RequestContext) -> WorkerList:
    workers = await context.dependencies.store.workers()
    own = context.principal.queues
    return WorkerList(tuple(worker_view(worker, own) for worker in workers if serves(context.principal, worker)))


async def tell(context: RequestContext, what: str) -> None:
    """Whoever is confined may tell only workers that take nothing but their queues."""
    worker_id, principal = context.path["id"], context.principal
    if principal.queues or principal.groups:
        found = [worker for worker in await context.dependencies.store.workers() if worker.id == worker_id]
        if not found or not serves(principal, found[0]):
            raise WorkerNotFound(f"There is no live worker {worker_id}.")
        if principal.groups or not found[0].queues or not set(found[0].queues) <= set(principal.queues):
            raise HttpError(403, "out_of_scope", "This worker also takes jobs that are out of the token's scope.")
    await control_worker(context.dependencies.store, worker_id, what)
    await context.audit(f"worker.{what}", worker_id)


@ROUTES.add("POST", "/v1/workers/{id}/quiet", Permission.OPERATE, "Let a worker take no more jobs", status=204)
async def quiet_worker(context: RequestContext) -> None:
    await tell(context, "quiet")


@ROUTES.add(
    "POST",
    "/v1/workers/{id}/stop",
    Permission.OPERATE,
    "Stop a worker: it takes no more jobs, lets what runs finish, and ends",
    status=204,
)
async def stop_worker(context: RequestContext) -> None:
    await tell(context, "stop")
