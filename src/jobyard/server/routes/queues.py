"""Queues: counts, settings, pause, resume, drain."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from jobyard.api.convert import queue_view, queue_view_without_counts
from jobyard.api.schemas.jobs import MAX_PAGE, RequestSchema
from jobyard.api.schemas.queues import DrainResponse, QueuePage, QueueView, SettingsRequest
from jobyard.domain import options
from jobyard.domain.access import Permission
from jobyard.domain.job import QueueSettings
from jobyard.ports.admin_store import QueueInfo
from jobyard.server.authorization import visible_queue, whole_queue_forbidden
from jobyard.server.pagination import PageSize, PageToken, decode_page_token, list_name, page_response
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("queues")


class QueueQuery(RequestSchema, frozen=True, kw_only=True):
    page_size: PageSize = MAX_PAGE
    page_token: PageToken | None = None


@ROUTES.add("GET", "/v1/queues", Permission.WATCH, query=QueueQuery, response=QueuePage)
async def list_queues(context: RequestContext) -> Response:
    """List queues with their counts, by name."""
    own, size = context.principal.queues, context.query.page_size
    after = decode_page_token(context.query.page_token, list_name(context))
    infos = [
        info
        for info in await context.operations.queues()
        if (not own or info.name in own) and (after is None or info.name > after)
    ]
    views = await visible_views(context, infos[:size])
    following = infos[size - 1].name if len(infos) > size else None
    return page_response(context, QueuePage, views, following)


async def visible_views(context: RequestContext, infos: Sequence[QueueInfo]) -> list[QueueView]:
    """Without counts for a token that sees only a part of the jobs of a queue."""
    if not context.principal.has_whole_queues:
        return [queue_view_without_counts(info) for info in infos]
    workers = await context.operations.workers()
    return [queue_view(info, workers) for info in infos]


@ROUTES.add("GET", "/v1/queues/{queue}", Permission.WATCH, response=QueueView)
async def get_queue(context: RequestContext) -> QueueView:
    """Get a queue."""
    [view] = await visible_views(context, [await visible_queue(context)])
    return view


@ROUTES.add("PATCH", "/v1/queues/{queue}", Permission.OPERATE, body=SettingsRequest, response=QueueView)
async def change_queue(context: RequestContext) -> QueueView:
    """Create a queue, or change its limits; only administrators change its retention."""
    name = options.check_name("queue", context.path["queue"])
    try:
        current = (await visible_queue(context, whole=True)).settings
    except HttpError as error:
        if error.status != 404 or (context.principal.queues and name not in context.principal.queues):
            raise
        if not context.principal.has_whole_queues:
            raise whole_queue_forbidden() from None
        current = QueueSettings()
    given = {field: getattr(context.body, field) for field in SettingsRequest.__struct_fields__}
    changes = {field: value for field, value in given.items() if value is not UNSET}
    require_same_retention(context, current, msgspec.structs.replace(current, **changes))
    await context.operations.configure(name, changes)
    return queue_view(await visible_queue(context))


@ROUTES.add("DELETE", "/v1/queues/{queue}", Permission.OPERATE, status=204, problems=(409,))
async def remove_queue(context: RequestContext) -> None:
    """Delete a queue that has no jobs, with its settings, limits and pauses."""
    info = await visible_queue(context, whole=True)
    require_same_retention(context, info.settings, info.declared_settings or QueueSettings())
    await context.operations.remove_queue(info.name)
    context.dependencies.known_queues.forget(info.name)


@ROUTES.add("DELETE", "/v1/queues/{queue}/settings", Permission.OPERATE, response=QueueView)
async def reset_queue_settings(context: RequestContext) -> QueueView:
    """Undo changes of settings: the declared ones apply again, or the defaults."""
    info = await visible_queue(context, whole=True)
    require_same_retention(context, info.settings, info.declared_settings or QueueSettings())
    await context.operations.reset_settings(info.name)
    return queue_view(await visible_queue(context))


def require_same_retention(context: RequestContext, before: QueueSettings, after: QueueSettings) -> None:
    """Only administrators change retention: an operator could otherwise erase the traces of its changes."""
    if not context.principal.may(Permission.ADMINISTER) and retention(before) != retention(after):
        detail = f"The role {context.principal.role} cannot change the retention of a queue."
        raise HttpError(403, "not_allowed", detail)


def retention(settings: QueueSettings) -> tuple[float, ...]:
    """The values of all keep_ settings."""
    return tuple(getattr(settings, name) for name in settings.__struct_fields__ if name.startswith("keep_"))


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
