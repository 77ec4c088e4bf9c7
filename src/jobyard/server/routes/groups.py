"""Groups of a queue: counts, limits, pause and resume."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from jobyard.api.convert import group_view
from jobyard.api.schemas.queues import GroupPage, LimitRequest
from jobyard.domain.access import Permission
from jobyard.ports.admin_store import GroupInfo
from jobyard.server.authorization import visible_group, visible_queue
from jobyard.server.pagination import PageSize, PageToken, decode_page_token, list_name, page_response
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("groups")
# For a token restricted to groups, at most this many pages of the store are searched for them.
GROUPS_PER_PAGE, MAX_PAGES = 1000, 50


class GroupQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    page_size: PageSize = 50
    page_token: PageToken | None = None


@ROUTES.add("GET", "/v1/queues/{queue}/groups", Permission.WATCH, query=GroupQuery, response=GroupPage)
async def list_groups(context: RequestContext) -> Response:
    """List groups with jobs, a limit or a pause, by name; jobs without a group come first."""
    queue, size = (await visible_queue(context)).name, context.query.page_size
    if context.principal.kinds:
        detail = "The token is restricted to kinds and cannot see the counts of whole groups."
        raise HttpError(403, "not_allowed", detail)
    after = decode_page_token(context.query.page_token, list_name(context))
    if context.principal.groups:
        found = await own_groups(context, queue, size, after)
    else:
        found = await context.dependencies.store.groups(queue, size, after)
    following = (found[-1].name or "") if len(found) == size else None
    return page_response(context, GroupPage, map(group_view, found), following)


async def own_groups(context: RequestContext, queue: str, size: int, after: str | None) -> list[GroupInfo]:
    """The groups of the token. The position never names a group of others, so page tokens cannot leak one."""
    own = sorted(name for name in context.principal.groups if after is None or name > after)
    found: list[GroupInfo] = []
    for _ in range(MAX_PAGES if own else 0):
        page = await context.dependencies.store.groups(queue, GROUPS_PER_PAGE, after)
        found += [info for info in page if info.name in own]
        after = page[-1].name or "" if page else ""
        if len(page) < GROUPS_PER_PAGE or len(found) >= size or after >= own[-1]:
            break
    return found[:size]


@ROUTES.add("PUT", "/v1/queues/{queue}/groups/{group}/limit", Permission.OPERATE, status=204, body=LimitRequest)
async def set_group_limit(context: RequestContext) -> None:
    """Set the limit of a group: 0 blocks it, 1 makes it serial."""
    queue, group = await visible_group(context)
    await context.operations.set_limit(queue, group, context.body.limit)


@ROUTES.add("DELETE", "/v1/queues/{queue}/groups/{group}/limit", Permission.OPERATE, status=204)
async def remove_group_limit(context: RequestContext) -> None:
    """Remove the limit of a group."""
    await context.operations.remove_limit(*await visible_group(context))


@ROUTES.add("POST", "/v1/queues/{queue}/groups/{group}/pause", Permission.OPERATE, status=204)
async def pause_group(context: RequestContext) -> None:
    """Pause a group: its waiting jobs do not start."""
    await context.operations.pause(*await visible_group(context))


@ROUTES.add("POST", "/v1/queues/{queue}/groups/{group}/resume", Permission.OPERATE, status=204)
async def resume_group(context: RequestContext) -> None:
    """Resume a group."""
    await context.operations.pause(*await visible_group(context), paused=False)
