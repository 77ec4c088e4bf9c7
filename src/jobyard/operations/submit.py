"""Submit jobs over HTTP: from a request to a stored job, once per Idempotency-Key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from jobyard.api.convert import IDEMPOTENCY, owner_tag
from jobyard.api.schemas.jobs import BatchRequest, DelaysBackoff, ExponentialBackoff, FixedBackoff, JobRequest
from jobyard.api.schemas.workflows import WorkflowRequest
from jobyard.domain.access import OWNER, Principal
from jobyard.domain.job import NewJob, Unique, UniqueScope
from jobyard.domain.job_options import JOB_OPTIONS
from jobyard.domain.retry import Backoff, Delays, Exponential, Fixed
from jobyard.domain.tags import is_reserved
from jobyard.errors import BadInput, BadOption, IdempotencyKeyReused, JobyardError, NotPossible
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.workflow_catalog import WorkflowCatalog
from jobyard.ports.job_store import Inserted
from jobyard.ports.store import Store

# How long an Idempotency-Key is kept.
KEY_SECONDS = 86_400.0
COLLECTION, BATCHES = "jobyard.keys", "jobyard.batches"
MAX_KEY = 255
_BACKOFFS: dict[type[msgspec.Struct], Callable[..., Backoff]] = {
    FixedBackoff: Fixed,
    ExponentialBackoff: Exponential,
    DelaysBackoff: Delays,
}


class Prepared(NamedTuple):
    """A submission that is ready to be stored."""

    job: NewJob
    is_guarded: bool  # its id is derived from an Idempotency-Key
    holds_key: bool  # its unique key is derived from it too
    owner: str = ""  # digest of token and key, if the unique key alone does not tell other requests
    said: str = ""  # digest of the request


class Stored(NamedTuple):
    inserted: Inserted
    is_replay: bool  # an earlier request with the same key made this job


def prepare(factory: JobFactory, principal: Principal, request: JobRequest, key: str | None = None) -> Prepared:
    words = given_options(request)
    if key is None:
        return Prepared(_marked(factory.new_job(request.kind, request.payload, words), principal), False, False)
    owner = digest(principal.id.encode(), key.encode())
    holds_key = "unique" not in words
    if holds_key:
        words["unique"] = Unique(IDEMPOTENCY + owner.hex(), UniqueScope.PERIOD, KEY_SECONDS)
    body = msgspec.json.encode(request, order="deterministic")
    job = factory.new_job(request.kind, request.payload, words, _uuid(digest(owner, body)))
    said = ("", "") if holds_key else (owner.hex(), digest(body).hex())
    return Prepared(_marked(job, principal), True, holds_key, *said)


def prepare_run(
    catalog: WorkflowCatalog, principal: Principal, request: WorkflowRequest, key: str | None = None
) -> Prepared:
    """A run of a workflow file. Raises UnknownWorkflow, or BadInput."""
    made = catalog.new_job(request.workflow_id, request.params, request.platform, request.priority)
    job = _marked(made, principal)
    if key is None:
        return Prepared(job, False, False)
    owner = digest(b"workflows", principal.id.encode(), key.encode())
    unique = Unique(IDEMPOTENCY + owner.hex(), UniqueScope.PERIOD, KEY_SECONDS)
    body = msgspec.json.encode(request, order="deterministic")
    job = msgspec.structs.replace(job, id=_uuid(digest(owner, body)), unique=unique)
    # The unique key holds within one queue, and another request may lead to another one.
    return Prepared(job, True, True, owner.hex(), digest(body).hex())


def _marked(job: NewJob, principal: Principal) -> NewJob:
    """Tag the job with the token that submitted it, which replaces an entry in the audit log."""
    if principal.id == OWNER.id:
        return job
    return msgspec.structs.replace(job, tags=(*job.tags, owner_tag(principal)))


def given_options(request: JobRequest) -> dict[str, Any]:
    """The options that a request sets, named as in Python. Raises BadOption for names that the server reserves."""
    given = {
        option.name: value
        for option in JOB_OPTIONS.values()
        if option.in_json and (value := getattr(request, option.field)) is not None
    }
    if request.backoff is not None:
        given["backoff"] = _BACKOFFS[type(request.backoff)](**msgspec.structs.asdict(request.backoff))
    if request.unique is not None:
        if request.unique.key.startswith(IDEMPOTENCY):
            raise BadOption(f"Unique keys that begin with {IDEMPOTENCY} are reserved.", option="unique/key")
        given["unique"] = Unique(request.unique.key, request.unique.scope, request.unique.period_seconds)
    for number, tag in enumerate(request.tags or ()):
        if is_reserved(tag):
            message = f"Cannot set tag {tag}: tags that begin with by: or trace: are reserved."
            raise BadOption(message, option=f"tags/{number}")
    return given


async def store_one(store: Store, prepared: Prepared) -> Stored:
    """Insert one job; the insert itself enforces the key, so that repeated requests make one job."""
    job = prepared.job
    if prepared.owner:
        holder = await remembered(store, prepared)
        if holder is not None:
            return Stored(Inserted(holder, False, 0), True)
    try:
        [inserted] = await store.insert([job])
    except BadInput:
        # The id exists, or the queue is full: if the job is stored, this request is a repetition.
        if prepared.is_guarded and await store.get(job.id) is not None:
            return Stored(Inserted(job.id, False, 0), True)
        raise
    if inserted.created or not prepared.is_guarded:
        return Stored(inserted, False)
    if inserted.id == job.id:
        return Stored(inserted, True)
    if prepared.holds_key:
        raise IdempotencyKeyReused(
            f"This Idempotency-Key was used with a different request, which made job {inserted.id}. "
            "Use a new key for a new request."
        )
    # The response named another job, which may be gone when the request is repeated: keep its id.
    kept = msgspec.json.encode(_StoredAnswer(prepared.said, inserted.id))
    await store.put(COLLECTION, prepared.owner, kept, expire_seconds=KEY_SECONDS)
    return Stored(inserted, False)


class _StoredAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    said: str
    holder: str | None = None  # the job that held the unique key


async def remembered(store: Store, prepared: Prepared) -> str | None:
    """The id of another job that an earlier response named, if any. Raises IdempotencyKeyReused.

    The record is written before the job, so that a request repeated after a crash finds it.
    """
    kept = msgspec.json.encode(_StoredAnswer(prepared.said))
    if await store.put(COLLECTION, prepared.owner, kept, expect=0, expire_seconds=KEY_SECONDS) is not None:
        return None
    record = await store.fetch(COLLECTION, prepared.owner)
    known = None if record is None else msgspec.json.decode(record.data, type=_StoredAnswer)
    if known is not None and known.said != prepared.said:
        raise IdempotencyKeyReused(
            "This Idempotency-Key was used with a different request. Use a new key for a new request."
        )
    return None if known is None else known.holder


async def store_many(store: Store, prepared: Sequence[Prepared]) -> list[Stored | JobyardError]:
    """Insert all in one step if possible, else one by one, so that an error affects only its own job."""
    if not any(each.is_guarded for each in prepared):
        try:
            answers = await store.insert([each.job for each in prepared])
            return [Stored(inserted, False) for inserted in answers]
        except (BadInput, NotPossible):
            pass

    async def alone(each: Prepared) -> Stored | JobyardError:
        try:
            return await store_one(store, each)
        except JobyardError as error:
            return error

    return list(await asyncio.gather(*(alone(each) for each in prepared)))


async def require_same_batch(store: Store, principal: Principal, key: str, request: BatchRequest) -> None:
    """Raise IdempotencyKeyReused if the key came with another batch; each job is deduplicated by itself.

    Recorded before the first job is inserted, so that a retry after a crash is recognised.
    """
    name = digest(principal.id.encode(), key.encode()).hex()
    content = digest(msgspec.json.encode(request, order="deterministic")).hex().encode()
    if await store.put(BATCHES, name, content, expect=0, expire_seconds=KEY_SECONDS) is not None:
        return
    known = await store.fetch(BATCHES, name)
    if known is not None and known.data != content:
        raise IdempotencyKeyReused("This Idempotency-Key was used with another batch. Use a new key for a new request.")


def digest(*parts: bytes) -> bytes:
    """A digest of the parts, each with its length, so that different lists of parts differ."""
    hashed = blake2b(digest_size=16)
    for part in parts:
        hashed.update(len(part).to_bytes(8))
        hashed.update(part)
    return hashed.digest()


def _uuid(digest: bytes) -> str:
    """A UUID of version 8, from a digest.

    >>> _uuid(bytes(16))
    '00000000-0000-8000-8000-000000000000'
    """
    value = int.from_bytes(digest)
    value = (value & ~(0xF << 76)) | (0x8 << 76)
    return str(UUID(int=(value & ~(0x3 << 62)) | (0x2 << 62)))
