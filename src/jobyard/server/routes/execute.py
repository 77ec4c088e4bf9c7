"""Programs: submit, wait for and read runs of source code, with one input or a batch of inputs."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from jobyard.api.schemas import execute as schemas
from jobyard.api.schemas.jobs import JobRequest
from jobyard.api.schemas.problems import FieldError
from jobyard.domain.access import OWNER, Permission, Principal
from jobyard.domain.job import Job, State
from jobyard.errors import JobNotFound, did_you_mean
from jobyard.executors.sandbox.bounds import BoundsViolation, violations
from jobyard.executors.sandbox.program import KIND, QUEUE, Program
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.sandboxes import best_languages, why_unavailable
from jobyard.operations.submit import prepare, store_one
from jobyard.sandbox.protocol import File, Limits, Tier
from jobyard.server.authorization import visible_job
from jobyard.server.dispatch import RawJsonResponse
from jobyard.server.idempotency import KEY, idempotency_key
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes
from jobyard.server.routes.jobs import WaitQuery, wait_for_end
from jobyard.server.routes.submit import REPLAYED, require_scope

ROUTES = Routes("programs")
# The group of requests without a token, on a server with open access.
ANONYMOUS = "anonymous"
RETRY_AFTER = (b"retry-after", b"1")
ENDED = ((200, "The program ended within the wait time."),)
MAX_ATTEMPTS = 3
NO_FOLDER = "The sandbox runs in tier C, which has no working folder for files."
# Each part of a program has its own limit, and max_body_bytes limits the whole.
_make = JobFactory(max_payload_bytes=1 << 30)
_encode = msgspec.json.Encoder().encode


class _RawExecution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An ExecutionView whose result is encoded JSON."""

    job_id: str
    status: str
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    reason: str | msgspec.UnsetType = msgspec.UNSET


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
    if body.input and body.input_base64 is not None:
        raise invalid_body([FieldError("/input_base64", "Give input or input_base64, not both.")])
    stdin = body.input.encode() if body.input_base64 is None else body.input_base64
    return await submit(context, program_of(body, (stdin,)))


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
    return await submit(context, program_of(body, tuple(text.encode() for text in body.inputs), is_batch=True))


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
        schemas.LanguageView(name=name, version=language.version, compiled=language.compiled, tier=tier)
        for name, (language, tier) in best_languages(known).items()
    )
    return schemas.LanguageList(items=items) if items else schemas.LanguageList(items=(), reason=why_unavailable(known))


# Requests


def program_of(body: schemas.ProgramRequest, inputs: tuple[bytes, ...], *, is_batch: bool = False) -> Program:
    both = [number for number, file in enumerate(body.files) if file.content and file.content_base64 is not None]
    if both:
        at = f"/files/{both[0]}/content_base64"
        raise invalid_body([FieldError(at, "Give content or content_base64, not both.")])
    return Program(
        language=body.language,
        source=body.source_code,
        inputs=inputs,
        is_batch=is_batch,
        args=body.args,
        files=tuple(file_of(file) for file in body.files),
        collect=body.collect,
        limits=Limits(**{name: getattr(body.limits, name) for name in Limits.__struct_fields__}),
    )


def file_of(file: schemas.FileRequest) -> File:
    return File(name=file.name, data=file.content.encode() if file.content_base64 is None else file.content_base64)


async def submit(context: RequestContext, program: Program) -> Response:
    invalid = [field_error(each, program) for each in violations(program, context.dependencies.bounds)]
    if invalid:
        raise invalid_body(invalid)
    await require_language(context, program)
    request = JobRequest(
        kind=KIND,
        queue=QUEUE,
        group=group_of(context.principal),
        payload={"language": program.language},
        private_payload=program,
        max_attempts=MAX_ATTEMPTS,
        timeout_seconds=program.timeout_seconds,
    )
    prepared = prepare(_make, context.principal, request, idempotency_key(context.request))
    require_scope(context.principal, prepared)
    stored = await store_one(context.dependencies.store, prepared)
    job_id = stored.inserted.id
    if stored.inserted.created:
        context.dependencies.enqueued(prepared.job)
    job = await wait_for_end(context, job_id) if context.query.wait else None
    if job is None and (context.query.wait or stored.is_replay):
        job = await context.dependencies.store.get(job_id)
    location = (b"location", f"/jobs/{job_id}".encode())
    headers = (location, REPLAYED) if stored.is_replay else (location,)
    if job is None:
        return RawJsonResponse(_encode(_RawExecution(job_id=job_id, status=State.PENDING)), 202, *headers)
    return execution_response(job, 200 if job.state.is_final else 202, *headers)


def group_of(principal: Principal) -> str:
    """Each client is a group of the queue, so that clients share it fairly and can have their own limits."""
    if principal.groups:
        return principal.groups[0]
    return ANONYMOUS if principal.id == OWNER.id else principal.id


async def require_language(context: RequestContext, program: Program) -> None:
    """Reject a program that no sandbox of the live workers can run. While there is none at all, programs wait."""
    tier = await context.dependencies.sandboxes.tier_of(program.language)
    if tier is Tier.C and (program.files or program.collect):
        raise invalid_body([FieldError("/files" if program.files else "/collect", NO_FOLDER)])
    if tier is not None:
        return
    known = await context.dependencies.sandboxes.known()
    names = best_languages(known)
    if not names:
        if context.dependencies.rejects_without_sandbox:
            raise HttpError(503, "sandbox_unavailable", why_unavailable(known), headers={"Retry-After": "5"})
        return
    hint = did_you_mean(program.language, names)
    why = f"No live worker runs {program.language}. Available: {', '.join(names)}.{hint}"
    raise invalid_body([FieldError("/language", why)])


def invalid_body(errors: list[FieldError]) -> HttpError:
    return HttpError(422, "bad_input", f"Invalid body: {errors[0].detail}", errors=tuple(errors))


def field_error(violation: BoundsViolation, program: Program) -> FieldError:
    """The violation with the field names of the request."""
    first, *rest = map(str, violation.where)
    if first == "inputs" and not program.is_batch:
        return FieldError("/input", violation.why)
    return FieldError("/".join(("", "source_code" if first == "source" else first, *rest)), violation.why)


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


def raw_execution(job: Job) -> _RawExecution:
    match job.state:
        case State.PENDING | State.RUNNING:
            return _RawExecution(job_id=job.id, status=job.state)
        case State.COMPLETED:
            return _RawExecution(job_id=job.id, status=job.state, result=job.result or msgspec.Raw(b"{}"))
        case State.FAILED:
            return _RawExecution(job_id=job.id, status=job.state, reason=job.reason or "failed")
    reason = f"{job.state}: {job.reason}" if job.reason else str(job.state)
    return _RawExecution(job_id=job.id, status=State.FAILED, reason=reason)
