"""Listing of the jobs that a restricted token may see, newest first, with one store query per queue, group and kind.

Filtering the pages of a wider query would leak, through its page tokens, jobs that the token may not see.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import product
from typing import TypeAlias

import msgspec

from jobyard.api.schemas.problems import FieldError
from jobyard.domain.access import Principal
from jobyard.domain.job import Job
from jobyard.errors import BadInput
from jobyard.ports.admin_store import Filter, Page
from jobyard.ports.store import Store
from jobyard.server.pagination import invalid_page_token
from jobyard.server.problems import HttpError

# Store queries for one page; a token restricted to more queues, groups and kinds must filter by one of them.
MAX_QUERIES = 20
FIRST_PAGE = ""
# Jobs may hold megabytes each: the store is read in small steps, and a page ends early when its jobs are large.
MAX_PAGE_BYTES = 2 << 20
FIRST_STEP, MAX_STEP = 10, 50
ABOUT_BYTES = 800  # of a job without its payload, result, progress and errors
# Documents of more bytes are searched and redacted in a thread: it would hold up the event loop.
QUICK_BYTES = 64 << 10
JobPredicate: TypeAlias = Callable[[Job], bool]
_decode = msgspec.json.Decoder(list[str | None]).decode


def filters_in_scope(principal: Principal, where: Filter) -> list[Filter]:
    """The filter, once for each queue, group and kind in the scope of the token; empty if nothing is in scope."""
    queues = _in_scope(where.queue, principal.queues)
    groups = _in_scope(where.group, principal.groups)
    kinds = _in_scope(where.kind, principal.kinds)
    if len(queues) * len(groups) * len(kinds) > MAX_QUERIES:
        detail = "The token has too many queues, groups and kinds to list at once. Filter by queue, group or kind."
        errors = tuple(FieldError(name, detail) for name in ("queue", "group", "kind"))
        raise HttpError(422, "bad_input", detail, errors=errors)
    return [
        msgspec.structs.replace(where, queue=queue, group=group, kind=kind)
        for queue, group, kind in product(queues, groups, kinds)
    ]


def _in_scope(requested: str | None, own: tuple[str, ...]) -> Sequence[str | None]:
    if not own:
        return (requested,)
    return own if requested is None else [requested] if requested in own else []


async def find_visible(store: Store, filters: Sequence[Filter], limit: int, cursor: str | None = None) -> Page:
    """As `Store.find`, merged over all filters."""
    if not filters:
        return Page((), None)
    if len(filters) == 1:
        return await _find(store, filters[0], limit, cursor)
    cursors = _cursors(cursor, len(filters))
    pages = await asyncio.gather(*(_page(store, *each, limit) for each in zip(filters, cursors, strict=True)))
    jobs = sorted((job for page in pages for job in page.jobs), key=_age, reverse=True)[:limit]
    taken = {job.id for job in jobs}
    read = zip(filters, cursors, pages, strict=True)
    left = await asyncio.gather(*(_next_cursor(store, *each, taken) for each in read))
    return Page(tuple(jobs), None if all(each is None for each in left) else msgspec.json.encode(left).decode())


async def pages_of(store: Store, filters: Sequence[Filter], cursor: str | None = None) -> AsyncIterator[Page]:
    """All pages from the cursor on, in steps that keep each of them small."""
    step = FIRST_STEP
    while True:
        page = await find_visible(store, filters, step, cursor)
        yield page
        cursor = page.cursor
        if cursor is None:
            return
        step = fitting_step(len(page.jobs), sum(map(job_bytes, page.jobs)))


def fitting_step(jobs: int, size: int, room: int = MAX_PAGE_BYTES, most: int = MAX_STEP) -> int:
    """How many jobs to read next, if they are as large as these, which have this size together."""
    return most if size == 0 else max(1, min(most, room * jobs // size))


def job_bytes(job: Job) -> int:
    """About how many bytes a job takes in a list."""
    values = (job.payload, job.result, None if job.progress is None else job.progress.data)
    size = sum(memoryview(value).nbytes for value in values if isinstance(value, msgspec.Raw))
    return size + sum(len(error.message) + len(error.traceback or "") for error in job.errors) + ABOUT_BYTES


async def matching_jobs(jobs: Sequence[Job], is_visible: JobPredicate) -> list[Job]:
    if sum(map(job_bytes, jobs)) <= QUICK_BYTES:
        return list(filter(is_visible, jobs))
    return await asyncio.to_thread(lambda: list(filter(is_visible, jobs)))


def _age(job: Job) -> tuple[int, int]:
    return job.created_at, job.sequence


def _cursors(cursor: str | None, count: int) -> list[str | None]:
    if cursor is None:
        return [FIRST_PAGE] * count
    try:
        cursors = _decode(cursor.encode())
    except (msgspec.DecodeError, UnicodeError):
        raise invalid_page_token() from None
    if len(cursors) != count:
        raise invalid_page_token()
    return cursors


async def _page(store: Store, where: Filter, cursor: str | None, limit: int) -> Page:
    return Page((), None) if cursor is None else await _find(store, where, limit, cursor or None)


async def _next_cursor(store: Store, where: Filter, cursor: str | None, page: Page, taken: set[str]) -> str | None:
    """The cursor after the jobs of this page that were taken; None at the end."""
    count = sum(job.id in taken for job in page.jobs)
    if count == len(page.jobs):
        return page.cursor
    return cursor if count == 0 else (await _page(store, where, cursor, count)).cursor


async def _find(store: Store, where: Filter, limit: int, cursor: str | None) -> Page:
    try:
        return await store.find(where, limit, cursor)
    except BadInput:
        if cursor is None:
            raise
        raise invalid_page_token() from None
