"""Job table: each job is in line, delayed, running or ended, and every move keeps the counts."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobyard.domain.admission import next_in_turn
from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.domain.job import NewJob, State, UniqueScope
from jobyard.domain.lease import LeaseKey
from jobyard.domain.state import require_legal
from jobyard.errors import JobNotFound
from jobyard.stores.memory.queue_line import QueueLines
from jobyard.stores.memory.stored_job import ActiveLease, StoredJob


@dataclass(slots=True, frozen=True)
class KeyHolder:
    job_id: str
    scope: UniqueScope
    until: Instant


class UniqueKeys:
    def __init__(self) -> None:
        self._holders: dict[tuple[str, str], KeyHolder] = {}

    def holder(self, job: NewJob, now: Instant) -> str | None:
        """Return the id of the job that holds this job's key, which may be the job itself."""
        if job.unique is None:
            return None
        holder = self._holders.get((job.queue, job.unique.key))
        if holder is None or holder.until <= now:
            return None
        return holder.job_id

    def acquire(self, job: NewJob, now: Instant) -> None:
        unique = job.unique
        if unique is None:
            return
        until = FOREVER
        if unique.scope is UniqueScope.PERIOD:
            until = after(now, unique.period_seconds or 0.0)
        self._holders[job.queue, unique.key] = KeyHolder(job.id, unique.scope, until)

    def release(self, job: NewJob) -> None:
        """Release the key of a job that ended or was deleted, if its scope is ACTIVE."""
        if job.unique is None or job.unique.scope is not UniqueScope.ACTIVE:
            return
        holder = self._holders.get((job.queue, job.unique.key))
        if holder is not None and holder.job_id == job.id and holder.scope is UniqueScope.ACTIVE:
            del self._holders[job.queue, job.unique.key]

    def forget_queue(self, queue: str) -> None:
        self._holders = {key: holder for key, holder in self._holders.items() if key[0] != queue}


class JobTable:
    def __init__(self) -> None:
        self.lines = QueueLines()
        self.unique_keys = UniqueKeys()
        self.running: dict[int, StoredJob] = {}
        self._by_id: dict[str, StoredJob] = {}
        self._by_sequence: dict[int, StoredJob] = {}  # ascending, because sequences only grow
        self._delayed: list[tuple[Instant, int]] = []
        self._last_sequence = 0

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._by_id

    def __iter__(self) -> Iterator[StoredJob]:
        return iter(self._by_sequence.values())

    def newest_first(self) -> Iterator[StoredJob]:
        return reversed(self._by_sequence.values())

    def get(self, job_id: str) -> StoredJob | None:
        return self._by_id.get(job_id)

    def at(self, sequence: int) -> StoredJob:
        return self._by_sequence[sequence]

    def require(self, job_id: str) -> StoredJob:
        stored = self.get(job_id)
        if stored is None:
            raise JobNotFound.of(job_id)
        return stored

    def held(self, key: LeaseKey) -> StoredJob | None:
        stored = self.get(key.job_id)
        if stored is None or stored.lease is None or stored.sequence != key.sequence:
            return None
        return stored if stored.lease.token == key.token else None

    def next_in_line(self, queues: Sequence[str]) -> StoredJob | None:
        """Return the job to claim next from the named queues; no names mean all queues."""
        turn = next_in_turn(line.queue for line in self.lines if not queues or line.queue.name in queues)
        if turn is None:
            return None
        queue, group = turn
        return self.at(self.lines.of(queue.name).groups[group.name].positions[0][1])

    def delayed(self) -> list[tuple[Instant, int]]:
        """Return (run_at, sequence) of all delayed jobs, in order."""
        return list(self._delayed)

    def next_due_at(self) -> Instant | None:
        if self._delayed and self._delayed[0][0] < FOREVER:
            return self._delayed[0][0]
        return None

    def promote(self, now: Instant) -> None:
        """Move jobs that have become due into line, by (run_at, sequence)."""
        while self._delayed and self._delayed[0][0] <= now:
            stored = self.at(self._delayed[0][1])
            self._take(stored)
            self._put(stored, now)

    def add(self, job: NewJob, now: Instant) -> StoredJob:
        stored = self._register(job, now)
        stored.run_at = after(now, max(0.0, job.delay_seconds)) if job.run_at is None else min(job.run_at, FOREVER)
        self._put(stored, now)
        return stored

    def add_running(self, job: NewJob, lease: ActiveLease, now: Instant) -> StoredJob:
        """Add a job that already runs outside."""
        stored = self._register(job, now)
        stored.state = State.RUNNING
        self._start(stored, lease, now)
        self._put(stored, now)
        return stored

    def start(self, stored: StoredJob, lease: ActiveLease, now: Instant) -> None:
        require_legal(stored.state, State.RUNNING)
        self._take(stored)
        stored.state = State.RUNNING
        self._start(stored, lease, now)
        self._put(stored, now)
        self.lines.move_to_end(stored)

    def wait(self, stored: StoredJob, run_at: Instant, now: Instant, waiting_for: str | None = None) -> None:
        """Make the job PENDING: after an attempt, on retry, or to move its time."""
        if stored.state is not State.PENDING:
            require_legal(stored.state, State.PENDING)
        self._take(stored)
        stored.state = State.PENDING
        stored.run_at = run_at
        stored.waiting_for = waiting_for
        stored.lease = stored.worker = stored.started_at = stored.finished_at = stored.external_id = None
        self._put(stored, now)

    def finish(self, stored: StoredJob, state: State, now: Instant) -> None:
        require_legal(stored.state, state)
        self._take(stored)
        stored.state = state
        stored.finished_at = now
        stored.lease = stored.waiting_for = stored.signal = stored.external_id = stored.cancel_requested = None
        if state is State.COMPLETED:
            stored.private_payload = None
        self.unique_keys.release(stored.new)
        self._put(stored, now)

    def remove(self, stored: StoredJob) -> None:
        self._take(stored)
        self.lines.of(stored.new.queue).drop_if_idle(stored.new.group)
        self.unique_keys.release(stored.new)
        del self._by_id[stored.id], self._by_sequence[stored.sequence]

    def prioritise(self, stored: StoredJob, priority: int) -> None:
        if stored.is_in_line:
            self.lines.reprioritise(stored, priority)
        else:
            stored.priority = priority

    def _register(self, job: NewJob, now: Instant) -> StoredJob:
        self._last_sequence += 1
        stored = StoredJob(
            new=job,
            sequence=self._last_sequence,
            created_at=now,
            run_at=now,
            priority=job.priority,
            private_payload=job.private_payload,
        )
        self._by_id[job.id] = self._by_sequence[stored.sequence] = stored
        # An adopted job is added even if another job holds its key: it must be counted as running.
        if self.unique_keys.holder(job, now) is None:
            self.unique_keys.acquire(job, now)
        return stored

    def _start(self, stored: StoredJob, lease: ActiveLease, now: Instant) -> None:
        stored.lease = lease
        stored.worker = lease.worker
        stored.started_at = now

    def _take(self, stored: StoredJob) -> None:
        """Remove the job from the structure that its state selects, and from its counts."""
        line = self.lines.of(stored.new.queue)
        if stored.state is State.RUNNING:
            del self.running[stored.sequence]
            self.lines.count_running(stored, -1)
        elif stored.state.is_final:
            del line.bucket(stored.state)[stored.sequence]
            line.ended[stored.state] -= 1
        elif stored.is_in_line:
            stored.is_in_line = False
            self.lines.leave(stored)
        else:
            del self._delayed[bisect_left(self._delayed, (stored.run_at, stored.sequence))]
            self.lines.count_delayed(stored, -1)

    def _put(self, stored: StoredJob, now: Instant) -> None:
        """Add the job to the structure that its state and time select, and to its counts."""
        line = self.lines.of(stored.new.queue)
        if stored.state is State.RUNNING:
            self.running[stored.sequence] = stored
            self.lines.count_running(stored, 1)
        elif stored.state.is_final:
            line.bucket(stored.state)[stored.sequence] = None
            line.ended[stored.state] = line.ended.get(stored.state, 0) + 1
            line.drop_if_idle(stored.new.group)
        elif stored.run_at <= now:
            stored.is_in_line = True
            stored.waiting_for = None
            self.lines.arrive(stored)
        else:
            insort(self._delayed, (stored.run_at, stored.sequence))
            self.lines.count_delayed(stored, 1)
