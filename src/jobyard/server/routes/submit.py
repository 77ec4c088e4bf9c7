"""Jobs on their way in: one by one or many at once, each once per Idempotency-Key."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from jobyard.api.schemas.jobs import BatchItem, BatchRequest, BatchResponse, JobAccepted, JobRequest
from jobyard.api.schemas.problems import FieldError
from jobyard.domain.access import Permission, Principal
from jobyard.errors import BadInput, JobyardError
from jobyard.operations.batches import require_same_batch
from jobyard.operations.submit import MAX_KEY, Prepared, Stored, prepare, store_many, store_one
from jobyard.server.authorization import can_see, is_restricted
from jobyard.server.dispatch import RawJsonResponse
from jobyard.server.pointing import pointed
from jobyard.server.problems import HttpError, status_of
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("jobs")
KEY = (
    "Idempotency-Key",
    "Names this request, for a day: repeated with the same key it makes no second job, and answers the first one.",
)
REPLAYED = (b"idempotency-replayed", b"true")
_encode = msgspec.json.Encoder().encode


@ROUTES.add(
    "POST",
    "/v1/jobs",
    Permission.SUBMIT,
    "Hand in a job",
    status=202,
    body=JobRequest,
    answer=JobAccepted,
    headers=(KEY,),
    refusals=(409,),
)
async def submit_job(context: RequestContext) -> Response:
    key = idempotency_key(context)
    try:
        prepared = prepare(context.dependencies.submit, context.principal, context.body, key)
    except BadInput as error:
        raise pointed(error) from None
    require_scope(context.principal, prepared)
    stored = await store_one(context.dependencies.store, prepared)
    await require_sight(context, prepared, stored)
    job, found = prepared.job, stored.inserted
    if found.created:
        context.dependencies.enqueued(job)
    body = _encode(JobAccepted(id=found.id, kind=job.kind, queue=job.queue, created=found.created))
    where = (b"location", f"/v1/jobs/{found.id}".encode())
    return RawJsonResponse(body, 202, where, REPLAYED) if stored.is_replay else RawJsonResponse(body, 202, where)


@ROUTES.add(
    "POST",
    "/v1/jobs/batch",
    Permission.SUBMIT,
    "Hand in many jobs; each is taken or refused by itself",
    body=BatchRequest,
    answer=BatchResponse,
    headers=(KEY,),
)
async def submit_batch(context: RequestContext) -> Response:
    key = idempotency_key(context)
    items: dict[int, BatchItem] = {}
    ready: dict[int, Prepared] = {}
    for number, request in enumerate(context.body.jobs):
        try:
            own_key = None if key is None else f"{key}\n{number}"  # no key of a single job can be the same
            prepared = prepare(context.dependencies.submit, context.principal, request, own_key)
            require_scope(context.principal, prepared)
            ready[number] = prepared
        except BadInput as error:
            items[number] = batch_item(pointed(error, f"/jobs/{number}"))
        except (JobyardError, HttpError) as error:
            items[number] = batch_item(error)
    if key is not None and ready:
        await require_same_batch(context.dependencies.store, context.principal, key, context.body)
    answers = await store_many(context.dependencies.store, list(ready.values()))
    for (number, prepared), stored in zip(ready.items(), answers, strict=True):
        if isinstance(stored, Stored) and stored.inserted.created:
            context.dependencies.enqueued(prepared.job)
        items[number] = await shown_item(context, number, prepared, stored)
    accepted = sum(item.id is not None for item in items.values())
    body = BatchResponse(
        accepted=accepted,
        refused=len(items) - accepted,
        items=tuple(items[number] for number in range(len(items))),
    )
    is_replay = bool(answers) and all(isinstance(each, Stored) and each.is_replay for each in answers)
    return RawJsonResponse(_encode(body), 200, REPLAYED) if is_replay else RawJsonResponse(_encode(body), 200)


async def shown_item(
    context: RequestContext, number: int, prepared: Prepared, answer: Stored | JobyardError
) -> BatchItem:
    try:
        if isinstance(answer, Stored):
            await require_sight(context, prepared, answer, f"/jobs/{number}")
    except HttpError as error:
        return batch_item(error)
    return batch_item(answer)


def batch_item(answer: Stored | JobyardError | HttpError) -> BatchItem:
    if isinstance(answer, HttpError):
        errors = tuple(FieldError(each.pointer, each.detail) for each in answer.errors)
        return BatchItem(status=answer.status, code=answer.code, detail=answer.detail, errors=errors)
    if isinstance(answer, JobyardError):
        return BatchItem(status=status_of(answer), code=answer.code, detail=str(answer))
    return BatchItem(status=202, id=answer.inserted.id, created=answer.inserted.created)


def require_scope(principal: Principal, prepared: Prepared) -> None:
    job = prepared.job
    if not principal.reaches(job.queue, job.group):
        where = f"queue {job.queue}" + (f", group {job.group}" if job.group else " without a group")
        raise HttpError(403, "out_of_scope", f"This token may not hand in jobs for {where}.")


async def require_sight(context: RequestContext, prepared: Prepared, stored: Stored, base: str = "") -> None:
    """A unique key is one for all in its queue; that it is held may be told to anybody, by which job may not."""
    is_own = stored.inserted.created or stored.inserted.id == prepared.job.id or prepared.holds_key
    if is_own or not is_restricted(context.principal):
        return
    holder = await context.dependencies.store.get(stored.inserted.id)
    if holder is None or not can_see(context.principal, holder):
        held = "The unique key is held by a job that this token does not see; nothing was stored."
        raise HttpError(409, "unique_key_held", held, errors=(FieldError(f"{base}/unique/key", held),))


def idempotency_key(context: RequestContext) -> str | None:
    """As plain text, or in quotes as the draft standard has it."""
    given = context.request.headers.get("idempotency-key")
    if given is None:
        return None
    key = given.strip()
    if len(key) >= 2 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not 0 < len(key) <= MAX_KEY or not key.isascii() or not key.isprintable():
        wrong = f"An Idempotency-Key is 1 to {MAX_KEY} printable ASCII characters."
        raise HttpError(422, "bad_input", wrong, errors=(FieldError("Idempotency-Key", wrong),))
    return key
