"""Audit of workflows: none waits for a job that has ended, and no job is left behind by a workflow that has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from jobyard.domain.history import NO_RESULT, ChildEnd, Delivery
from jobyard.domain.job import Job, State
from jobyard.executors.workflow.records import decode, is_child_id, part, registered_children
from jobyard.executors.workflow.relay import cancel_unfinished, find_jobs, load_history
from jobyard.operations.queries import Queries
from jobyard.ports.admin_store import Filter
from jobyard.ports.store import Store

UNFINISHED = (State.PENDING, State.RUNNING)
# Ends that no worker has delivered yet; more than this many are a sign that no worker runs.
MAX_UNDELIVERED = 100_000
CHUNK = 100


class WaitsForEnded(msgspec.Struct, frozen=True):
    """A parked workflow waits for a child job whose end will never be delivered."""

    parent_id: str
    scope: str
    key: str
    child_id: str
    child: Job | None

    def __str__(self) -> str:
        how = "does not exist" if self.child is None else f"is {self.child.state}"
        return f"workflow {self.parent_id} waits for job {self.child_id}, which {how}"


class OrphanedChild(msgspec.Struct, frozen=True):
    """A child job is still to run although its workflow has ended."""

    child_id: str
    parent_id: str

    def __str__(self) -> str:
        return f"job {self.child_id} is still to run, although its workflow {self.parent_id} has ended"


async def audit_workflows(store: Store) -> list[WaitsForEnded | OrphanedChild]:
    """Find both faults. Safe while workers run: an end that is on its way is not a fault. Reads all unfinished jobs."""
    found: list[WaitsForEnded | OrphanedChild] = []
    parents: dict[str, Job | None] = {}
    async for job in Queries(store).walk(Filter(states=UNFINISHED)):
        if job.is_workflow and job.state is State.PENDING and job.waiting_for is not None:
            found += [each async for each in _waits_for_ended(store, job)]
        if is_child_id(job.id) and job.cancel_requested is None:
            found += [each async for each in _left_behind(store, job.id, parents)]
    return found


async def repair_workflows(store: Store) -> list[str]:
    """Tell workflows of the ends that they missed, and cancel what was left behind. Returns what was found."""
    found = await audit_workflows(store)
    for each in found:
        if isinstance(each, OrphanedChild):
            await cancel_unfinished(store, (each.child_id,), f"its parent {each.parent_id} has ended")
            continue
        end = ChildEnd(job_id=each.child_id, reason="it does not exist")
        if each.child is not None:
            result = each.child.result or NO_RESULT
            end = ChildEnd(job_id=each.child_id, state=each.child.state, result=result, reason=each.child.reason)
        await store.deliver([Delivery(each.parent_id, each.scope, each.key, msgspec.json.encode(end))])
    return [str(each) for each in found]


async def _waits_for_ended(store: Store, parent: Job) -> AsyncIterator[WaitsForEnded]:
    entries = {entry.key: decode(entry) for entry in await load_history(store, parent.id)}
    for children in registered_children(parent.id, entries):
        told = await _told(store, parent.id, children.scope)
        missing = {
            own_id: key
            for key, own_id in zip(children.keys, children.ids, strict=True)
            # One that was not inserted because its unique key was held has no end: the parent follows the holder.
            if key not in told and not ((marker := entries.get(part(key, "inserted"))) and marker.record.name)
        }
        # In this order: the end of a job is undelivered from the moment it ends, until its parent was told.
        jobs = {job.id: job for own_ids in _chunks(tuple(missing)) for job in await find_jobs(store, own_ids)}
        suspects = {own_id for own_id in missing if own_id not in jobs or jobs[own_id].state.is_final}
        if suspects:
            suspects -= {end.job_id for end in await store.ended_jobs(MAX_UNDELIVERED)}
            told = await _told(store, parent.id, children.scope)
        if suspects and await _is_still_parked(store, parent):
            for own_id in sorted(suspects):
                if missing[own_id] not in told:
                    child = await store.get(own_id)
                    yield WaitsForEnded(parent.id, children.scope, missing[own_id], own_id, child)


async def _told(store: Store, job_id: str, scope: str) -> set[str]:
    return {entry.key for entry in await load_history(store, job_id, scope)}


async def _is_still_parked(store: Store, seen: Job) -> bool:
    job = await store.get(seen.id)
    return job is not None and (job.state, job.waiting_for, job.run_at) == (seen.state, seen.waiting_for, seen.run_at)


async def _left_behind(store: Store, child_id: str, parents: dict[str, Job | None]) -> AsyncIterator[OrphanedChild]:
    child = await store.get(child_id)
    if child is None or child.parent_id is None:
        return
    if child.parent_id not in parents:
        parents[child.parent_id] = await store.get(child.parent_id)
    parent = parents[child.parent_id]
    if parent is not None and not parent.state.is_final:
        return
    # It is cancelled when the end of its parent is delivered.
    if child.parent_id in {end.job_id for end in await store.ended_jobs(MAX_UNDELIVERED)}:
        return
    again, parent = await store.get(child_id), await store.get(child.parent_id)
    if again is None or again.state.is_final or again.cancel_requested is not None:
        return
    if parent is None or parent.state.is_final:
        yield OrphanedChild(child_id, child.parent_id)


def _chunks(ids: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [ids[first : first + CHUNK] for first in range(0, len(ids), CHUNK)]
