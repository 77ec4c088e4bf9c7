"""Authorization: the jobs, queues and groups that a principal may see, and the kinds that it may submit.

A token may be restricted to queues, groups and kinds, and a submitter sees only its own jobs. What a principal may not
see is reported as not found. Roles are checked in `server.dispatch`, by the table in `domain.access`.
"""

from __future__ import annotations

import asyncio

import msgspec

from jobyard.api.convert import filter_of, owner_tag
from jobyard.api.schemas.jobs import JobFilter
from jobyard.domain.access import Permission, Principal
from jobyard.domain.job import Job, State
from jobyard.domain.redaction import redacted_job, redacted_json, secret_conditions
from jobyard.domain.tags import is_reserved
from jobyard.errors import BadOption, JobNotFound
from jobyard.executors.sandbox.program import KIND as PROGRAM
from jobyard.executors.workflow.file_records import FILE_WORKFLOW
from jobyard.github.tickets import KIND as RUNNER
from jobyard.operations.dead_letters import error_group
from jobyard.operations.webhooks.executor import KIND as WEBHOOK
from jobyard.ports.admin_store import Filter, QueueInfo
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext
from jobyard.server.visible_jobs import QUICK_BYTES, JobPredicate, filters_in_scope, job_bytes

# Kinds of jobs that have a meaning of their own, and where they come from.
RESERVED = {
    PROGRAM: "programs. Use POST /execute.",
    WEBHOOK: "programs. Use POST /execute.",
    FILE_WORKFLOW: "runs of workflow files. Use POST /api/v2/workflows/execute.",
    RUNNER: "GitHub runners, which the jobs of GitHub start.",
}
# An application may have handlers for the others.
NEVER_HANDLED = (WEBHOOK, FILE_WORKFLOW)


def is_restricted(principal: Principal) -> bool:
    return principal.has_scope or principal.sees_own_jobs_only


def require_kind(context: RequestContext, kind: str) -> None:
    """Raise HttpError for a kind out of scope, and BadOption for one whose jobs only this server makes.

    The route of programs puts each into the group of its token, and so under its limits; here the caller could choose
    it. A webhook delivers the result of any program, so it is made with the program only. A run of a workflow file
    carries the file, which could name steps out of the scope of the token; the ticket of a runner could name any
    organization.
    """
    factory = context.dependencies.job_factory
    owner = RESERVED.get(kind)
    if owner is not None and (kind in NEVER_HANDLED or not factory.has_handler(kind)):
        raise BadOption(f'Cannot submit kind "{kind}": it is reserved for {owner}', option="kind")
    if not factory.may_submit(context.principal, kind):
        detail = (
            f'Cannot submit kind "{kind}": it is out of the scope of the token, or does not exist. '
            "Use a token that is restricted to this kind, or to the queue that its handler declares."
        )
        raise HttpError(403, "out_of_scope", detail)


def can_see(principal: Principal, job: Job) -> bool:
    return principal.reaches(job.queue, job.group, job.kind) and (
        not principal.sees_own_jobs_only or owner_tag(principal) in job.tags
    )


def requested_id(context: RequestContext) -> str:
    job_id = context.path["id"]
    if "\0" in job_id:  # PostgreSQL rejects it in a parameter, and no job has it
        raise JobNotFound.of(job_id)
    return job_id


async def visible_job(context: RequestContext) -> Job:
    job_id = requested_id(context)
    job = await context.dependencies.store.get(job_id)
    if job is None or not can_see(context.principal, job):
        raise JobNotFound.of(job_id)
    return job


async def shown_job(principal: Principal, job: Job) -> Job:
    """The job as the principal may read it: without secrets if it may not reveal them."""
    if principal.may(Permission.REVEAL):
        return job
    return redacted_job(job) if job_bytes(job) <= QUICK_BYTES else await asyncio.to_thread(redacted_job, job)


async def require_job(context: RequestContext) -> str:
    """The requested id; the job is read only when the principal may not see all jobs."""
    if is_restricted(context.principal):
        await visible_job(context)
    return requested_id(context)


def whole_queue_forbidden() -> HttpError:
    return HttpError(
        403, "not_allowed", "The token is restricted to groups or kinds and cannot change the whole queue."
    )


async def visible_queue(context: RequestContext, *, whole: bool = False) -> QueueInfo:
    """The requested queue. `whole`: a change to the whole queue, forbidden to tokens restricted to groups or kinds."""
    name = context.path["queue"]
    if not context.principal.queues or name in context.principal.queues:
        for info in await context.operations.queues():
            if info.name == name:
                if whole and not context.principal.has_whole_queues:
                    raise whole_queue_forbidden()
                return info
    raise HttpError(404, "queue_not_found", f'Queue "{name}" not found.')


async def visible_group(context: RequestContext) -> tuple[str, str]:
    """The requested queue and group, for a change to the whole group."""
    queue, group = (await visible_queue(context)).name, context.path["group"]
    if context.principal.groups and group not in context.principal.groups:
        raise HttpError(404, "group_not_found", f'Group "{group}" not found in queue "{queue}".')
    if context.principal.kinds:
        raise HttpError(403, "not_allowed", "The token is restricted to kinds and cannot change the whole group.")
    return queue, group


def visible_filters(
    principal: Principal,
    requested: JobFilter,
    states: tuple[State, ...] = (),
    ids: tuple[str, ...] | None = None,
    *,
    mine: bool = False,
) -> tuple[list[Filter], JobPredicate]:
    """Filters for the store, and a predicate for conditions that a store filter cannot hold, such as a second tag."""
    own = owner_tag(principal) if principal.sees_own_jobs_only or mine else None
    tag = requested.tag
    if tag is not None and is_reserved(tag):
        raise HttpError(422, "bad_input", "Cannot filter by tags that begin with by: or trace:; they are reserved.")
    where = msgspec.structs.replace(filter_of(requested, states, ids), tag=own or tag)
    search = searched_without_secrets(principal, where)
    if search is not None:
        where = msgspec.structs.replace(where, text=None, payload=())

    reveals = principal.may(Permission.REVEAL)

    def is_visible(job: Job) -> bool:
        return (
            can_see(principal, job)
            and (tag is None or tag in job.tags)
            and (not states or job.state in states)
            and (requested.error is None or error_group(job if reveals else redacted_job(job)) == requested.error)
            and (search is None or search.matches(job.created_at, bytes(redacted_json(job.payload))))
        )

    # The owner tag alone selects a submitter's jobs, so they need no filter per queue.
    return ([where] if principal.sees_own_jobs_only else filters_in_scope(principal, where)), is_visible


def searched_without_secrets(principal: Principal, where: Filter) -> Filter | None:
    """The search in payloads that the server must do itself, because the principal may not see their secrets.

    A store would look for the text in the secrets as well, and its page tokens would tell what it found there.
    """
    if principal.may(Permission.REVEAL) or not where.searches:
        return None
    for condition in secret_conditions(where.payload):
        path = condition.partition(":")[0]
        detail = f'Cannot search by "{path}": it looks like a secret, which the role {principal.role} may not see.'
        raise HttpError(403, "not_allowed", detail)
    return Filter(text=where.text, payload=where.payload)
