"""Schedules: what the clock inserts, and what became of its instants."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta
from starlette.responses import Response

from jobyard.api.schemas.jobs import Incoming, JobRequest, Name
from jobyard.api.schemas.schedules import (
    MAX_NEXT,
    Expression,
    HistoryPage,
    NextAnswer,
    RunAnswer,
    ScheduleChange,
    SchedulePage,
    ScheduleRequest,
    ScheduleView,
    Zone,
    next_answer,
    past_view,
)
from jobyard.domain.access import Permission, Principal
from jobyard.domain.cron import cron
from jobyard.domain.due import instants
from jobyard.domain.instant import Instant
from jobyard.domain.schedule import Schedule
from jobyard.errors import BadInput, BadOption, NotFound
from jobyard.operations.schedule_options import checked as checked_words
from jobyard.operations.schedule_options import definition
from jobyard.operations.schedule_views import view_of, views_of
from jobyard.operations.submit import words_of
from jobyard.server.authorization import note
from jobyard.server.dispatch import Quick
from jobyard.server.pagination import PageSize, PageToken, answer, bad_token, position, token
from jobyard.server.pointing import pointed
from jobyard.server.problems import FieldError, HttpError, status_of
from jobyard.server.route import Ask, Routes

ROUTES = Routes("schedules")
MAX_DIGITS = 15
_encode = msgspec.json.Encoder().encode
# A list that leaves out much of what the store finds looks at so many of its pages before it answers a short one.
LOOKS = 10
AT_ONCE = 1000


class ScheduleQuery(Incoming, frozen=True, kw_only=True):
    queue: Name | None = None
    kind: Name | None = None
    page_size: PageSize = 50
    page_token: PageToken | None = None


class NextQuery(Incoming, frozen=True, kw_only=True):
    count: Annotated[int, Meta(ge=1, le=MAX_NEXT)] = 5


class CronQuery(NextQuery, frozen=True, kw_only=True):
    expression: Expression
    timezone: Zone = "UTC"


class HistoryQuery(Incoming, frozen=True, kw_only=True):
    page_size: Annotated[int, Meta(ge=1, le=100)] = 50
    page_token: PageToken | None = None


# Within reach


def sees(principal: Principal, schedule: Schedule) -> bool:
    return principal.reaches(schedule.queue, schedule.group)


async def in_reach(ask: Ask) -> Schedule:
    name = ask.path["schedule"]
    try:
        found = await ask.door.schedules.get(name)
    except NotFound:
        raise gone(name) from None
    if not sees(ask.principal, found):
        raise gone(name)
    return found


def gone(name: str) -> HttpError:
    return HttpError(404, "schedule_not_found", f"There is no schedule {name}.")


def require_reach(ask: Ask, schedule: Schedule) -> None:
    if not ask.principal.reaches(schedule.queue, schedule.group):
        raise HttpError(403, "out_of_scope", "This token does not reach the queue or the group of that schedule.")


# See


@ROUTES.add(
    "GET", "/v1/schedules", Permission.WATCH, "List schedules by name", query=ScheduleQuery, answer=SchedulePage
)
async def list_schedules(ask: Ask) -> Response:
    query: ScheduleQuery = ask.query
    first = position(query.page_token)
    found, following = await look(ask, first)
    items = await views_of(ask.door.store, found, first)
    return answer(ask, SchedulePage(items=tuple(items), next_page_token=token(following)))


async def look(ask: Ask, after: str | None) -> tuple[list[Schedule], str | None]:
    """A page of those that fit, and the name that the next begins after: to a confined token one of its own."""
    query, is_confined = ask.query, bool(ask.principal.queues or ask.principal.groups)
    takes_all = not is_confined and query.queue is None and query.kind is None
    at_once, looks = query.page_size if takes_all else AT_ONCE, 0
    found: list[Schedule] = []
    while len(found) < query.page_size and (is_confined or looks < LOOKS):
        page = await ask.door.schedules.page(at_once, after)
        found += [each for each in page if fits(ask, each)]
        after = page[-1].name if len(page) == at_once else None
        looks += 1
        if after is None:
            break
    if len(found) < query.page_size:
        return found, after
    return found[: query.page_size], found[query.page_size - 1].name


def fits(ask: Ask, schedule: Schedule) -> bool:
    query: ScheduleQuery = ask.query
    return (
        sees(ask.principal, schedule) and query.queue in (None, schedule.queue) and query.kind in (None, schedule.kind)
    )


@ROUTES.add("GET", "/v1/schedules/{schedule}", Permission.WATCH, "One schedule", answer=ScheduleView)
async def get_schedule(ask: Ask) -> ScheduleView:
    return await view_of(ask.door.store, await in_reach(ask))


@ROUTES.add(
    "GET",
    "/v1/schedules/{schedule}/next",
    Permission.WATCH,
    "When it fires next; nothing while it is paused",
    query=NextQuery,
    answer=NextAnswer,
)
async def next_of_schedule(ask: Ask) -> NextAnswer:
    found = await in_reach(ask)
    after = instants(found, await ask.door.store.now()) if found.enabled else iter(())
    return next_answer(found.expression, found.timezone, await counted(after, ask.query.count))


@ROUTES.add(
    "GET",
    "/v1/schedules/{schedule}/history",
    Permission.WATCH,
    "What became of its instants, newest first: fired, late, missed or skipped, and how their jobs ended",
    query=HistoryQuery,
    answer=HistoryPage,
)
async def history_of_schedule(ask: Ask) -> Response:
    found, query = await in_reach(ask), ask.query
    before = position(query.page_token)
    if before is not None and not (before.isascii() and before.isdigit() and len(before) <= MAX_DIGITS):
        raise bad_token()
    past = await ask.door.schedules.history(found.name, query.page_size, None if before is None else int(before))
    is_full = len(past) == query.page_size
    items = tuple(past_view(each) for each in past)
    return answer(ask, HistoryPage(items=items, next_page_token=token(str(past[-1].at) if is_full else None)))


@ROUTES.add(
    "GET",
    "/v1/cron/next",
    Permission.READ,
    "What a cron expression means: in words, and its next instants",
    query=CronQuery,
    answer=NextAnswer,
)
async def next_of_expression(ask: Ask) -> NextAnswer:
    query: CronQuery = ask.query
    try:
        checked_words({"expression": query.expression, "timezone": query.timezone})
    except BadOption as error:
        raise told(error, "") from None
    after = cron(query.expression, query.timezone).after(await ask.door.store.now())
    return next_answer(query.expression, query.timezone, await counted(after, query.count))


async def counted(after: Iterator[Instant], count: int) -> list[Instant]:
    """Beside the loop: a rare instant is far off, and a scheduler may live here."""
    return await asyncio.to_thread(lambda: list(islice(after, count)))


# Change


@ROUTES.add(
    "POST",
    "/v1/schedules",
    Permission.OPERATE,
    "Create a schedule",
    status=201,
    body=ScheduleRequest,
    answer=ScheduleView,
    refusals=(409,),
)
async def add_schedule(ask: Ask) -> Response:
    request: ScheduleRequest = ask.body
    words = msgspec.structs.asdict(request)
    words |= checked(ask, request.kind, request.payload, request.queue, request.group, request.priority)
    try:
        wanted = definition(words)
        require_reach(ask, wanted)
        made = await ask.door.schedules.add(wanted)
    except BadOption as error:
        raise told(error) from None
    await note(ask, "schedule.add", made.name, expression=made.expression, timezone=made.timezone, kind=made.kind)
    where = "/v1/schedules/" + quote(made.name, safe="")
    return Quick(_encode(await view_of(ask.door.store, made)), 201, (b"location", where.encode()))


@ROUTES.add(
    "PATCH",
    "/v1/schedules/{schedule}",
    Permission.OPERATE,
    "Change what is given of a schedule; one that is declared in code or in a file is changed there",
    body=ScheduleChange,
    answer=ScheduleView,
)
async def edit_schedule(ask: Ask) -> ScheduleView:
    found, changes = await in_reach(ask), ask.body.given()
    if "kind" in changes or "payload" in changes:
        kind, payload = changes.get("kind", found.kind), changes.get("payload", msgspec.json.decode(found.payload))
        checked(ask, kind, payload, found.queue, found.group, found.priority)
    elsewhere = {name: changes[name] for name in ("queue", "group") if name in changes}
    require_reach(ask, msgspec.structs.replace(found, **elsewhere))
    try:
        made = await ask.door.schedules.edit(found.name, changes)
    except BadOption as error:
        raise told(error) from None
    if changes:
        await note(ask, "schedule.edit", made.name, changed=", ".join(changes))
    return await view_of(ask.door.store, made)


@ROUTES.add(
    "DELETE",
    "/v1/schedules/{schedule}",
    Permission.OPERATE,
    "Remove a schedule and its history; its jobs stay",
    status=204,
)
async def remove_schedule(ask: Ask) -> None:
    found = await in_reach(ask)
    await ask.door.schedules.remove(found.name)
    await note(ask, "schedule.remove", found.name, expression=found.expression, kind=found.kind)


@ROUTES.add(
    "POST",
    "/v1/schedules/{schedule}/pause",
    Permission.OPERATE,
    "Let it fire no more",
    answer=ScheduleView,
)
async def pause_schedule(ask: Ask) -> ScheduleView:
    made = await ask.door.schedules.pause((await in_reach(ask)).name)
    await note(ask, "schedule.pause", made.name)
    return await view_of(ask.door.store, made)


@ROUTES.add(
    "POST",
    "/v1/schedules/{schedule}/resume",
    Permission.OPERATE,
    "Let it fire again; the instants of the time when it was paused are not made up for",
    answer=ScheduleView,
)
async def resume_schedule(ask: Ask) -> ScheduleView:
    made = await ask.door.schedules.resume((await in_reach(ask)).name)
    await note(ask, "schedule.resume", made.name)
    return await view_of(ask.door.store, made)


@ROUTES.add(
    "POST",
    "/v1/schedules/{schedule}/run",
    Permission.OPERATE,
    "Insert its job now, beside the clock",
    status=202,
    answer=RunAnswer,
)
async def run_schedule(ask: Ask) -> Response:
    found = await in_reach(ask)
    job_id = await ask.door.schedules.run(found.name)
    job = await ask.door.store.get(job_id)
    if job is not None:
        ask.door.enqueued(job)
    await note(ask, "schedule.run", found.name, job=job_id)
    return Quick(_encode(RunAnswer(job_id)), 202, (b"location", f"/v1/jobs/{job_id}".encode()))


# What is wrong, and where


def checked(
    ask: Ask, kind: str, payload: dict[str, Any], queue: str | None, group: str | None, priority: int | None
) -> dict[str, Any]:
    """As the app's handler would have it: its queue where none is said, its parameters in the payload."""
    request = JobRequest(kind=kind, payload=payload, queue=queue, group=group, priority=priority)
    try:
        job = ask.door.submit(kind, payload, words_of(request))
    except BadInput as error:
        raise pointed(error, request) from error
    return {"queue": job.queue, "group": job.group, "priority": job.priority}


def told(error: BadOption, base: str = "/") -> HttpError:
    """The same refusal, with a pointer to what it is about."""
    found = (FieldError(base + error.option, str(error)),) if error.option else ()
    return HttpError(status_of(error), error.code, str(error), errors=found)
