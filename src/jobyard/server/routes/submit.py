"""Job submission: one job or a batch, at most once per Idempotency-Key."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.responses import Response

from jobyard.api.schemas.jobs import BatchItem, BatchRequest, BatchResponse, JobAccepted, JobRequest
from jobyard.api.schemas.problems import FieldError
from jobyard.domain.access import Permission, Principal
from jobyard.errors import BadInput, JobyardError
from jobyard.operations.submit import Prepared, Stored, prepare, require_same_batch, store_many, store_one
from jobyard.server.authorization import can_see, is_restricted, require_kind
from jobyard.server.dispatch import RawJsonResponse
from jobyard.server.idempotency import KEY, idempotency_key
from jobyard.server.parsing import with_pointers
from jobyard.server.problems import HttpError, status_of
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("jobs")
YIELD_EVERY_JOBS = 100  # jobs of a batch, after which other requests get their turn
REPLAYED = (b"idempotency-replayed", b"true")
encode = msgspec.json.Encoder().encode


@ROUTES.add(
    "POST",
    "/v1/jobs",
    Permission.SUBMIT,
    status=202,
    body=JobRequest,
    response=JobAccepted,
    headers=(KEY,),
    problems=(409,),
)
async def submit_job(context: RequestContext) -> Response:
    """Submit a job."""
    key = idempotency_key(context.request)
    try:
        require_kind(context, context.body.kind)
        prepared = prepare(context.dependencies.job_factory, context.principal, context.body, key)
    except BadInput as error:
        raise with_pointers(error) from None
    require_scope(context.principal, prepared)
    if await unknown_queues(context, {prepared.job.queue}):
        raise unknown_queue(prepared.job.queue)
    stored = await store_one(context.dependencies.store, prepared)
    await require_visible_holder(context, prepared, stored)
    job, found = prepared.job, stored.inserted
    if found.created:
        context.dependencies.enqueued(job)
    body = encode(JobAccepted(id=found.id, kind=job.kind, queue=job.queue, created=was_created(prepared, stored)))
    location = (b"location", f"/v1/jobs/{found.id}".encode())
    return RawJsonResponse(body, 202, location, REPLAYED) if stored.is_replay else RawJsonResponse(body, 202, location)


@ROUTES.add("POST", "/v1/jobs/batch", Permission.SUBMIT, body=BatchRequest, response=BatchResponse, headers=(KEY,))
async def submit_batch(context: RequestContext) -> Response:
    """Submit many jobs; each is accepted or rejected on its own."""
    key = idempotency_key(context.request)
    items: dict[int, BatchItem] = {}
    ready: dict[int, Prepared] = {}
    for number, request in enumerate(context.body.jobs):
        try:
            require_kind(context, request.kind)
            # A header cannot contain a line break, so no key of a single job collides.
            own_key = None if key is None else f"{key}\n{number}"
            prepared = prepare(context.dependencies.job_factory, context.principal, request, own_key)
            require_scope(context.principal, prepared)
            ready[number] = prepared
        except BadInput as error:
            items[number] = batch_item(with_pointers(error, f"/jobs/{number}"))
        except (JobyardError, HttpError) as error:
            items[number] = batch_item(error)
        if number % YIELD_EVERY_JOBS == YIELD_EVERY_JOBS - 1:
            await asyncio.sleep(0)
    unknown = await unknown_queues(context, {prepared.job.queue for prepared in ready.values()})
    for number in [number for number, prepared in ready.items() if prepared.job.queue in unknown]:
        items[number] = batch_item(unknown_queue(ready.pop(number).job.queue, f"/jobs/{number}"))
    if key is not None and ready:
        await require_same_batch(context.dependencies.store, context.principal, key, context.body)
    results = await store_many(context.dependencies.store, list(ready.values()))
    for (number, prepared), stored in zip(ready.items(), results, strict=True):
        if isinstance(stored, Stored) and stored.inserted.created:
            context.dependencies.enqueued(prepared.job)
        items[number] = await stored_item(context, number, prepared, stored)
    accepted = sum(item.id is not None for item in items.values())
    body = BatchResponse(
        accepted=accepted, refused=len(items) - accepted, items=tuple(items[number] for number in range(len(items)))
    )
    is_replay = bool(results) and all(isinstance(each, Stored) and each.is_replay for each in results)
    return RawJsonResponse(encode(body), 200, REPLAYED) if is_replay else RawJsonResponse(encode(body), 200)


async def stored_item(
    context: RequestContext, number: int, prepared: Prepared, result: Stored | JobyardError
) -> BatchItem:
    try:
        if isinstance(result, Stored):
            await require_visible_holder(context, prepared, result, f"/jobs/{number}")
    except HttpError as error:
        return batch_item(error)
    if isinstance(result, Stored):
        return BatchItem(status=202, id=result.inserted.id, created=was_created(prepared, result))
    return batch_item(result)


def was_created(prepared: Prepared, stored: Stored) -> bool:
    """Whether the job was made by this request or, if it is a repetition, by the first one."""
    return stored.inserted.created or (stored.is_replay and stored.inserted.id == prepared.job.id)


def batch_item(result: JobyardError | HttpError) -> BatchItem:
    if isinstance(result, HttpError):
        return BatchItem(status=result.status, code=result.code, detail=result.detail, errors=result.errors)
    return BatchItem(status=status_of(result), code=result.code, detail=str(result))


def require_scope(principal: Principal, prepared: Prepared) -> None:
    job = prepared.job
    if not principal.reaches(job.queue, job.group, job.kind):
        where = f"queue {job.queue}" + (f", group {job.group}" if job.group else " without a group")
        raise HttpError(403, "out_of_scope", f"The token cannot submit jobs to {where}.")


async def unknown_queues(context: RequestContext, queues: set[str]) -> set[str]:
    """Those of the queues that the jobs would create, if the principal may not: submitters could make any number."""
    principal = context.principal
    if principal.may(Permission.OPERATE) or context.dependencies.settings.submitters_create_queues:
        return set()
    return (await context.dependencies.known_queues.missing(queues)).difference(principal.queues)


def unknown_queue(name: str, base: str = "") -> HttpError:
    remedy = "Ask an operator to create it, or set server.submitters_create_queues."
    detail = f'Cannot submit to queue "{name}": it does not exist. {remedy}'
    return HttpError(403, "not_allowed", detail, errors=(FieldError(f"{base}/queue", detail),))


async def require_visible_holder(context: RequestContext, prepared: Prepared, stored: Stored, base: str = "") -> None:
    """Reject a job whose unique key is held by a job that the principal may not see: its id must not leak."""
    is_own = stored.inserted.created or stored.inserted.id == prepared.job.id or prepared.holds_key
    if is_own or not is_restricted(context.principal):
        return
    holder = await context.dependencies.store.get(stored.inserted.id)
    if holder is None or not can_see(context.principal, holder):
        held = "The unique key is held by a job that the token cannot see; nothing was stored."
        raise HttpError(409, "unique_key_held", held, errors=(FieldError(f"{base}/unique/key", held),))
