"""The facts about one waiting job, for `domain.explain`, from one snapshot."""

from __future__ import annotations

import msgspec

from jobyard.domain.admission import UNLIMITED, Group, Queue, limit_of
from jobyard.domain.explain import Standing
from jobyard.domain.instant import Instant
from jobyard.errors import JobNotFound
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.seeing import see
from jobyard.stores.postgres.statements import Statements

COUNTED_AT_MOST = 1000
NAMED_AT_MOST = 10


def not_found(job_id: str) -> JobNotFound:
    return JobNotFound.of(job_id)


async def workers(connection: Connection, statements: Statements, now: Instant | None) -> list[WorkerInfo]:
    rows = await connection.fetch(statements["list_workers"], now)
    return [
        msgspec.structs.replace(msgspec.json.decode(data, type=WorkerInfo), seen_at=seen_at) for seen_at, data in rows
    ]


async def standing(connection: Connection, statements: Statements, clock: Instant | None, job_id: str) -> Standing:
    job = (await see(connection, statements, clock, [job_id])).get(job_id)
    if job is None:
        raise not_found(job_id)
    now: Instant = await connection.fetchval(statements["now"], clock)
    row = await connection.fetchrow(statements["load_queue"], job.queue)
    assert row is not None  # a job's queue has a row before the job has
    name, max_running, max_per_group, paused, turn, running = row
    queue = Queue(name, max_running, max_per_group, paused, running, turn)
    found = await connection.fetchrow(statements["load_group"], job.queue, job.group or "")
    own, is_paused, place, due, runs = found or (None, False, 0, 0, 0)
    group = Group(job.group, own, is_paused, runs, due, place)
    cap = COUNTED_AT_MOST
    ord_ = (-job.priority << 42) + job.sequence
    ahead = await connection.fetchval(statements["standing_ahead"], job.queue, job.group or "", ord_, cap + 1)
    before = place if due else UNLIMITED
    line = await connection.fetchval(statements["standing_groups"], job.queue, before, job.group or "", cap + 1)
    # Those whose end would make room: the group's, or the queue's where only the queue is full.
    is_full = queue.max_running is not None and queue.running >= queue.max_running
    of_group = None if is_full and group.running < limit_of(queue, group) else job.group or ""
    holders = await connection.fetch(statements["running_ids"], job.queue, of_group, NAMED_AT_MOST)
    live = await workers(connection, statements, clock)
    return Standing(
        job=job,
        now=now,
        queue=queue,
        group=group,
        ahead_in_group=min(cap, ahead),
        groups_ahead=min(cap, line),
        counts_capped=max(ahead, line) > cap,
        running_ids=tuple(row[0] for row in holders),
        workers=sum(worker.takes(job.queue) for worker in live),
    )
