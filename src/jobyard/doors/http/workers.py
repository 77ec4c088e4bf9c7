"""Workers: who is alive and what they do."""

from __future__ import annotations

from jobyard.doors.http.route import Ask, Routes
from jobyard.ports.store import WorkerInfo
from jobyard.service.access import Permission, Principal
from jobyard.service.views import worker_view
from jobyard.service.wire import WorkerList

ROUTES = Routes("workers")


def serves(principal: Principal, worker: WorkerInfo) -> bool:
    """Whether the worker takes jobs of any queue that they are confined to."""
    return not principal.queues or not worker.queues or not set(principal.queues).isdisjoint(worker.queues)


@ROUTES.add("GET", "/v1/workers", Permission.READ, "Workers that are alive", answer=WorkerList)
async def list_workers(ask: Ask) -> WorkerList:
    workers = await ask.door.store.workers()
    return WorkerList(tuple(worker_view(worker) for worker in workers if serves(ask.principal, worker)))
