"""What a worker can be told from anywhere: take no more jobs, or stop; a record that its keeper looks at."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from jobyard.domain.instant import Instant
from jobyard.errors import WorkerNotFound, did_you_mean
from jobyard.ports.record_store import RecordStore
from jobyard.ports.store import Store

COLLECTION = "jobyard.control"
KEPT_SECONDS = 3600.0


class Control(StrEnum):
    QUIET = "quiet"  # take no more; what runs goes on, and the worker stays
    STOP = "stop"  # as SIGTERM does


class Told(msgspec.Struct, frozen=True):
    control: Control
    started_at: Instant  # a later worker of the same name is not meant


async def tell(store: Store, worker_id: str, control: Control) -> None:
    """The worker hears it within about a second; who was told to stop cannot be told to be quiet instead."""
    alive = {worker.id: worker for worker in await store.workers()}
    if worker_id not in alive:
        raise WorkerNotFound(f"There is no live worker {worker_id}.{did_you_mean(worker_id, alive)}")
    started_at = alive[worker_id].started_at
    if await heard(store, worker_id, started_at) is not Control.STOP:
        told = msgspec.json.encode(Told(control, started_at))
        await store.put(COLLECTION, worker_id, told, expire_seconds=KEPT_SECONDS)


async def heard(records: RecordStore, worker_id: str, started_at: Instant) -> Control | None:
    """What the worker that began then was told."""
    record = await records.fetch(COLLECTION, worker_id)
    if record is None:
        return None
    told = msgspec.json.decode(record.data, type=Told)
    return told.control if told.started_at == started_at else None
