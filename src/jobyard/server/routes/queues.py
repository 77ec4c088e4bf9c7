"""Queues: counts, settings, pause, resume, drain."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from jobyard.api.convert import queue_view
from jobyard.api.schemas.queues import DrainResponse, QueueList, QueueView, SettingsRequest
from jobyard.domain import options
from jobyard.domain.access import Permission
from jobyard.domain.job import QueueSettings
from jobyard.server.authorization import visible_queue, whole_queue_forbidden
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("queues")
# Only administrators change retention: an operator could otherwise erase the traces of its changes.
RETENTION = ("keep_completed", "keep_failed", "keep_seconds")


@ROUTES.add("GET", "/v1/queues", Permission.WATCH, response=QueueList)
async def list_queues(context: RequestContext) -> QueueList:
    """List queues with their counts."""
    own, workers = context.principal.queues, await context.dependencies.store.workers()
    infos = await context.dependencies.store.queues()
    return QueueList(tuple(queue_view(info, workers) for info in infos if not own or info.name in own))


@ROUTES.add("GET", "/v1/queues/{queue}", Permission.WATCH, response=QueueView)
async def get_queue(context: RequestContext) -> QueueView:
    """Get a queue."""
    return queue_view(await visible_queue(context), await context.dependencies.store.workers())


@ROUTES.add("PATCH", "/v1/queues/{queue}", Permission.OPERATE, body=SettingsRequest, response=QueueView)
async def change_queue(context: RequestContext) -> QueueView:
    """Create a queue, or change its limits; only administrators change its retention."""
    name = options.check_name("queue", context.path["queue"])
    try:
        current = (await visible_queue(context, whole=True)).settings
    except HttpError as error:
        if error.status != 404 or (context.principal.queues and name not in context.principal.queues):
            raise
        if context.principal.groups:
            raise whole_queue_forbidden() from None
        current = QueueSettings()
    settings = merged(context.body, current)
    if not context.principal.may(Permission.ADMINISTER) and retention(settings) != retention(current):
        detail = f"The role {context.principal.role} cannot change the retention of a queue."
        raise HttpError(403, "not_allowed", detail)
    await context.operations.configure(name, settings)
    return queue_view(await visible_queue(context))


def merged(request: SettingsRequest, current: QueueSettings) -> QueueSettings:
    """The settings with the given changes; those that are not given stay."""
    given = {name: getattr(request, name) for name in request.__struct_fields__}
    return msgspec.structs.replace(current, **{name: value for name, value in given.items() if value is not UNSET})


def retention(settings: QueueSettings) -> tuple[float, ...]:
    return tuple(getattr(settings, name) for name in RETENTION)


async def pause(context: RequestContext, *, paused: bool) -> QueueView:
    await context.operations.pause((await visible_queue(context, whole=True)).name, paused=paused)
    return queue_view(await visible_queue(context))


@ROUTES.add("POST", "/v1/queues/{queue}/pause", Permission.OPERATE, response=QueueView)
async def pause_queue(context: RequestContext) -> QueueView:
    """Pause a queue: its waiting jobs do not start."""
    return await pause(context, paused=True)


@ROUTES.add("POST", "/v1/queues/{queue}/resume", Permission.OPERATE, response=QueueView)
async def resume_queue(context: RequestContext) -> QueueView:
    """Resume a queue."""
    return await pause(context, paused=False)


@ROUTES.add("POST", "/v1/queues/{queue}/drain", Permission.OPERATE, response=DrainResponse)
async def drain_queue(context: RequestContext) -> DrainResponse:
    """Delete all waiting jobs of a queue; running jobs continue."""
    return DrainResponse(await context.operations.drain((await visible_queue(context, whole=True)).name))
