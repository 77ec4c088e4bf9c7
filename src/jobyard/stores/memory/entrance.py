"""The gate that every new job passes: unique keys and back-pressure, checked before anything is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob
from jobyard.errors import BadInput, QueueFull
from jobyard.ports.job_store import Inserted
from jobyard.stores.memory.shelf import Shelf


def enter(shelf: Shelf, jobs: Sequence[NewJob], now: Instant) -> list[Inserted]:
    """All jobs, or none."""
    holders = _holders(shelf, jobs, now)
    _require_room(shelf, [job for job, holder in zip(jobs, holders, strict=True) if holder is None])
    return [
        Inserted(holder, False, 0) if holder is not None else Inserted(job.id, True, shelf.add(job, now).sequence)
        for job, holder in zip(jobs, holders, strict=True)
    ]


def require_unknown(shelf: Shelf, job_id: str) -> None:
    if job_id in shelf:
        raise BadInput(f"There already is a job {job_id}. Give each job an id of its own.")


def _holders(shelf: Shelf, jobs: Sequence[NewJob], now: Instant) -> list[str | None]:
    """For each job, who already holds its unique key: a stored job, or an earlier one of the same call."""
    holders: list[str | None] = []
    ids: set[str] = set()
    taken: dict[tuple[str, str], str] = {}
    for job in jobs:
        holder = shelf.keys.holder(job, now)
        if holder is None and job.unique is not None:
            holder = taken.get((job.queue, job.unique.key))
        holders.append(holder)
        if holder is not None:
            continue
        require_unknown(shelf, job.id)
        if job.id in ids:
            raise BadInput(f"Job {job.id} is handed in twice. Give each job an id of its own.")
        ids.add(job.id)
        if job.unique is not None:
            taken[job.queue, job.unique.key] = job.id
    return holders


def _require_room(shelf: Shelf, jobs: Sequence[NewJob]) -> None:
    lacks = [lacks_room(shelf, queue, None, more) for queue, more in Counter(job.queue for job in jobs).items()]
    groups = Counter((job.queue, job.group) for job in jobs if job.group is not None)
    lacks += [lacks_room(shelf, queue, group, more) for (queue, group), more in groups.items()]
    for sentence in lacks:
        if sentence is not None:
            raise QueueFull(sentence)


def lacks_room(shelf: Shelf, queue: str, group: str | None, more: int) -> str | None:
    """Why so many more waiting jobs do not fit into the queue, or into its group; None if they do."""
    line = shelf.lines.get(queue)
    if line is None:
        return None
    if group is None:
        limit, pending = line.settings.max_waiting, line.due + line.delayed
        if limit is None or pending + more <= limit:
            return None
        return (
            f'Queue "{queue}" may hold {limit} waiting jobs (max_waiting) and has no room for {more} more. '
            "Insert again when some have run, or raise max_waiting."
        )
    limit, pending = line.settings.max_waiting_per_group, line.groups[group].pending if group in line.groups else 0
    if limit is None or pending + more <= limit:
        return None
    return (
        f'Group "{group}" of queue "{queue}" may hold {limit} waiting jobs (max_waiting_per_group) and has no '
        f"room for {more} more. Insert again when some have run, or raise max_waiting_per_group."
    )
