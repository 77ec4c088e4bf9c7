"""Lost workers: their heartbeats ended although no stop was reported. Listed for an hour."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from jobyard.ports.record_store import RecordStore
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.ports.store import Store

COLLECTION = "jobyard.workers_seen"
# A worker writes its record this often; the record outlives it by KEPT_SECONDS, unless the worker stops properly.
REMEMBER_SECONDS = 60.0
KEPT_SECONDS = 3600.0
MAX_LISTED = 1000
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkerInfo).decode


async def remember_worker(store: Store, worker: WorkerInfo) -> None:
    seen = msgspec.structs.replace(worker, seen_at=await store.now())
    await store.put(COLLECTION, worker.id, _encode(seen), expire_seconds=KEPT_SECONDS)


async def forget_worker(records: RecordStore, worker_id: str) -> None:
    await records.remove(COLLECTION, worker_id)


async def lost_workers(records: RecordStore, live: Iterable[WorkerInfo]) -> list[WorkerInfo]:
    """Workers that were seen within the hour, are not alive, and did not stop properly; by id."""
    alive = {worker.id for worker in live}
    found = await records.fetch_all(COLLECTION, MAX_LISTED)
    return [_decode(record.data) for record in found if record.key not in alive]
