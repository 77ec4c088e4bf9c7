"""Pages of several stores, merged by when jobs were created; the cursor knows how far each store is."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping

import msgspec

from jobyard.domain.job import Job
from jobyard.errors import BadInput
from jobyard.ports.admin_store import Page


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """Where a store goes on: the cursor of a page, and the last job of that page that was shown already."""

    start: str | None = None
    shown: int | None = None  # its sequence


Marks = dict[str, Mark]


def encode(marks: Mapping[str, Mark]) -> str:
    """
    >>> decode(encode({"": Mark("7", 9), "ab": Mark()}), ["", "ab"])
    {'': Mark(start='7', shown=9), 'ab': Mark(start=None, shown=None)}
    """
    return base64.urlsafe_b64encode(msgspec.json.encode(marks)).decode().rstrip("=")


def decode(cursor: str | None, labels: Collection[str]) -> Marks:
    """A store that the cursor does not name has nothing more; without a cursor all begin."""
    if cursor is None:
        return {label: Mark() for label in labels}
    try:
        marks = msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=Marks)
    except ValueError:
        marks = {}
    if not marks or not all(label in labels for label in marks):
        raise BadInput(f"{cursor!r} is not a cursor; use the one that the page before answered.")
    return marks


def merge(pages: Mapping[str, Page], marks: Marks, limit: int) -> tuple[tuple[Job, ...], Marks]:
    """The newest jobs of all pages, and where each store goes on.

    It ends early when a store's page is used up and it has more: what comes next there may be newer than all else.
    """
    waiting = {
        label: [job for job in page.jobs if (shown := marks[label].shown) is None or job.sequence < shown]
        for label, page in pages.items()
    }
    left = {label: marks[label] for label in pages}
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
        left[label] = Mark(marks[label].start, job.sequence)
        jobs.append(job)
    for label, rest in waiting.items():
        cursor = pages[label].cursor
        if not rest and cursor is None:
            del left[label]
        elif not rest:
            left[label] = Mark(cursor)
    return tuple(jobs), left
