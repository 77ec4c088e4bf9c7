"""Jobs within reach, newest first, asked for queue by queue: so the store's pages tell nothing of what lies beyond."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from jobyard.api.schemas.problems import FieldError
from jobyard.domain.access import Principal
from jobyard.domain.job import Job
from jobyard.errors import BadInput
from jobyard.ports.admin_store import Filter, Page
from jobyard.ports.store import Store
from jobyard.server.pagination import bad_token
from jobyard.server.problems import HttpError

# So many queues and groups, one with the other, are looked through for one page.
MOST_SOURCES = 20
BEGIN = ""
_decode = msgspec.json.Decoder(list[str | None]).decode


def sources(principal: Principal, where: Filter) -> list[Filter]:
    """The same question for each queue and group within reach; none for what is beyond."""
    queues = _within(where.queue, principal.queues)
    groups = _within(where.group, principal.groups)
    if len(queues) * len(groups) > MOST_SOURCES:
        wrong = "This token reaches too many queues and groups to be looked through at once: ask for one of them."
        raise HttpError(422, "bad_input", wrong, errors=(FieldError("queue", wrong), FieldError("group", wrong)))
    return [msgspec.structs.replace(where, queue=queue, group=group) for queue in queues for group in groups]


def _within(asked: str | None, own: tuple[str, ...]) -> Sequence[str | None]:
    if not own:
        return (asked,)
    return own if asked is None else [asked] if asked in own else []


async def find_visible(store: Store, filters: Sequence[Filter], limit: int, cursor: str | None = None) -> Page:
    """As the store's own `find`, over all of these."""
    if not filters:
        return Page((), None)
    if len(filters) == 1:
        return await _find(store, filters[0], limit, cursor)
    places = _places(cursor, len(filters))
    pages = await asyncio.gather(
        *(_page(store, *each, limit) for each in zip(filters, places, strict=True)),
    )
    jobs = sorted((job for page in pages for job in page.jobs), key=_age, reverse=True)[:limit]
    taken = {job.id for job in jobs}
    left = await asyncio.gather(
        *(_rest(store, *each, taken) for each in zip(filters, places, pages, strict=True)),
    )
    return Page(tuple(jobs), None if all(place is None for place in left) else msgspec.json.encode(left).decode())


def _age(job: Job) -> tuple[int, int]:
    return job.created_at, job.sequence


def _places(cursor: str | None, count: int) -> list[str | None]:
    if cursor is None:
        return [BEGIN] * count
    try:
        places = _decode(cursor.encode())
    except (msgspec.DecodeError, UnicodeError):
        raise bad_token() from None
    if len(places) != count:
        raise bad_token()
    return places


async def _page(store: Store, where: Filter, place: str | None, limit: int) -> Page:
    return Page((), None) if place is None else await _find(store, where, limit, place or None)


async def _rest(store: Store, where: Filter, place: str | None, page: Page, taken: set[str]) -> str | None:
    """Where the next page of this one begins: after what was taken of it."""
    count = sum(job.id in taken for job in page.jobs)
    if count == len(page.jobs):
        return page.cursor
    return place if count == 0 else (await _page(store, where, place, count)).cursor


async def _find(store: Store, where: Filter, limit: int, cursor: str | None) -> Page:
    try:
        return await store.find(where, limit, cursor)
    except BadInput:
        if cursor is None:
            raise
        raise bad_token() from None
