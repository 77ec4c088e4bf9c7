"""Workers: list, quiet and stop."""

from __future__ import annotations

from jobyard.api.convert import worker_view
from jobyard.api.schemas.queues import WorkerList
from jobyard.domain.access import Permission, Principal
from jobyard.errors import WorkerNotFound
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("workers")


def serves(principal: Principal, worker: WorkerInfo) -> bool:
    """Whether the worker claims from a queue in the scope of the principal."""
    return not principal.queues or not worker.queues or not set(principal.queues).isdisjoint(worker.queues)


@ROUTES.add("GET", "/v1/workers", Permission.WATCH, response=WorkerList)
async def list_workers(context: RequestContext) -> WorkerList:
    """List live workers."""
    workers = await context.dependencies.store.workers()
    principal = context.principal
    own = principal.queues if principal.has_whole_queues else None
    return WorkerList(tuple(worker_view(worker, own) for worker in workers if serves(principal, worker)))


async def control(context: RequestContext, what: str) -> None:
    """A restricted token controls only workers that claim from no other queues."""
    worker_id, principal = context.path["id"], context.principal
    if principal.has_scope:
        found = [worker for worker in await context.dependencies.store.workers() if worker.id == worker_id]
        if not found or not serves(principal, found[0]):
            raise WorkerNotFound(f"Worker {worker_id} not found: it stopped, died, or never existed.")
        if not principal.has_whole_queues or not found[0].queues or not set(found[0].queues) <= set(principal.queues):
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
