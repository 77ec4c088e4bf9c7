"""Programs: submit, wait for and read runs of source code, with one input or a batch of inputs."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.responses import Response

from jobyard.api.schemas import execute as schemas
from jobyard.api.schemas.jobs import JobRequest
from jobyard.api.schemas.problems import FieldError
from jobyard.domain.access import OWNER, Permission, Principal
from jobyard.domain.job import Job, State
from jobyard.errors import JobNotFound
from jobyard.executors.sandbox.program import KIND, QUEUE, Program
from jobyard.operations.executions import RawExecution, raw_execution
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.sandboxes import best_languages, why_unavailable
from jobyard.operations.submit import Stored, prepare, store_one
from jobyard.operations.webhooks.executor import webhook_job
from jobyard.server.authorization import visible_job
from jobyard.server.dispatch import RawJsonResponse
from jobyard.server.idempotency import KEY, idempotency_key
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes
from jobyard.server.routes.jobs import WaitQuery, wait_for_end
from jobyard.server.routes.program_requests import invalid_body, program_of, require_valid, single_program
from jobyard.server.routes.submit import REPLAYED, require_scope

ROUTES = Routes("programs")
# The group of requests without a token, on a server with open access.
ANONYMOUS = "anonymous"
RETRY_AFTER = (b"retry-after", b"1")
ENDED = ((200, "The program ended within the wait time."),)
MAX_ATTEMPTS = 3
# Each part of a program has its own limit, and max_body_bytes limits the whole.
_make = JobFactory(max_payload_bytes=1 << 30)
_encode = msgspec.json.Encoder().encode


@ROUTES.add(
    "POST",
    "/execute",
    Permission.SUBMIT,
    status=202,
    query=WaitQuery,
    body=schemas.ExecuteRequest,
    response=schemas.ExecutionView,
    headers=(KEY,),
    other_statuses=ENDED,
    problems=(409,),
    locates_bad_json=True,
)
async def execute(context: RequestContext) -> Response:
    """Run a program; with wait (seconds) the response comes when it has ended or the time is over."""
    body: schemas.ExecuteRequest = context.body
    return await submit(context, single_program(body), body.webhook)


@ROUTES.add(
    "POST",
    "/execute/batch",
    Permission.SUBMIT,
    status=202,
    query=WaitQuery,
    body=schemas.ExecuteBatchRequest,
    response=schemas.ExecutionView,
    headers=(KEY,),
    other_statuses=ENDED,
    problems=(409,),
    locates_bad_json=True,
)
async def execute_batch(context: RequestContext) -> Response:
    """Run a program once per input, compiled once; the results are in the order of the inputs."""
    body: schemas.ExecuteBatchRequest = context.body
    program = program_of(body, tuple(text.encode() for text in body.inputs), is_batch=True)
    return await submit(context, program, body.webhook)


@ROUTES.add(
    "POST",
    "/execute/many",
    Permission.SUBMIT,
    status=202,
    query=WaitQuery,
    body=schemas.ExecuteManyRequest,
    response=schemas.ExecutionList,
    headers=(KEY,),
    other_statuses=((200, "All programs ended within the wait time."),),
    problems=(409,),
    locates_bad_json=True,
)
async def execute_many(context: RequestContext) -> Response:
    """Run different programs, each as a job of its own. One invalid program rejects the request."""
    body: schemas.ExecuteManyRequest = context.body
    most = context.dependencies.bounds.max_batch
    if len(body.programs) > most:
        raise invalid_body([FieldError("/programs", f"Must have at most {most} items.")])
    programs = [await valid_item(context, number, each) for number, each in enumerate(body.programs)]
    key = idempotency_key(context.request)
    stored = [
        await store_program(context, program, each.webhook, None if key is None else f"{key}#{number}")
        for number, (program, each) in enumerate(zip(programs, body.programs, strict=True))
    ]
    jobs = await asyncio.gather(*(present_job(context, each) for each in stored))
    items = [
        RawExecution(job_id=each.inserted.id, status=State.PENDING) if job is None else raw_execution(job)
        for each, job in zip(stored, jobs, strict=True)
    ]
    are_final = all(job is not None and job.state.is_final for job in jobs)
    replayed = (REPLAYED,) if all(each.is_replay for each in stored) else ()
    return RawJsonResponse(_encode({"items": items}), 200 if are_final else 202, *replayed)


async def valid_item(context: RequestContext, number: int, body: schemas.ExecuteRequest) -> Program:
    """The program; an error names its place in the request."""
    try:
        program = single_program(body)
        await require_valid(context.dependencies, program, body.webhook)
    except HttpError as error:
        at = tuple(FieldError(f"/programs/{number}{each.pointer}", each.detail) for each in error.errors)
        raise HttpError(error.status, error.code, error.detail, errors=at, headers=error.headers) from None
    return program


@ROUTES.add("GET", "/jobs/{job_id}", Permission.READ, query=WaitQuery, response=schemas.ExecutionView, problems=(422,))
async def get_execution(context: RequestContext) -> Response:
    """Get a run of a program; with wait (seconds) the response comes when it has ended or the time is over."""
    job = await visible_program(context)
    if context.query.wait and not job.state.is_final:
        job = await wait_for_end(context, job.id) or await visible_program(context)
    return execution_response(job, 200)


@ROUTES.add("GET", "/languages", Permission.READ, response=schemas.LanguageList)
async def list_languages(context: RequestContext) -> schemas.LanguageList:
    """List the languages that live workers can run."""
    known = await context.dependencies.sandboxes.known(fresh=True)
    items = tuple(
        schemas.LanguageView(
            name=name,
            version=language.version,
            compiled=language.compiled,
            tier=tier,
            extensions=language.extensions,
            compile_options=language.compile_options,
            max_compile_seconds=language.max_compile_seconds,
            max_compile_memory_mb=language.max_compile_memory_mb,
            example=language.example,
        )
        for name, (language, tier) in best_languages(known).items()
    )
    return schemas.LanguageList(items=items) if items else schemas.LanguageList(items=(), reason=why_unavailable(known))


# Requests


async def submit(context: RequestContext, program: Program, webhook: schemas.WebhookRequest | None) -> Response:
    await require_valid(context.dependencies, program, webhook)
    stored = await store_program(context, program, webhook, idempotency_key(context.request))
    job, job_id = await present_job(context, stored), stored.inserted.id
    location = (b"location", f"/jobs/{job_id}".encode())
    headers = (location, REPLAYED) if stored.is_replay else (location,)
    if job is None:
        return RawJsonResponse(_encode(RawExecution(job_id=job_id, status=State.PENDING)), 202, *headers)
    return execution_response(job, 200 if job.state.is_final else 202, *headers)


async def store_program(
    context: RequestContext, program: Program, webhook: schemas.WebhookRequest | None, key: str | None
) -> Stored:
    payload: dict[str, Any] = {"language": program.language}
    if program.interactive:
        payload["interactive"] = True
    request = JobRequest(
        kind=KIND,
        queue=QUEUE,
        group=group_of(context.principal),
        payload=payload,
        private_payload=program,
        max_attempts=MAX_ATTEMPTS,
        timeout_seconds=program.timeout_seconds,
    )
    prepared = prepare(_make, context.principal, request, key)
    require_scope(context.principal, prepared)
    dependencies = context.dependencies
    if webhook is not None and (key is None or await dependencies.store.get(prepared.job.id) is None):
        # Before the program, which may end at once: a webhook waits for a program that is not there yet.
        secret = webhook.secret or dependencies.webhook_secret or ""
        await dependencies.store.insert([webhook_job(prepared.job.id, prepared.job.group, webhook.url, secret)])
    stored = await store_one(dependencies.store, prepared)
    if stored.inserted.created:
        dependencies.enqueued(prepared.job)
    return stored


async def present_job(context: RequestContext, stored: Stored) -> Job | None:
    """The job after the wait time, or as it is when the request is a repetition; None if it has just been stored."""
    job_id = stored.inserted.id
    job = await wait_for_end(context, job_id) if context.query.wait else None
    if job is None and (context.query.wait or stored.is_replay):
        job = await context.dependencies.store.get(job_id)
    return job


def group_of(principal: Principal) -> str:
    """Each client is a group of the queue, so that clients share it fairly and can have their own limits."""
    if principal.groups:
        return principal.groups[0]
    return ANONYMOUS if principal.id == OWNER.id else principal.id


# Responses


async def visible_program(context: RequestContext) -> Job:
    context.path["id"] = context.path["job_id"]
    job = await visible_job(context)
    if job.kind != KIND:
        raise JobNotFound.of(job.id)
    return job


def execution_response(job: Job, status: int, *headers: tuple[bytes, bytes]) -> Response:
    more = () if job.state.is_final else (RETRY_AFTER,)
    return RawJsonResponse(_encode(raw_execution(job)), status, *headers, *more)
