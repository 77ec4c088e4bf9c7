"""Remote control of a worker: a record in the store that the worker reads about every second."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from jobyard.domain.instant import Instant
from jobyard.errors import BadOption, WorkerNotFound, did_you_mean
from jobyard.ports.record_store import RecordStore
from jobyard.ports.store import Store

COLLECTION = "jobyard.control"
KEPT_SECONDS = 3600.0


class Control(StrEnum):
    QUIET = "quiet"  # claim no more jobs; running jobs continue, and the worker stays
    STOP = "stop"  # as SIGTERM does


class ControlRecord(msgspec.Struct, frozen=True):
    control: Control
    started_at: Instant  # the record does not apply to a later worker of the same name


async def control_worker(store: Store, worker_id: str, control: str) -> None:
    """Ask a live worker to be "quiet" or to "stop". After "stop", "quiet" has no effect."""
    wanted = checked_control(control)
    alive = {worker.id: worker for worker in await store.workers()}
    if worker_id not in alive:
        raise WorkerNotFound(f'Live worker "{worker_id}" not found.{did_you_mean(worker_id, alive)}')
    started_at = alive[worker_id].started_at
    if await requested_control(store, worker_id, started_at) is not Control.STOP:
        record = msgspec.json.encode(ControlRecord(wanted, started_at))
        await store.put(COLLECTION, worker_id, record, expire_seconds=KEPT_SECONDS)


def checked_control(control: str) -> Control:
    if control not in list(Control):
        raise BadOption(f'A worker control is "quiet" or "stop", not "{control}".', option="control")
    return Control(control)


async def requested_control(records: RecordStore, worker_id: str, started_at: Instant) -> Control | None:
    """What was last requested of the worker that started at this instant."""
    found = await records.fetch(COLLECTION, worker_id)
    if found is None:
        return None
    record = msgspec.json.decode(found.data, type=ControlRecord)
    return record.control if record.started_at == started_at else None
