"""What is within reach: one's queues and groups, and a submitter's own jobs; the rest is not there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

from jobyard.api.convert import owner_tag
from jobyard.api.schemas.jobs import JobFilter
from jobyard.domain.access import Principal
from jobyard.domain.instant import Instant
from jobyard.domain.job import Job, State
from jobyard.domain.tags import is_reserved
from jobyard.errors import JobNotFound
from jobyard.ports.admin_store import Filter, QueueInfo
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext
from jobyard.server.visible_jobs import sources

JobPredicate: TypeAlias = Callable[[Job], bool]


def is_restricted(principal: Principal) -> bool:
    return bool(principal.queues or principal.groups) or principal.sees_own_jobs_only


def can_see(principal: Principal, job: Job) -> bool:
    return principal.reaches(job.queue, job.group) and (
        not principal.sees_own_jobs_only or owner_tag(principal) in job.tags
    )


def job_not_found(job_id: str) -> JobNotFound:
    return JobNotFound.of(job_id)


def requested_id(context: RequestContext) -> str:
    job_id = context.path["id"]
    if "\0" in job_id:  # not every store can be asked for it, and none has it
        raise job_not_found(job_id)
    return job_id


async def visible_job(context: RequestContext) -> Job:
    job_id = requested_id(context)
    job = await context.dependencies.store.get(job_id)
    if job is None or not can_see(context.principal, job):
        raise job_not_found(job_id)
    return job


async def require_job(context: RequestContext) -> str:
    """The id of the job that is asked for; whoever can_see all jobs need not look first."""
    if is_restricted(context.principal):
        await visible_job(context)
    return requested_id(context)


def whole_queue_forbidden() -> HttpError:
    return HttpError(403, "not_allowed", "This token has some groups only, not the whole queue.")


async def visible_queue(context: RequestContext, *, whole: bool = False) -> QueueInfo:
    """The queue that is asked for; `whole`: a change to all of it is not for those who have some groups only."""
    name = context.path["queue"]
    if not context.principal.queues or name in context.principal.queues:
        for info in await context.dependencies.store.queues():
            if info.name == name:
                if whole and context.principal.groups:
                    raise whole_queue_forbidden()
                return info
    raise HttpError(404, "queue_not_found", f"There is no queue {name}.")


async def visible_group(context: RequestContext) -> tuple[str, str]:
    queue, group = (await visible_queue(context)).name, context.path["group"]
    if context.principal.groups and group not in context.principal.groups:
        raise HttpError(404, "group_not_found", f"There is no group {group} in queue {queue}.")
    return queue, group


def visible_filters(
    principal: Principal, asked: JobFilter, states: tuple[State, ...] = (), ids: tuple[str, ...] | None = None
) -> tuple[list[Filter], JobPredicate]:
    """What the store is asked for, and what is then left out of its answer because a filter holds one value of each."""
    own = owner_tag(principal) if principal.sees_own_jobs_only else None
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
        return can_see(principal, job) and (tag is None or tag in job.tags) and (not states or job.state in states)

    # One's own jobs are all where one may hand them in.
    return ([where] if own is not None else sources(principal, where)), keep


def _instant(moment: datetime | None) -> Instant | None:
    return None if moment is None else round(moment.timestamp() * 1000)
