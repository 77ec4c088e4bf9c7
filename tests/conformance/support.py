"""Helpers of the conformance suite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uuid_utils import uuid7

from jobyard.domain.instant import Instant
from jobyard.domain.job import Job, NewJob, QueueSettings
from jobyard.domain.lease import Lease, LeaseKey
from jobyard.domain.outcome import Done, Outcome
from jobyard.domain.retry import Fixed
from jobyard.domain.schedule import Verdict
from jobyard.domain.state import Settlement, judge
from jobyard.ports.admin_store import GroupInfo, QueueInfo
from jobyard.ports.job_store import Exchange
from jobyard.ports.schedule_store import ArmedSchedule, Decided, Decision, Tick
from jobyard.ports.store import Store

LEASE_SECONDS = 15.0
WORKER = "worker-1"


def new(**options: Any) -> NewJob:
    """Return a job with a new id; failed attempts are retried after ten seconds."""
    return NewJob(**{"id": str(uuid7()), "kind": "work", "backoff": Fixed(10.0), **options})


def tick(at: Instant, job: NewJob | None = None, **options: Any) -> Tick:
    """Return a tick of the schedule "nightly"; by default it fires a new job."""
    verdict = options.get("verdict", Verdict.FIRED)
    if job is None and verdict.has_job:
        job = new()
    queue = job.queue if job else "default"
    return Tick(**{"schedule": "nightly", "revision": 1, "queue": queue, "verdict": verdict, **options}, at=at, job=job)


async def decide_one(store: Store, at: Instant, job: NewJob | None = None, **options: Any) -> Decided:
    [decided] = await store.decide([tick(at, job, **options)])
    return decided


def fired(job_id: str) -> Decided:
    return Decided(Decision.MADE, Verdict.FIRED, job_id)


async def armed(store: Store, schedule: str = "nightly") -> ArmedSchedule:
    [found] = [each for each in await store.armed() if each.schedule == schedule]
    return found


async def insert(store: Store, *jobs: NewJob) -> list[str]:
    """Insert the jobs and return their ids."""
    return [one.id for one in await store.insert(jobs)]


async def insert_one(store: Store, **options: Any) -> str:
    [job_id] = await insert(store, new(**options))
    return job_id


async def claim(
    store: Store,
    wanted: int = 1,
    *queues: str,
    worker: str = WORKER,
    lease_seconds: float = LEASE_SECONDS,
) -> tuple[Lease, ...]:
    exchange = await store.exchange(worker, [], queues or ("default",), wanted, lease_seconds)
    return exchange.leases


async def claim_one(store: Store, *queues: str, worker: str = WORKER, lease_seconds: float = LEASE_SECONDS) -> Lease:
    [lease] = await claim(store, 1, *queues, worker=worker, lease_seconds=lease_seconds)
    return lease


async def claim_ids(store: Store, wanted: int = 1, *queues: str) -> list[str]:
    return [lease.job_id for lease in await claim(store, wanted, *queues)]


async def running(store: Store, **options: Any) -> Lease:
    """Insert and claim a job."""
    await insert_one(store, **options)
    return await claim_one(store, options.get("queue", "default"))


def settlement(lease: Lease, outcome: Outcome) -> Settlement:
    return Settlement(lease.key, judge(lease, outcome, worker=WORKER))


async def settle(store: Store, lease: Lease, outcome: Outcome) -> Exchange:
    return await store.exchange(WORKER, [settlement(lease, outcome)], ("default",), 0, LEASE_SECONDS)


async def complete(store: Store, leases: Sequence[Lease]) -> None:
    response = await store.exchange(WORKER, [settlement(lease, Done()) for lease in leases], ("default",), 0, 15)
    assert response.refused == ()


async def promote_due_jobs(store: Store) -> Exchange:
    """Exchange without settling or claiming: due jobs join the line."""
    return await store.exchange(WORKER, [], ("default",), 0, LEASE_SECONDS)


async def get_job(store: Store, job_id: str) -> Job:
    job = await store.get(job_id)
    assert job is not None
    return job


async def configure(store: Store, queue: str = "default", **settings: Any) -> None:
    await store.configure(queue, QueueSettings(**settings))


async def queue_info(store: Store, name: str = "default") -> QueueInfo:
    [info] = [info for info in await store.queues() if info.name == name]
    return info


async def group_info(store: Store, name: str | None, queue: str = "default") -> GroupInfo:
    [info] = [info for info in await store.groups(queue) if info.name == name]
    return info


def stale(key: LeaseKey) -> LeaseKey:
    """Return a key of the same job with an unknown token."""
    return LeaseKey(key.job_id, key.sequence, "0" * 16)
