"""What is within reach: one's queues and groups, and a submitter's own jobs; the rest is not there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias

from jobyard.api.convert import tag_of
from jobyard.api.schemas.jobs import JobFilter
from jobyard.domain.access import Principal
from jobyard.domain.instant import Instant
from jobyard.domain.job import Job, State
from jobyard.domain.tags import is_reserved
from jobyard.errors import JobNotFound
from jobyard.ports.admin_store import Filter, QueueInfo
from jobyard.server.problems import HttpError
from jobyard.server.route import Ask
from jobyard.server.routes.audit import audited
from jobyard.server.visible_jobs import sources

Keep: TypeAlias = Callable[[Job], bool]


def is_confined(principal: Principal) -> bool:
    return bool(principal.queues or principal.groups) or principal.sees_own_jobs_only


def sees(principal: Principal, job: Job) -> bool:
    return principal.reaches(job.queue, job.group) and (
        not principal.sees_own_jobs_only or tag_of(principal) in job.tags
    )


def gone(job_id: str) -> JobNotFound:
    return JobNotFound.of(job_id)


def asked_id(ask: Ask) -> str:
    job_id = ask.path["id"]
    if "\0" in job_id:  # not every store can be asked for it, and none has it
        raise gone(job_id)
    return job_id


async def job_in_reach(ask: Ask) -> Job:
    job_id = asked_id(ask)
    job = await ask.door.store.get(job_id)
    if job is None or not sees(ask.principal, job):
        raise gone(job_id)
    return job


async def require_job(ask: Ask) -> str:
    """The id of the job that is asked for; whoever sees all jobs need not look first."""
    if is_confined(ask.principal):
        await job_in_reach(ask)
    return asked_id(ask)


def not_the_whole() -> HttpError:
    return HttpError(403, "not_allowed", "This token has some groups only, not the whole queue.")


async def queue_in_reach(ask: Ask, *, whole: bool = False) -> QueueInfo:
    """The queue that is asked for; `whole`: a change to all of it is not for those who have some groups only."""
    name = ask.path["queue"]
    if not ask.principal.queues or name in ask.principal.queues:
        for info in await ask.door.store.queues():
            if info.name == name:
                if whole and ask.principal.groups:
                    raise not_the_whole()
                return info
    raise HttpError(404, "queue_not_found", f"There is no queue {name}.")


async def group_in_reach(ask: Ask) -> tuple[str, str]:
    queue, group = (await queue_in_reach(ask)).name, ask.path["group"]
    if ask.principal.groups and group not in ask.principal.groups:
        raise HttpError(404, "group_not_found", f"There is no group {group} in queue {queue}.")
    return queue, group


def narrowed(
    principal: Principal, asked: JobFilter, states: tuple[State, ...] = (), ids: tuple[str, ...] | None = None
) -> tuple[list[Filter], Keep]:
    """What the store is asked for, and what is then left out of its answer because a filter holds one value of each."""
    own = tag_of(principal) if principal.sees_own_jobs_only else None
    tag = asked.tag
    if tag is not None and is_reserved(tag):
        raise HttpError(422, "bad_input", "Tags that begin with by: or trace: cannot be asked for.")
    where = Filter(
        ids=ids,
        queue=asked.queue,
        group=asked.group,
        kind=asked.kind,
        states=asked.state or states or None,
        tag=own or tag,
        unique_key=asked.unique_key,
        text=asked.text,
        created_after=_instant(asked.created_after),
        created_before=_instant(asked.created_before),
    )

    def keep(job: Job) -> bool:
        return sees(principal, job) and (tag is None or tag in job.tags) and (not states or job.state in states)

    # One's own jobs are all where one may hand them in.
    return ([where] if own is not None else sources(principal, where)), keep


def _instant(moment: datetime | None) -> Instant | None:
    return None if moment is None else round(moment.timestamp() * 1000)


async def note(ask: Ask, action: str, target: str, **details: Any) -> None:
    """Every change is written down: who, what, to what."""
    told = {name: value for name, value in details.items() if value not in (None, "", ())}
    await audited(ask, action, target, told)
