"""Schedules: list, change, run, history, and the next ticks of a cron expression."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import msgspec
from msgspec import Meta
from starlette.responses import Response

from jobyard.api.schemas import schedules as schemas
from jobyard.api.schemas.jobs import Name, RequestSchema
from jobyard.api.schemas.problems import FieldError
from jobyard.domain.access import Permission, Principal
from jobyard.domain.cron import cron
from jobyard.domain.redaction import redacted
from jobyard.domain.schedule import Schedule
from jobyard.errors import BadInput, BadOption, NotFound
from jobyard.operations.schedule_options import checked_fields
from jobyard.operations.schedules import first_instants, view_of, views_of
from jobyard.server.authorization import require_kind
from jobyard.server.dispatch import RawJsonResponse
from jobyard.server.pagination import (
    PageSize,
    PageToken,
    decode_page_token,
    invalid_page_token,
    list_name,
    page_response,
)
from jobyard.server.parsing import with_pointers
from jobyard.server.problems import HttpError, status_of
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("schedules")
MAX_DIGITS = 15
_encode = msgspec.json.Encoder().encode
# Store pages read for one response when most schedules are filtered out; the response may then be short.
MAX_PAGES = 10
SCHEDULES_PER_PAGE = 1000


class ScheduleQuery(RequestSchema, frozen=True, kw_only=True):
    queue: Name | None = None
    kind: Name | None = None
    history: Annotated[int, Meta(ge=0, le=20)] = 0  # number of past ticks to include
    page_size: PageSize = 50
    page_token: PageToken | None = None


class NextQuery(RequestSchema, frozen=True, kw_only=True):
    count: Annotated[int, Meta(ge=1, le=schemas.MAX_NEXT)] = 5


class CronQuery(NextQuery, frozen=True, kw_only=True):
    expression: schemas.Expression
    timezone: schemas.Zone = "UTC"
    check: bool = False


class TickHistoryQuery(RequestSchema, frozen=True, kw_only=True):
    page_size: Annotated[int, Meta(ge=1, le=100)] = 50
    page_token: PageToken | None = None


# Authorization


def can_see(principal: Principal, schedule: Schedule) -> bool:
    return principal.reaches(schedule.queue, schedule.group, schedule.kind)


async def visible_schedule(context: RequestContext) -> Schedule:
    name = context.path["schedule"]
    try:
        found = await context.operations.schedule_list.get(name)
    except NotFound:
        raise schedule_not_found(name) from None
    if not can_see(context.principal, found):
        raise schedule_not_found(name)
    return found


def schedule_not_found(name: str) -> HttpError:
    return HttpError(404, "schedule_not_found", f'Schedule "{name}" not found.')


def require_scope(context: RequestContext, schedule: Schedule) -> None:
    """Reject a schedule whose jobs the token could not submit."""
    require_kind(context, schedule.kind)
    if not can_see(context.principal, schedule):
        raise HttpError(403, "out_of_scope", "The queue or the group of the schedule is out of the scope of the token.")


async def runnable_schedule(context: RequestContext) -> Schedule:
    found = await visible_schedule(context)
    require_scope(context, found)
    return found


# Queries


@ROUTES.add("GET", "/v1/schedules", Permission.WATCH, query=ScheduleQuery, response=schemas.SchedulePage)
async def list_schedules(context: RequestContext) -> Response:
    """List schedules by name."""
    query: ScheduleQuery = context.query
    first = decode_page_token(query.page_token, list_name(context))
    found, following = await visible_schedules(context, first)
    items = [shown_schedule(context, view) for view in await views_of(context.dependencies.store, found, first)]
    if query.history:
        items = [await with_recent(context, each, query.history) for each in items]
    return page_response(context, schemas.SchedulePage, items, following)


def shown_schedule(context: RequestContext, view: schemas.ScheduleView) -> schemas.ScheduleView:
    """The schedule without the secrets in its payload if the principal may not reveal them."""
    if context.principal.may(Permission.REVEAL):
        return view
    return msgspec.structs.replace(view, payload=redacted(view.payload))


async def with_recent(context: RequestContext, view: schemas.ScheduleView, count: int) -> schemas.ScheduleView:
    past = await context.operations.schedule_list.history(view.name, count)
    return msgspec.structs.replace(view, recent=tuple(map(schemas.tick_view, past)))


async def visible_schedules(context: RequestContext, after: str | None) -> tuple[list[Schedule], str | None]:
    """A page of matching schedules, and the name after which the next begins: a visible one, so that nothing leaks."""
    query, is_restricted = context.query, context.principal.has_scope
    takes_all = not is_restricted and query.queue is None and query.kind is None
    size, pages = query.page_size if takes_all else SCHEDULES_PER_PAGE, 0
    found: list[Schedule] = []
    while len(found) < query.page_size and (is_restricted or pages < MAX_PAGES):
        page = await context.operations.schedule_list.page(size, after)
        found += [each for each in page if matches(context, each)]
        after = page[-1].name if len(page) == size else None
        pages += 1
        if after is None:
            break
    if len(found) < query.page_size:
        return found, after
    return found[: query.page_size], found[query.page_size - 1].name


def matches(context: RequestContext, schedule: Schedule) -> bool:
    query: ScheduleQuery = context.query
    return (
        can_see(context.principal, schedule)
        and query.queue in (None, schedule.queue)
        and query.kind in (None, schedule.kind)
    )


@ROUTES.add("GET", "/v1/schedules/{schedule}", Permission.WATCH, response=schemas.ScheduleView)
async def get_schedule(context: RequestContext) -> schemas.ScheduleView:
    """Get a schedule."""
    return shown_schedule(context, await view_of(context.dependencies.store, await visible_schedule(context)))


@ROUTES.add(
    "GET", "/v1/schedules/{schedule}/next", Permission.WATCH, query=NextQuery, response=schemas.NextTicksResponse
)
async def next_of_schedule(context: RequestContext) -> schemas.NextTicksResponse:
    """List the next ticks; empty while the schedule is paused."""
    return await context.operations.next_of_schedule((await visible_schedule(context)).name, context.query.count)


@ROUTES.add(
    "GET", "/v1/schedules/{schedule}/history", Permission.WATCH, query=TickHistoryQuery, response=schemas.HistoryPage
)
async def history_of_schedule(context: RequestContext) -> Response:
    """List past ticks, newest first: fired, late, missed or skipped, and the state of their jobs."""
    found, query = await visible_schedule(context), context.query
    before = decode_page_token(query.page_token, list_name(context))
    if before is not None and not (before.isascii() and before.isdigit() and len(before) <= MAX_DIGITS):
        raise invalid_page_token()
    before_at = None if before is None else int(before)
    past = await context.operations.schedule_list.history(found.name, query.page_size, before_at)
    following = str(past[-1].at) if len(past) == query.page_size else None
    return page_response(context, schemas.HistoryPage, map(schemas.tick_view, past), following)


@ROUTES.add("GET", "/v1/cron/next", Permission.READ, query=CronQuery, response=schemas.NextTicksResponse)
async def next_of_expression(context: RequestContext) -> schemas.NextTicksResponse:
    """Explain a cron expression in words, with its next ticks."""
    query: CronQuery = context.query
    try:
        checked_fields({"expression": query.expression, "timezone": query.timezone})
    except BadOption as error:
        if query.check:
            return schemas.invalid_expression(query.expression, query.timezone, str(error))
        found = FieldError(error.option, str(error))
        raise HttpError(status_of(error), error.code, str(error), errors=(found,)) from None
    after = cron(query.expression, query.timezone).after(await context.dependencies.store.now())
    return schemas.next_ticks_response(query.expression, query.timezone, await first_instants(after, query.count))


# Changes


@ROUTES.add(
    "POST",
    "/v1/schedules",
    Permission.OPERATE,
    status=201,
    body=schemas.ScheduleRequest,
    response=schemas.ScheduleView,
    problems=(409,),
)
async def add_schedule(context: RequestContext) -> Response:
    """Create a schedule."""
    request: schemas.ScheduleRequest = context.body
    try:
        require_kind(context, request.kind)
        wanted = context.dependencies.job_factory.new_schedule(request.given())
        require_scope(context, wanted)
        made = await context.operations.insert_schedule(wanted)
    except BadInput as error:
        raise with_pointers(error) from error
    location = (b"location", f"/v1/schedules/{quote(made.name, safe='')}".encode())
    return RawJsonResponse(_encode(made), 201, location)


@ROUTES.add(
    "PATCH", "/v1/schedules/{schedule}", Permission.OPERATE, body=schemas.ScheduleChange, response=schemas.ScheduleView
)
async def edit_schedule(context: RequestContext) -> schemas.ScheduleView:
    """Change the given fields of a schedule; one that is declared in code or in a file is changed there."""
    found, changes = await visible_schedule(context), context.body.given()
    elsewhere = {name: changes[name] for name in ("queue", "group", "kind") if name in changes}
    try:
        require_scope(context, msgspec.structs.replace(found, **elsewhere))
        return await context.operations.edit_schedule(found.name, changes)
    except BadInput as error:
        raise with_pointers(error) from error


@ROUTES.add("DELETE", "/v1/schedules/{schedule}", Permission.OPERATE, status=204)
async def remove_schedule(context: RequestContext) -> None:
    """Delete a schedule and its history; its jobs stay."""
    await context.operations.remove_schedule((await visible_schedule(context)).name)


@ROUTES.add("POST", "/v1/schedules/{schedule}/pause", Permission.OPERATE, response=schemas.ScheduleView)
async def pause_schedule(context: RequestContext) -> schemas.ScheduleView:
    """Pause a schedule."""
    return await context.operations.pause_schedule((await visible_schedule(context)).name)


@ROUTES.add("POST", "/v1/schedules/{schedule}/resume", Permission.OPERATE, response=schemas.ScheduleView)
async def resume_schedule(context: RequestContext) -> schemas.ScheduleView:
    """Resume a schedule; ticks missed while it was paused are not caught up."""
    return await context.operations.resume_schedule((await runnable_schedule(context)).name)


@ROUTES.add("POST", "/v1/schedules/{schedule}/run", Permission.OPERATE, status=202, response=schemas.RunResponse)
async def run_schedule(context: RequestContext) -> Response:
    """Insert the job of a schedule now, besides its ticks."""
    job_id = await context.operations.run_schedule((await runnable_schedule(context)).name)
    job = await context.dependencies.store.get(job_id)
    if job is not None:
        context.dependencies.enqueued(job)
    return RawJsonResponse(_encode(schemas.RunResponse(job_id)), 202, (b"location", f"/v1/jobs/{job_id}".encode()))
