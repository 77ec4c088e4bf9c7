"""Insert: calls that meet in the same turn of the event loop travel together, and fail apart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from jobyard.domain.instant import FOREVER, Instant
from jobyard.domain.job import NewJob
from jobyard.domain.lease import Lease
from jobyard.errors import BadInput, JobyardError, QueueFull
from jobyard.ports.store import Inserted
from jobyard.stores.redis.packing import HAS_PRIVATE, extra, is_plain, pack, queue_from, queue_name
from jobyard.stores.redis.scripts import command
from jobyard.stores.redis.server import Server

INSERT, ADOPT = command("insert"), command("adopt")
# Jobs that travel in one command: more would keep other commands waiting for milliseconds.
TOGETHER = 1000


class Call:
    """One caller's jobs, ready to travel, and the answer it waits for."""

    __slots__ = ("answer", "jobs", "records", "schedule", "tick")

    def __init__(self, jobs: Sequence[NewJob], schedule: str | None = None, tick: Instant = 0) -> None:
        self.jobs = jobs
        self.schedule = schedule
        self.tick = tick
        try:
            self.records = [pack(job) for job in jobs]
            for job in jobs:
                job.queue.encode()
        except UnicodeEncodeError as error:
            raise BadInput(f"This text cannot be stored: {error}.") from error
        self.answer: asyncio.Future[list[Inserted] | None] = asyncio.get_running_loop().create_future()

    def question(self, names: dict[str, int]) -> dict[str, Any]:
        flat: list[Any] = []
        more: dict[int, Any] = {}
        for position, job in enumerate(self.jobs, start=1):
            name = queue_name(job.queue)
            number = names.get(name)
            if number is None:
                number = names[name] = len(names) + 1
            flat += (job.id, number, job.group or "", job.priority)
            if not is_plain(job):
                more[position] = extra(job)
                if more[position].get("at", 0) > FOREVER:
                    more[position]["at"] = FOREVER
        found: dict[str, Any] = {"jobs": flat, "more": more}
        if self.schedule is not None:
            found |= {"schedule": self.schedule, "tick": self.tick}
        return found

    def resolve(self, reply: list[Any]) -> None:
        if self.answer.done():
            return
        if isinstance(reply[0], bytes):
            refusal = _refusal(reply)
            if refusal is None:
                self.answer.set_result(None)
            else:
                self.answer.set_exception(refusal)
            return
        holders = dict(zip(reply[1::2], reply[2::2], strict=True))
        sequence = reply[0]
        answers: list[Inserted] = []
        for position, job in enumerate(self.jobs):
            holder = holders.get(position) if holders else None
            if holder is None:
                answers.append(Inserted(job.id, True, sequence))
                sequence += 1
            else:
                answers.append(Inserted(holder.decode(), False, 0))
        self.answer.set_result(answers)

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


async def insert(server: Server, call: Call) -> list[Inserted] | None:
    """None when the schedule's instant has been fired already."""
    station = server.station
    station.meeting.append(call)
    if len(station.meeting) == 1:
        station.loop.call_soon(_depart, server, station.meeting)
    return await call.answer


def _depart(server: Server, meeting: list[Call]) -> None:
    calls = meeting[:]
    meeting.clear()
    while calls:
        some = [calls.pop(0)]
        count = len(some[0].jobs)
        while calls and count + len(calls[0].jobs) <= TOGETHER:
            count += len(calls[0].jobs)
            some.append(calls.pop(0))
        task = asyncio.ensure_future(_travel(server, some))
        # The task is held by the futures that it resolves; nothing is left to look at when it ends.
        some[0].answer.add_done_callback(lambda _, task=task: None)  # type: ignore[misc]


async def _travel(server: Server, calls: list[Call]) -> None:
    try:
        names: dict[str, int] = {}
        questions = [call.question(names) for call in calls]
        question = {"calls": questions, "names": list(names)}
        records = [record for call in calls for record in call.records]
        replies = await server.run(INSERT, question, *records)
    except BadInput as error:
        await _apart(server, calls, error)
    except (JobyardError, asyncio.CancelledError) as error:
        for call in calls:
            call.fail(error)
    else:
        for call, reply in zip(calls, replies, strict=True):
            call.resolve(reply)


async def _apart(server: Server, calls: list[Call], error: BadInput) -> None:
    """One of them cannot be written down: nothing went out, so each goes alone."""
    if len(calls) == 1:
        calls[0].fail(error)
        return
    for call in calls:
        await _travel(server, [call])


def _refusal(reply: list[Any]) -> JobyardError | None:
    match reply:
        case [b"known", job_id]:
            return BadInput(f"There already is a job {job_id.decode()}. Give each job an id of its own.")
        case [b"twice", job_id]:
            return BadInput(f"Job {job_id.decode()} is handed in twice. Give each job an id of its own.")
        case [b"queue", name, limit, count]:
            return QueueFull(
                f'Queue "{queue_from(name)}" may hold {limit} waiting jobs (max_waiting) and has no room for {count} '
                "more. Insert again when some have run, or raise max_waiting."
            )
        case [b"group", name, group, limit, count]:
            return QueueFull(
                f'Group "{group.decode()}" of queue "{queue_from(name)}" may hold {limit} waiting jobs '
                f"(max_waiting_per_group) and has no room for {count} more. Insert again when some have run, or raise "
                "max_waiting_per_group."
            )
    return None


async def adopt(server: Server, job: NewJob, worker: str, external_id: str, token: str) -> Lease:
    """Enter a job that was found running outside."""
    try:
        record = pack(job)
    except UnicodeEncodeError as error:
        raise BadInput(f"This text cannot be stored: {error}.") from error
    question = {
        "name": queue_name(job.queue),
        "id": job.id,
        "group": job.group or "",
        "worker": worker,
        "external": external_id,
        "token": token,
        "flags": record[0],
        "extra": extra(job),
    }
    sequence = await server.run(ADOPT, question, record)
    if sequence < 0:
        raise BadInput(f"There already is a job {job.id}. Give each job an id of its own.")
    assert bool(record[0] & HAS_PRIVATE) == (job.private_payload is not None)
    return Lease(
        job_id=job.id,
        sequence=sequence,
        token=token,
        kind=job.kind,
        queue=job.queue,
        group=job.group,
        priority=job.priority,
        attempt=1,
        max_attempts=job.max_attempts,
        deaths=0,
        payload=job.payload,
        private_payload=job.private_payload,
        timeout_seconds=job.timeout_seconds,
        backoff=job.backoff,
    )
