"""Pages of several stores, merged by creation time; the cursor holds the position in each store."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping

import msgspec

from jobyard.domain.job import Job
from jobyard.ports.admin_store import Page
from jobyard.stores._shared.cursor import invalid_cursor


class PagePosition(msgspec.Struct, frozen=True, array_like=True):
    """Where the next page of a store starts: the cursor of a page, and the last job of it that was returned."""

    start: str | None = None
    returned: int | None = None  # its sequence


PagePositions = dict[str, PagePosition]


def encode(positions: Mapping[str, PagePosition]) -> str:
    """
    >>> decode(encode({"": PagePosition("7", 9), "ab": PagePosition()}), ["", "ab"])
    {'': PagePosition(start='7', returned=9), 'ab': PagePosition(start=None, returned=None)}
    """
    return base64.urlsafe_b64encode(msgspec.json.encode(positions)).decode().rstrip("=")


def decode(cursor: str | None, labels: Collection[str]) -> PagePositions:
    """A store that the cursor does not name has no more jobs; without a cursor all start at the beginning."""
    if cursor is None:
        return {label: PagePosition() for label in labels}
    try:
        positions = msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=PagePositions)
    except ValueError:
        positions = {}
    if not positions or not all(label in labels for label in positions):
        raise invalid_cursor(cursor)
    return positions


def merge(pages: Mapping[str, Page], positions: PagePositions, limit: int) -> tuple[tuple[Job, ...], PagePositions]:
    """The newest jobs of all pages, and the next position in each store.

    Ends early when the page of a store is used up and the store has more: its next job may be the newest of all.
    """
    waiting = {
        label: [job for job in page.jobs if (last := positions[label].returned) is None or job.sequence < last]
        for label, page in pages.items()
    }
    left = {label: positions[label] for label in pages}
    jobs: list[Job] = []
    while len(jobs) < limit:
        for label in [label for label, rest in waiting.items() if not rest]:
            cursor = pages[label].cursor
            if cursor is None:
                del waiting[label], left[label]
        if not waiting or not all(waiting.values()):
            break
        label = max(waiting, key=lambda label: waiting[label][0].created_at)
        job = waiting[label].pop(0)
        left[label] = PagePosition(positions[label].start, job.sequence)
        jobs.append(job)
    for label, rest in waiting.items():
        cursor = pages[label].cursor
        if not rest and cursor is None:
            del left[label]
        elif not rest:
            left[label] = PagePosition(cursor)
    return tuple(jobs), left
