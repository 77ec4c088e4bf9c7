"""A batch and its Idempotency-Key: each job is guarded by itself, and the key stands for the whole of them."""

from __future__ import annotations

import msgspec

from jobyard.api.schemas.jobs import BatchRequest
from jobyard.domain.access import Principal
from jobyard.errors import IdempotencyKeyReused
from jobyard.operations.submit import KEY_SECONDS, digest
from jobyard.ports.store import Store

COLLECTION = "jobyard.batches"


async def require_same_batch(store: Store, principal: Principal, key: str, request: BatchRequest) -> None:
    """Written down before the first job of the batch is: whoever repeats it after a crash finds the same words."""
    name = digest(principal.id.encode(), key.encode()).hex()
    said = digest(msgspec.json.encode(request, order="deterministic")).hex().encode()
    if await store.put(COLLECTION, name, said, expect=0, expire_seconds=KEY_SECONDS) is not None:
        return
    known = await store.fetch(COLLECTION, name)
    if known is not None and known.data != said:
        raise IdempotencyKeyReused(
            "This Idempotency-Key came with another batch before. Use a new key for a new request."
        )
