"""Idempotency-Key for requests that make something besides jobs: a repetition gets the first response again.

Jobs need none of this: the insert itself enforces their key (`operations/submit.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from jobyard.api.schemas.problems import FieldError
from jobyard.errors import IdempotencyKeyReused
from jobyard.operations.submit import KEY_SECONDS, MAX_KEY, digest
from jobyard.ports.store import Store
from jobyard.server.parsing import raw_header
from jobyard.server.problems import HttpError

KEY = (
    "Idempotency-Key",
    "Identifies this request for a day. A repetition with the same key makes nothing more and gets the same response.",
)
COLLECTION = "jobyard.responses"
# How long a request may take; if its server died, it can be repeated after this time.
PENDING_SECONDS = 60.0


class KeptResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    said: str  # digest of the request
    status: int = 0  # 0: the first request has not ended
    body: str | None = None  # None: it holds a secret, which is not stored
    location: str | None = None


def idempotency_key(request: Request) -> str | None:
    """The header as plain text, or in quotes as the IETF draft has it."""
    given = raw_header(request, b"idempotency-key")
    if given is None:
        return None
    key = given.decode("latin-1").strip()
    if len(key) >= 2 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not 0 < len(key) <= MAX_KEY or not key.isascii() or not key.isprintable():
        wrong = f"An Idempotency-Key must have 1 to {MAX_KEY} printable ASCII characters."
        raise HttpError(422, "bad_input", wrong, errors=(FieldError("Idempotency-Key", wrong),))
    return key


async def respond_once(
    store: Store, owner: tuple[str, ...], said: bytes, respond: Callable[[], Awaitable[Response]], *, is_secret: bool
) -> Response:
    """Respond, or repeat the response of an earlier request with the same key.

    `owner`: what the key belongs to, and the key itself. `said`: the request. `is_secret`: the response holds a secret.
    """
    name = digest(*(part.encode() for part in owner)).hex()
    wanted = digest(said).hex()
    pending = msgspec.json.encode(KeptResponse(wanted))
    version = await store.put(COLLECTION, name, pending, expect=0, expire_seconds=PENDING_SECONDS)
    if version is None:
        return await repeated(store, name, wanted)
    try:
        response = await respond()
    except BaseException:
        await store.remove(COLLECTION, name, expect=version)
        raise
    body = None if is_secret else bytes(response.body).decode()
    kept = KeptResponse(wanted, response.status_code, body, response.headers.get("location"))
    await store.put(COLLECTION, name, msgspec.json.encode(kept), expire_seconds=KEY_SECONDS)
    return response


async def repeated(store: Store, name: str, wanted: str) -> Response:
    record = await store.fetch(COLLECTION, name)
    kept = None if record is None else msgspec.json.decode(record.data, type=KeptResponse)
    if kept is not None and kept.said != wanted:
        message = "This Idempotency-Key was used with a different request. Use a new key for a new request."
        raise IdempotencyKeyReused(message)
    if kept is None or kept.status == 0:
        detail = "The first request with this Idempotency-Key has not ended. Retry later."
        raise HttpError(409, "request_pending", detail, headers={"Retry-After": "1"})
    if kept.body is None:
        detail = "An earlier request with this Idempotency-Key succeeded; only its response holds the secret."
        raise HttpError(409, "secret_not_repeated", detail)
    headers = {"Idempotency-Replayed": "true"} | ({"Location": kept.location} if kept.location else {})
    return Response(kept.body, kept.status, headers, "application/json")
