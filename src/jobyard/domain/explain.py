"""Explanation of why a job waits: codes and data for programs, a sentence for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from jobyard.domain.admission import Group, Queue, limit_of
from jobyard.domain.instant import FOREVER, rfc3339
from jobyard.domain.job import Job, State
from jobyard.domain.text import counted


class Cause(msgspec.Struct, frozen=True):
    """One reason that holds the job back; without any, the job is claimed in its turn."""

    code: str
    sentence: str
    data: dict[str, Any]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    job_id: str
    state: State
    causes: tuple[Cause, ...]
    ahead_in_group: int  # due jobs of its group that go before it
    groups_ahead: int  # groups before its group in line
    counts_capped: bool = False  # the two numbers are lower bounds
    sentence: str


class JobPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one job's position, from one snapshot of the store."""

    job: Job
    is_due: bool  # it is in line, or would join it now; a clock that was set back does not take it out again
    queue: Queue  # without its groups
    group: Group
    ahead_in_group: int
    groups_ahead: int
    counts_capped: bool
    running_ids: tuple[str, ...]  # some running jobs of its group; of the queue if the queue is full
    workers: int  # live workers that serve its queue


CODES = {
    "queue_paused": "its queue is paused",
    "group_paused": "its group is paused",
    "group_blocked": "its group's limit is 0",
    "group_limit_reached": "as many jobs of its group run as may",
    "queue_limit_reached": "as many jobs of its queue run as may",
    "not_due": "its time has not come",
    "parked": "it waits for a signal",
    "waits_for_signal": "a workflow: it waits for a signal",
    "waits_for_children": "a workflow: it waits for child jobs",
    "sleeps": "a workflow: it sleeps",
    "retries_step": "a workflow: a step failed, and is repeated later",
    "no_worker": "no live worker takes its queue",
    "no_handler": "no live worker that takes its queue has a handler for its kind",
    "no_sandbox": "no live worker has a sandbox that runs its program",
    "workers_busy": "every slot of the workers that can run it is taken",
}


REMEDIES = {
    "queue_paused": "Resume the queue to start its jobs.",
    "group_paused": "Resume the group to start its jobs.",
    "group_blocked": "Raise or remove the limit of the group.",
    "no_worker": "Start a worker for this queue.",
    "no_handler": "Start a worker with a handler for this kind, or correct the kind.",
    "workers_busy": "Wait, or start another worker.",
}


def explain(position: JobPosition, more: Sequence[Cause] = (), waits: Sequence[Cause] = ()) -> Explanation:
    """Explain the position; `more` are causes outside of the queue, `waits` what a workflow waits for."""
    job = position.job
    causes = (*_causes(position, waits), *more) if job.state is State.PENDING else ()
    return Explanation(
        job_id=job.id,
        state=job.state,
        causes=causes,
        ahead_in_group=position.ahead_in_group,
        groups_ahead=position.groups_ahead,
        counts_capped=position.counts_capped,
        sentence=_sentence(position, causes),
    )


def _causes(position: JobPosition, waits: Sequence[Cause]) -> list[Cause]:
    job, queue, group = position.job, position.queue, position.group
    found: list[Cause] = []

    def add(code: str, sentence: str, **data: Any) -> None:
        found.append(Cause(code, sentence, data))

    if waits and not position.is_due:
        found += waits
    elif job.waiting_for is not None and not position.is_due:
        until = None if job.run_at == FOREVER else rfc3339(job.run_at)
        add(
            "parked",
            f'parked until the signal "{job.waiting_for}"' + (f", or until {until}" if until else ""),
            signal=job.waiting_for,
            until=until,
        )
    elif not position.is_due:
        add("not_due", f"not due until {rfc3339(job.run_at)}", run_at=rfc3339(job.run_at))
    if queue.paused:
        add("queue_paused", f"queue {queue.name} is paused", queue=queue.name)
    if group.paused:
        add("group_paused", f"{_name(group)} is paused", group=group.name)
    limit = limit_of(queue, group)
    if limit == 0:
        add("group_blocked", f"{_name(group)} has the limit 0", group=group.name)
    elif group.running >= limit:
        add(
            "group_limit_reached",
            f"{_name(group)}: {group.running} of {limit} running; first free when "
            f"{_first(group.running - limit + 1, position.running_ids)}",
            group=group.name,
            running=group.running,
            limit=limit,
            holders=list(position.running_ids),
        )
    if queue.max_running is not None and queue.running >= queue.max_running:
        add(
            "queue_limit_reached",
            f"queue {queue.name}: {queue.running} of {queue.max_running} running",
            queue=queue.name,
            running=queue.running,
            limit=queue.max_running,
        )
    if position.workers == 0:
        add("no_worker", f"no live worker takes queue {queue.name}", queue=queue.name)
    return found


def _sentence(position: JobPosition, causes: tuple[Cause, ...]) -> str:
    job = position.job
    if job.state is State.RUNNING:
        where = f"handed off to {job.external_id}" if job.external_id else f"on worker {job.worker}"
        return f"It does not wait: attempt {job.attempt} of {job.max_attempts} runs {where}."
    if job.state is not State.PENDING:
        return f"It does not wait: it is {job.state}" + (f" ({job.reason})." if job.reason else ".")
    at_least = "at least " if position.counts_capped else ""
    place = []
    if position.ahead_in_group:
        place.append(f"{at_least}{position.ahead_in_group} before it in {_name(position.group)}")
    if position.groups_ahead and all(cause.code == "workers_busy" for cause in causes):  # else it is not in line
        place.append(f"{at_least}{counted(position.groups_ahead, 'group')} before its group in line")
    parts = [cause.sentence for cause in causes] + place
    if not parts:
        return "Nothing holds it back: it is next as soon as a worker has a free slot."
    text = "; ".join(parts)
    remedies = [REMEDIES[cause.code] for cause in causes if cause.code in REMEDIES]
    return " ".join([text[0].upper() + text[1:] + ".", *remedies])


def _name(group: Group) -> str:
    return "jobs without a group" if group.name is None else f"group {group.name}"


def _first(endings: int, ids: tuple[str, ...]) -> str:
    """
    >>> _first(1, ("a", "b")), _first(3, ("a", "b"))
    ('one of a, b ends', '3 of a, b, … have ended')
    """
    some = ", ".join(ids) if ids else "its running jobs"
    if endings <= 1:
        return f"one of {some} ends"
    return f"{endings} of {some}{', …' if endings > len(ids) else ''} have ended"
