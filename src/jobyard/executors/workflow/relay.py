"""Delivery of the ends of jobs: to their parents, and from ended workflows to their children."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobyard.domain.history import EndedJob, HistoryEntry, deliveries_of
from jobyard.domain.job import Job, State
from jobyard.executors.workflow.records import BATCH_KIND, Children, batch_children, decode, registered_children
from jobyard.ports.admin_store import Action, Filter
from jobyard.ports.store import Store

# Ends delivered in one call.
BATCH = 500
PAGE = 1000
# Jobs found in one call.
CHUNK = 100


async def deliver_ended(store: Store, limit: int = BATCH) -> int:
    """Deliver the oldest ends and return how many; all workers may do so at once, each end counts once."""
    ended = await store.ended_jobs(limit)
    if not ended:
        return 0
    failed = [each for each in ended if each.is_workflow and each.state is not State.COMPLETED]
    deliveries = [delivery for each in ended for delivery in deliveries_of(each)]
    if failed:
        await store.deliver(deliveries)
        for each in failed:
            await cancel_children(store, each)
        deliveries = []
    await store.deliver(deliveries, [each.job_id for each in ended])
    return len(ended)


async def deliver_completed(store: Store, ended: Sequence[EndedJob]) -> None:
    """Deliver the ends of jobs that this worker has completed, without reading them first."""
    await store.deliver(
        [delivery for each in ended for delivery in deliveries_of(each)], [each.job_id for each in ended]
    )


async def cancel_children(store: Store, ended: EndedJob) -> None:
    """Cancel what an ended workflow left behind: it was quarantined, timed out or cancelled twice."""
    job = await store.get(ended.job_id)
    if job is not None and not job.state.is_final:
        return  # it was retried since, and needs them
    registered = await load_children(store, ended.job_id)
    if job is not None and job.kind == BATCH_KIND:
        registered = await find_batch(store, job.id)
    for children in registered:
        await cancel_unfinished(store, children.ids, f"its parent {ended.job_id} has ended")


async def cancel_unfinished(store: Store, ids: tuple[str, ...], reason: str) -> None:
    """Cancel the jobs that were not asked to stop yet: a second request would end a workflow without its cleanup.

    Several workers may do so at once.
    """
    for few in _chunks(ids):
        await store.change(Action.CANCEL, few, reason=reason, unless_requested=True)


async def find_jobs(store: Store, ids: tuple[str, ...]) -> list[Job]:
    """Those of the jobs that exist."""
    found: list[Job] = []
    cursor: str | None = None
    while True:
        page = await store.find(Filter(ids=ids), limit=len(ids), cursor=cursor)
        found += page.jobs
        cursor = page.cursor
        if cursor is None or len(found) == len(ids):
            return found


async def load_children(store: Store, job_id: str) -> list[Children]:
    entries = {entry.key: decode(entry) for entry in await load_history(store, job_id)}
    return list(registered_children(job_id, entries))


async def find_batch(store: Store, job_id: str) -> list[Children]:
    """The jobs of a batch, also of one that was not closed: they are numbered without gaps."""
    found: list[Children] = []
    while True:
        some = batch_children(job_id, CHUNK * len(found), CHUNK)
        there = {job.id for job in await find_jobs(store, some.ids)}
        if not there:
            return found
        kept = [(key, own_id) for key, own_id in zip(some.keys, some.ids, strict=True) if own_id in there]
        found.append(Children(some.scope, tuple(key for key, _ in kept), tuple(own_id for _, own_id in kept)))


async def load_history(store: Store, job_id: str, scope: str = "", after: int = 0) -> list[HistoryEntry]:
    """All entries of a scope."""
    entries: list[HistoryEntry] = []
    while page := await store.history(job_id, scope, after=after, limit=PAGE):
        entries += page
        after = page[-1].number
        if len(page) < PAGE:
            break
    return entries


def _chunks(ids: tuple[str, ...], size: int = CHUNK) -> Iterator[tuple[str, ...]]:
    for first in range(0, len(ids), size):
        yield ids[first : first + size]
