"""Programs to be run: handed in, waited for, looked at; one source with one input or with many."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from starlette.responses import Response

from jobyard.api.schemas.execute import (
    ExecuteBatchRequest,
    ExecuteRequest,
    ExecutionView,
    FileRequest,
    LanguageList,
    LanguageView,
    LimitsRequest,
    ProgramRequest,
)
from jobyard.api.schemas.jobs import JobRequest
from jobyard.api.schemas.problems import FieldError
from jobyard.domain.access import OWNER, Permission, Principal
from jobyard.domain.job import Job, State
from jobyard.errors import did_you_mean
from jobyard.executors.sandbox.bounds import BoundsViolation, violations
from jobyard.executors.sandbox.program import KIND, QUEUE, Program
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.sandboxes import best_languages, why_unavailable
from jobyard.operations.submit import prepare, store_one
from jobyard.sandbox.protocol import File, Limits, Tier
from jobyard.server.authorization import job_not_found, visible_job
from jobyard.server.dispatch import RawJsonResponse
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes
from jobyard.server.routes.jobs import WaitQuery, require_valid_token, wait_for_job_end
from jobyard.server.routes.submit import KEY, REPLAYED, idempotency_key, require_scope

ROUTES = Routes("programs")
# Whoever comes in without a token, where that is allowed.
ANONYMOUS = "anonymous"
AGAIN = (b"retry-after", b"1")
ENDED = ((200, "It ended within the time: this is how."),)
MAX_ATTEMPTS = 3
NO_FOLDER = "Programs have no folder here: they are held by tier C."
# What may be handed in is bounded part by part, and by the size of a request.
_make = JobFactory(max_payload_bytes=1 << 30)
_encode = msgspec.json.Encoder().encode


class _Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An ExecutionView whose result is JSON already."""

    job_id: str
    status: str
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    reason: str | msgspec.UnsetType = msgspec.UNSET


@ROUTES.add(
    "POST",
    "/execute",
    Permission.SUBMIT,
    "Run a program; with wait (seconds) the answer comes when it has ended, or after the time",
    status=202,
    query=WaitQuery,
    body=ExecuteRequest,
    answer=ExecutionView,
    headers=(KEY,),
    also=ENDED,
    refusals=(409,),
    names_fields=True,
)
async def execute(context: RequestContext) -> Response:
    body: ExecuteRequest = context.body
    if body.input and body.input_base64 is not None:
        raise wrong([FieldError("/input_base64", "Give input or input_base64, not both.")])
    stdin = body.input.encode() if body.input_base64 is None else body.input_base64
    return await hand_in(context, order_of(body, (stdin,)))


@ROUTES.add(
    "POST",
    "/execute/batch",
    Permission.SUBMIT,
    "Run a program with each of many inputs, compiled once; the results come in their order",
    status=202,
    query=WaitQuery,
    body=ExecuteBatchRequest,
    answer=ExecutionView,
    headers=(KEY,),
    also=ENDED,
    refusals=(409,),
    names_fields=True,
)
async def execute_batch(context: RequestContext) -> Response:
    body: ExecuteBatchRequest = context.body
    return await hand_in(context, order_of(body, tuple(text.encode() for text in body.inputs), is_batch=True))


@ROUTES.add(
    "GET",
    "/jobs/{job_id}",
    Permission.READ,
    "How a program went; with wait (seconds) the answer comes when it has ended, or after the time",
    query=WaitQuery,
    answer=ExecutionView,
    refusals=(422,),
)
async def get_execution(context: RequestContext) -> Response:
    job = await visible_program(context)
    if context.query.wait and not job.state.is_final:
        job = await ended(context, job.id) or await visible_program(context)
    return answered(job, 200)


@ROUTES.add("GET", "/languages", Permission.READ, "Languages that programs can be run in now", answer=LanguageList)
async def list_languages(context: RequestContext) -> LanguageList:
    known = await context.dependencies.sandboxes.known(fresh=True)
    items = tuple(
        LanguageView(name=name, version=language.version, compiled=language.compiled, tier=tier)
        for name, (language, tier) in best_languages(known).items()
    )
    return LanguageList(items=items) if items else LanguageList(items=(), reason=why_unavailable(known))


# On the way in


def order_of(body: ProgramRequest, inputs: tuple[bytes, ...], *, is_batch: bool = False) -> Program:
    both = [number for number, file in enumerate(body.files) if file.content and file.content_base64 is not None]
    if both:
        raise wrong([FieldError(f"/files/{both[0]}/content_base64", "Give content or content_base64, not both.")])
    return Program(
        language=body.language,
        source=body.source_code,
        inputs=inputs,
        is_batch=is_batch,
        args=body.args,
        files=tuple(file_of(file) for file in body.files),
        collect=body.collect,
        limits=limits_of(body.limits),
    )


def file_of(file: FileRequest) -> File:
    return File(name=file.name, data=file.content.encode() if file.content_base64 is None else file.content_base64)


def limits_of(asked: LimitsRequest) -> Limits:
    return Limits(**{name: getattr(asked, name) for name in Limits.__struct_fields__})


async def hand_in(context: RequestContext, order: Program) -> Response:
    bad = [field_error(each, order) for each in violations(order, context.dependencies.bounds)]
    if bad:
        raise wrong(bad)
    await require_language(context, order)
    request = JobRequest(
        kind=KIND,
        queue=QUEUE,
        group=group_of(context.principal),
        payload={"language": order.language},
        private_payload=order,
        max_attempts=MAX_ATTEMPTS,
        timeout_seconds=order.timeout_seconds,
    )
    prepared = prepare(_make, context.principal, request, idempotency_key(context))
    require_scope(context.principal, prepared)
    stored = await store_one(context.dependencies.store, prepared)
    job_id = stored.inserted.id
    if stored.inserted.created:
        context.dependencies.enqueued(prepared.job)
    job = await ended(context, job_id) if context.query.wait else None
    if job is None and (context.query.wait or stored.is_replay):
        job = await context.dependencies.store.get(job_id)
    where = (b"location", f"/jobs/{job_id}".encode())
    headers = (where, REPLAYED) if stored.is_replay else (where,)
    if job is None:
        return RawJsonResponse(_encode(_Answer(job_id=job_id, status=State.PENDING)), 202, *headers)
    return answered(job, 200 if job.state.is_final else 202, *headers)


async def ended(context: RequestContext, job_id: str) -> Job | None:
    context.dependencies.open.enter(context.principal.id)
    try:
        job = await wait_for_job_end(context, job_id)
    finally:
        context.dependencies.open.leave(context.principal.id)
    await require_valid_token(context)
    return job


def group_of(principal: Principal) -> str:
    """Each client is a group of the queue: they take turns, and may have limits of their own."""
    if principal.groups:
        return principal.groups[0]
    return ANONYMOUS if principal.id == OWNER.id else principal.id


async def require_language(context: RequestContext, order: Program) -> None:
    """That some live worker can run it, with what comes with it."""
    tier = await context.dependencies.sandboxes.tier_of(order.language)
    if tier is Tier.C and (order.files or order.collect):
        raise wrong([FieldError("/files" if order.files else "/collect", NO_FOLDER)])
    if tier is not None:
        return
    known = await context.dependencies.sandboxes.known()
    names = best_languages(known)
    if not names:
        raise HttpError(503, "sandbox_unavailable", why_unavailable(known), headers={"Retry-After": "5"})
    why = f"No live worker runs {order.language}; there are {', '.join(names)}.{did_you_mean(order.language, names)}"
    raise wrong([FieldError("/language", why)])


def wrong(errors: list[FieldError]) -> HttpError:
    return HttpError(422, "bad_input", f"The body does not fit: {errors[0].detail}", errors=tuple(errors))


def field_error(wrong: BoundsViolation, order: Program) -> FieldError:
    """In the words of the request."""
    return FieldError("/" + "/".join(fields(wrong, order)), wrong.why)


def fields(wrong: BoundsViolation, order: Program) -> Iterator[str]:
    first, *rest = wrong.where
    if first == "source":
        yield "source_code"
    elif first == "inputs" and not order.is_batch:
        yield "input"
        return
    else:
        yield str(first)
    yield from map(str, rest)


# On the way out


async def visible_program(context: RequestContext) -> Job:
    context.path["id"] = context.path["job_id"]
    job = await visible_job(context)
    if job.kind != KIND:
        raise job_not_found(job.id)
    return job


def answered(job: Job, status: int, *headers: tuple[bytes, bytes]) -> Response:
    body = _encode(answer_of(job))
    return (
        RawJsonResponse(body, status, *headers)
        if job.state.is_final
        else RawJsonResponse(body, status, *headers, AGAIN)
    )


def answer_of(job: Job) -> _Answer:
    match job.state:
        case State.PENDING | State.RUNNING:
            return _Answer(job_id=job.id, status=job.state)
        case State.COMPLETED:
            return _Answer(job_id=job.id, status=job.state, result=job.result or msgspec.Raw(b"{}"))
        case State.FAILED:
            return _Answer(job_id=job.id, status=job.state, reason=job.reason or "it failed")
    words = f"{job.state}: {job.reason}" if job.reason else str(job.state)
    return _Answer(job_id=job.id, status=State.FAILED, reason=words)
