"""GitHub jobs, the runners for them, and organizations. An organization is a group of the queue `runners`."""

from __future__ import annotations

import math
from typing import Literal

from starlette.responses import Response

from jobyard.api.schemas.jobs import Name, RequestSchema
from jobyard.api.schemas.runners import (
    RequeueRequest,
    RunnerJobDetails,
    RunnerJobPage,
    RunnerOrgList,
    RunnerPodPage,
)
from jobyard.domain.access import Permission, Principal
from jobyard.domain.runners.runner import RunnerState
from jobyard.errors import BadInput
from jobyard.github.errors import GitHubError, GitHubRateLimited, GitHubUnavailable
from jobyard.github.queries import Viewer, job_not_found
from jobyard.github.requeue import requeue
from jobyard.github.services import RunnerServices
from jobyard.github.tickets import KIND, QUEUE
from jobyard.server.pagination import (
    PageSize,
    PageToken,
    decode_page_token,
    invalid_page_token,
    list_name,
    page_response,
)
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("runners")
NOT_CONFIGURED = "GitHub runners are not configured on this server. Set runners.profiles."
MAX_JOB_ID_DIGITS = 18


class RunnerJobQuery(RequestSchema, frozen=True, kw_only=True):
    org: Name | None = None
    state: Literal["held_back", "queued", "in_progress", "unserved"] | None = None
    profile: Name | None = None
    page_size: PageSize = 50
    page_token: PageToken | None = None


class RunnerPodQuery(RequestSchema, frozen=True, kw_only=True):
    org: Name | None = None
    state: RunnerState | None = None
    page_size: PageSize = 50
    page_token: PageToken | None = None


@ROUTES.add("GET", "/v1/runners/jobs", Permission.WATCH, query=RunnerJobQuery, response=RunnerJobPage, problems=(404,))
async def list_runner_jobs(context: RequestContext) -> Response:
    """List unfinished GitHub jobs in the order of launch, with the reason why each waits."""
    query = context.query
    cursor = decode_page_token(query.page_token, list_name(context))
    try:
        page = await services_of(context).queries.jobs(
            org=query.org,
            state=query.state,
            profile=query.profile,
            viewer=viewer_of(context.principal),
            limit=query.page_size,
            cursor=cursor,
        )
    except BadInput:
        raise invalid_page_token() from None
    return page_response(context, RunnerJobPage, page.items, page.cursor)


@ROUTES.add("GET", "/v1/runners/jobs/{job_id}", Permission.WATCH, response=RunnerJobDetails)
async def get_runner_job(context: RequestContext) -> RunnerJobDetails:
    """Get a GitHub job with its timeline, and why it waits."""
    text = context.path["job_id"]
    return await visible_job(context, text)


@ROUTES.add(
    "POST",
    "/v1/runners/jobs/requeue",
    Permission.OPERATE,
    body=RequeueRequest,
    response=RunnerJobDetails,
    problems=(404, 409, 502),
)
async def requeue_runner_job(context: RequestContext) -> RunnerJobDetails:
    """Enter a job again that GitHub still has queued."""
    services, request = services_of(context), context.body
    org = request.repo.partition("/")[0]
    if not viewer_of(context.principal).sees(org):
        raise HttpError(404, "not_found", f"Organization {org} not found.")
    now, cannot = await context.dependencies.store.now(), f"Cannot requeue job {request.job_id}"
    try:
        job = await requeue(services.ingest, services.github, request.repo, request.job_id, now)
    except GitHubRateLimited as error:
        headers = {"Retry-After": str(math.ceil(error.retry_after_seconds))}
        raise HttpError(503, "github_rate_limited", f"{cannot}: {error}", headers=headers) from error
    except GitHubUnavailable as error:
        raise HttpError(502, "github_unavailable", f"{cannot}: {error}") from error
    except GitHubError as error:
        raise HttpError(502, "github_rejected", f"{cannot}: {error}") from error
    await context.operations.record("runners.requeue", f"{request.repo}/{job.job_id}")
    services.queries.refresh()
    return await visible_job(context, str(job.job_id))


@ROUTES.add("GET", "/v1/runners/pods", Permission.WATCH, query=RunnerPodQuery, response=RunnerPodPage, problems=(404,))
async def list_runner_pods(context: RequestContext) -> Response:
    """List runners by name, with their states."""
    query = context.query
    page = await services_of(context).queries.pods(
        org=query.org,
        state=query.state,
        viewer=viewer_of(context.principal),
        limit=query.page_size,
        cursor=decode_page_token(query.page_token, list_name(context)),
    )
    return page_response(context, RunnerPodPage, page.items, page.cursor)


@ROUTES.add("GET", "/v1/runners/orgs", Permission.WATCH, response=RunnerOrgList, problems=(404,))
async def list_runner_orgs(context: RequestContext) -> RunnerOrgList:
    """List organizations by name with their limits and jobs, and how many runners the limits allow in all."""
    return await services_of(context).queries.orgs(viewer_of(context.principal))


def services_of(context: RequestContext) -> RunnerServices:
    services = context.dependencies.runners
    if services is None:
        raise HttpError(404, "not_found", NOT_CONFIGURED)
    return services


def viewer_of(principal: Principal) -> Viewer:
    """The organizations in the scope of the principal; a token out of the queue `runners` sees none."""
    is_in_scope = (not principal.queues or QUEUE in principal.queues) and (
        not principal.kinds or KIND in principal.kinds
    )
    if is_in_scope and not principal.groups:
        return Viewer()
    return Viewer(frozenset(principal.groups) if is_in_scope else frozenset())


async def visible_job(context: RequestContext, job_id: str) -> RunnerJobDetails:
    services = services_of(context)
    is_id = job_id.isascii() and job_id.isdigit() and len(job_id) <= MAX_JOB_ID_DIGITS
    found = await services.queries.job(int(job_id), viewer_of(context.principal)) if is_id else None
    if found is None:
        raise job_not_found(job_id)
    return found
