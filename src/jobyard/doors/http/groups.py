"""Groups of a queue: counts, limits of their own, pause and resume."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from jobyard.doors.http.paging import PageSize, PageToken, answer, position, token
from jobyard.doors.http.reach import group_in_reach, note, queue_in_reach
from jobyard.doors.http.route import Ask, Routes
from jobyard.service.access import Permission
from jobyard.service.views import group_view
from jobyard.service.wire import GroupPage, LimitRequest

ROUTES = Routes("groups")


class GroupQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    page_size: PageSize = 50
    page_token: PageToken | None = None


@ROUTES.add(
    "GET",
    "/v1/queues/{queue}/groups",
    Permission.READ,
    "Groups that have jobs, a limit or a pause, by name; the jobs without a group first",
    query=GroupQuery,
    answer=GroupPage,
)
async def list_groups(ask: Ask) -> Response:
    queue, size, own = (await queue_in_reach(ask)).name, ask.query.page_size, ask.principal.groups
    found = await ask.door.store.groups(queue, size, position(ask.query.page_token))
    following = (found[-1].name or "") if len(found) == size else None
    items = tuple(group_view(info) for info in found if not own or info.name in own)
    return answer(ask, GroupPage(items=items, next_page_token=token(following)))


@ROUTES.add(
    "PUT",
    "/v1/queues/{queue}/groups/{group}/limit",
    Permission.OPERATE,
    "Give a group its own limit: 0 blocks it, 1 makes it serial",
    status=204,
    body=LimitRequest,
)
async def set_group_limit(ask: Ask) -> None:
    queue, group = await group_in_reach(ask)
    await ask.door.operate.set_limit(queue, group, ask.body.limit)
    await note(ask, "group.limit", f"{queue}/{group}", limit=ask.body.limit)


@ROUTES.add(
    "DELETE",
    "/v1/queues/{queue}/groups/{group}/limit",
    Permission.OPERATE,
    "Take a group's own limit away",
    status=204,
)
async def remove_group_limit(ask: Ask) -> None:
    queue, group = await group_in_reach(ask)
    await ask.door.operate.remove_limit(queue, group)
    await note(ask, "group.unlimit", f"{queue}/{group}")


async def pause(ask: Ask, *, paused: bool) -> None:
    queue, group = await group_in_reach(ask)
    await ask.door.operate.pause(queue, group, paused=paused)
    await note(ask, "group.pause" if paused else "group.resume", f"{queue}/{group}")


@ROUTES.add(
    "POST",
    "/v1/queues/{queue}/groups/{group}/pause",
    Permission.OPERATE,
    "Start no more jobs of the group",
    status=204,
)
async def pause_group(ask: Ask) -> None:
    await pause(ask, paused=True)


@ROUTES.add(
    "POST",
    "/v1/queues/{queue}/groups/{group}/resume",
    Permission.OPERATE,
    "Start jobs of the group again",
    status=204,
)
async def resume_group(ask: Ask) -> None:
    await pause(ask, paused=False)
