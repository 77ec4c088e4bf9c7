"""The Idempotency-Key of a batch: each job is deduplicated by itself, the key must come with the same batch."""

from __future__ import annotations

import msgspec

from jobyard.api.schemas.jobs import BatchRequest
from jobyard.domain.access import Principal
from jobyard.errors import IdempotencyKeyReused
from jobyard.operations.submit import KEY_SECONDS, digest
from jobyard.ports.store import Store

COLLECTION = "jobyard.batches"


async def require_same_batch(store: Store, principal: Principal, key: str, request: BatchRequest) -> None:
    """Raise IdempotencyKeyReused if the key came with another batch.

    Recorded before the first job is inserted, so that a retry after a crash is recognised.
    """
    name = digest(principal.id.encode(), key.encode()).hex()
    content = digest(msgspec.json.encode(request, order="deterministic")).hex().encode()
    if await store.put(COLLECTION, name, content, expect=0, expire_seconds=KEY_SECONDS) is not None:
        return
    known = await store.fetch(COLLECTION, name)
    if known is not None and known.data != content:
        raise IdempotencyKeyReused("This Idempotency-Key was used with another batch. Use a new key for a new request.")
