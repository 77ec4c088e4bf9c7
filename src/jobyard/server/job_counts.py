"""Numbers of jobs by state, up to a cap: from the counts of the queues if possible, else by a bounded search."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from jobyard.api.schemas.jobs import JobCounts, JobFilter
from jobyard.domain.job import State
from jobyard.ports.admin_store import Filter
from jobyard.ports.store import Store
from jobyard.server.visible_jobs import JobPredicate, matching_jobs, pages_of

# Counts of queues are exact and shown up to the first cap; other jobs are counted one by one, up to the second, and
# for at most this long.
QUEUE_CAP, SEARCH_CAP = 100_000, 1000
SECONDS = 0.6


async def counted_by_state(
    store: Store, requested: JobFilter, filters: Sequence[Filter], is_visible: JobPredicate
) -> JobCounts:
    states = [state for state in State if not filters or filters[0].states is None or state in filters[0].states]
    # Conditions that `is_visible` checks alone are not in the filters.
    has_more = requested.error is not None or requested.text is not None or bool(requested.payload)
    if filters and not has_more and all(each == Filter(queue=each.queue, states=each.states) for each in filters):
        return await _of_queues(store, filters, states, is_visible)
    return await _by_search(store, filters, states, is_visible, SECONDS)


async def _of_queues(
    store: Store, filters: Sequence[Filter], states: Sequence[State], is_visible: JobPredicate
) -> JobCounts:
    names = {each.queue for each in filters}
    queues = [info for info in await store.queues() if None in names or info.name in names]
    # The queues count FAILED and TIMEOUT together; there are few of either.
    timed_out = await _by_search(store, filters, [State.TIMEOUT], is_visible, SECONDS / 2)
    ended = sum(info.failed for info in queues)
    timeouts = min(ended, timed_out.counts.get(State.TIMEOUT, 0))
    counts = {
        State.PENDING: sum(info.waiting + info.delayed for info in queues),
        State.RUNNING: sum(info.running for info in queues),
        State.COMPLETED: sum(info.completed for info in queues),
        State.FAILED: ended - timeouts,
        State.TIMEOUT: timeouts,
        State.CANCELLED: sum(info.cancelled for info in queues),
    }
    capped = {str(state): min(QUEUE_CAP, counts[state]) for state in states}
    return JobCounts(counts=capped, cap=QUEUE_CAP, is_complete=timed_out.is_complete)


async def _by_search(
    store: Store, filters: Sequence[Filter], states: Sequence[State], is_visible: JobPredicate, seconds: float
) -> JobCounts:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    counts: dict[str, int] = {}
    is_complete = True
    for state in states:
        wanted = [msgspec.structs.replace(each, states=(state,)) for each in filters]
        number = 0
        if loop.time() > end:
            is_complete = False
            continue
        async for page in pages_of(store, wanted):
            number += len(await matching_jobs(page.jobs, is_visible))
            if page.cursor is not None and loop.time() > end:
                is_complete = False
            if number >= SEARCH_CAP or not is_complete:
                break
        counts[str(state)] = min(SEARCH_CAP, number)
    return JobCounts(counts=counts, cap=SEARCH_CAP, is_complete=is_complete)
