"""Insert: calls that meet in the same turn of the event loop travel together, and fail apart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hiredis import ReplyError

from jobyard.domain.instant import FOREVER
from jobyard.domain.job import NewJob
from jobyard.domain.lease import Lease, adopted
from jobyard.errors import BadInput, JobyardError, QueueFull, StoreError
from jobyard.ports.job_store import Inserted
from jobyard.stores.redis.packing import HAS_PRIVATE, extra, is_plain, pack, queue_from, queue_name
from jobyard.stores.redis.scripts import command
from jobyard.stores.redis.server import Server
from jobyard.stores.redis.station import Station
from jobyard.stores.redis.trouble import is_late, is_unknown_command

INSERT, ADOPT = command("insert"), command("adopt")
# Jobs that travel in one command: more would keep other commands waiting for milliseconds.
TOGETHER = 1000
# What even a busy server takes: a call with very many jobs is waited for longer.
JOBS_PER_SECOND = 5000


class Load:
    """Jobs ready to travel."""

    __slots__ = ("jobs", "records")

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs
        try:
            self.records = [pack(job) for job in jobs]
            for job in jobs:
                job.queue.encode()
        except UnicodeEncodeError as error:
            raise BadInput(f"This text cannot be stored: {error}.") from error

    def question(self, names: dict[str, int]) -> dict[str, Any]:
        """What is said of them beside the records; `names` learns and numbers their queues."""
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
        found: dict[str, Any] = {"jobs": flat}
        if more:
            found["more"] = more
        return found


class Call(Load):
    """One caller's jobs, and the answer it waits for."""

    __slots__ = ("answer",)

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        super().__init__(jobs)
        self.answer: asyncio.Future[list[Inserted]] = asyncio.get_running_loop().create_future()

    def resolve(self, reply: list[Any]) -> None:
        if self.answer.done():
            return
        if isinstance(reply[0], bytes):
            self.answer.set_exception(refusal(reply))
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


class Journey:
    """Several calls on their way in one command; it stands in for the future of its answer."""

    def __init__(self, server: Server, station: Station, calls: list[Call]) -> None:
        self._server = server
        self._station = station
        self._calls = calls
        self._patience = sum(len(call.jobs) for call in calls) / JOBS_PER_SECOND

    def depart(self) -> None:
        """At once where a connection is at hand."""
        link = self._station.link_at_hand()
        if link is None:
            self._station.run(self.travel())
            return
        try:
            words = self._words()
        except BadInput as error:
            self._apart(error)
        except Exception as error:
            self._apart(BadInput(f"This cannot be stored: {error}."))
        else:
            link.post(self, *words, patience=self._patience)

    async def travel(self) -> None:
        """The long way: a connection must be made, or the server must learn the command first."""
        names: dict[str, int] = {}
        try:
            question = {"calls": [call.question(names) for call in self._calls], "names": list(names)}
            replies = await self._server.run(INSERT, question, *self._records(), patience=self._patience)
        except BadInput as error:
            self._apart(error)
        except (StoreError, asyncio.CancelledError) as error:
            self.set_exception(error)
        else:
            self._deliver(replies)

    def done(self) -> bool:
        return all(call.answer.done() for call in self._calls)

    def set_result(self, reply: Any, /) -> None:
        if not isinstance(reply, ReplyError):
            self._deliver(reply)
        elif is_unknown_command(reply) or is_late(reply):
            self._station.run(self.travel())
        else:
            self.set_exception(self._server.refusal(reply))

    def set_exception(self, error: BaseException, /) -> None:
        for call in self._calls:
            call.fail(error)

    def _deliver(self, replies: list[Any]) -> None:
        for call, reply in zip(self._calls, replies, strict=True):
            call.resolve(reply)

    def _words(self) -> tuple[str | bytes, ...]:
        names: dict[str, int] = {}
        question = {"calls": [call.question(names) for call in self._calls], "names": list(names)}
        return self._server.words(INSERT, question, *self._records(), patience=self._patience)

    def _records(self) -> list[bytes]:
        return [record for call in self._calls for record in call.records]

    def _apart(self, error: BadInput) -> None:
        """One of them cannot be written down: nothing went out, so each goes alone."""
        if len(self._calls) == 1:
            self._calls[0].fail(error)
            return
        for call in self._calls:
            Journey(self._server, self._station, [call]).depart()


async def insert(server: Server, call: Call) -> list[Inserted]:
    station = server.station
    if not station.travelling and not station.meeting:
        # Nobody to travel with.
        Journey(server, station, [call]).depart()
    else:
        station.meeting.append(call)
        if len(station.meeting) == 1:
            station.loop.call_soon(_depart, server, station)
    station.travelling += 1
    try:
        return await call.answer
    finally:
        station.travelling -= 1


def _depart(server: Server, station: Station) -> None:
    calls: list[Call] = station.meeting[:]
    station.meeting.clear()
    start = count = 0
    for end, call in enumerate(calls):
        if end > start and count + len(call.jobs) > TOGETHER:
            Journey(server, station, calls[start:end]).depart()
            start, count = end, 0
        count += len(call.jobs)
    Journey(server, station, calls[start:]).depart()


def refusal(reply: list[Any]) -> JobyardError:
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
    return StoreError(f"The server refused jobs for a reason that is not known here: {reply!r}.")


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
    return adopted(job, sequence, token)
