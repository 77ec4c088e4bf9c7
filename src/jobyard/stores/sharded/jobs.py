"""Get, find, change and prune jobs of all stores.

Pages are merged by creation time; the cursor holds the position in each store.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence

import msgspec

from jobyard.domain.job import Job
from jobyard.ports.admin_store import Action, Changed, Filter, Page
from jobyard.stores._shared.cursor import invalid_cursor
from jobyard.stores.sharded.shards import Shard, Shards, on_each


class ShardedJobs:
    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def get(self, job_id: str) -> Job | None:
        return (await self._shards.find_job(job_id))[1]

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        if where.queue is not None:
            return await self._shards.of_queue(where.queue).store.find(where, limit, cursor)
        positions = decode_positions(cursor, self._shards.by_label)
        shards = [shard for shard in self._shards.all if shard.label in positions]

        async def page(shard: Shard) -> Page:
            found = await shard.store.find(where, limit, positions[shard.label].start)
            return Page(tuple(job for job in found.jobs if shard.shows(job)), found.cursor)

        pages = await on_each(shards, page)
        by_label = {shard.label: page for shard, page in zip(shards, pages, strict=True)}
        jobs, left = merge_pages(by_label, positions, limit)
        return Page(jobs, encode_positions(left) if left else None)

    async def change(
        self,
        action: Action,
        job_ids: Sequence[str],
        *,
        reason: str = "",
        priority: int = 0,
        unless_requested: bool = False,
    ) -> Changed:
        answers = await self._shards.on_all(
            lambda shard: shard.store.change(
                action, job_ids, reason=reason, priority=priority, unless_requested=unless_requested
            )
        )
        changed = {job_id for answer in answers for job_id in answer.changed}
        unchanged = {job_id for answer in answers for job_id in answer.unchanged} - changed
        return Changed(
            tuple(job_id for job_id in dict.fromkeys(job_ids) if job_id in changed),
            tuple(job_id for job_id in dict.fromkeys(job_ids) if job_id in unchanged),
        )

    async def prune(self, limit: int = 1000) -> int:
        removed = 0
        for shard in self._shards.all:
            if removed < limit:
                removed += await shard.store.prune(limit - removed)
        return removed


class PagePosition(msgspec.Struct, frozen=True, array_like=True):
    """Where the next page of a store starts: the cursor of a page, and the last job of it that was returned."""

    start: str | None = None
    returned: int | None = None  # its sequence


PagePositions = dict[str, PagePosition]


def encode_positions(positions: Mapping[str, PagePosition]) -> str:
    """
    >>> decode_positions(encode_positions({"": PagePosition("7", 9), "ab": PagePosition()}), ["", "ab"])
    {'': PagePosition(start='7', returned=9), 'ab': PagePosition(start=None, returned=None)}
    """
    return base64.urlsafe_b64encode(msgspec.json.encode(positions)).decode().rstrip("=")


def decode_positions(cursor: str | None, labels: Collection[str]) -> PagePositions:
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


def merge_pages(
    pages: Mapping[str, Page], positions: PagePositions, limit: int
) -> tuple[tuple[Job, ...], PagePositions]:
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
