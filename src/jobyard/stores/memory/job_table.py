"""Job table: each job is in line, delayed, running or ended, and every move keeps the counts."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile

from jobyard.domain.admission import next_in_turn
from jobyard.domain.history import EndedJob, Wake
from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.domain.job import NewJob, State, UniqueScope
from jobyard.domain.lease import LeaseKey
from jobyard.domain.state import require_legal
from jobyard.errors import JobNotFound
from jobyard.ports.admin_store import CLOCK_SET_BACK, Filter
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
        self.ended: dict[str, EndedJob] = {}  # not delivered yet, by job id, oldest first
        self.last_entry = 0  # number of the last history entry
        self._by_id: dict[str, StoredJob] = {}
        self._by_sequence: dict[int, StoredJob] = {}  # ascending, because sequences only grow
        self._index: dict[tuple[str, str], dict[int, None]] = {}  # sequences by queue, group, kind, tag and state
        self._delayed: list[tuple[Instant, int]] = []
        self._last_sequence = 0

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._by_id

    def __iter__(self) -> Iterator[StoredJob]:
        return iter(self._by_sequence.values())

    def matching(self, where: Filter) -> Iterator[StoredJob]:
        """Jobs newest first, from the narrowest index that the filter can use."""
        wanted = {"queue": where.queue, "group": where.group, "kind": where.kind, "tag": where.tag}
        indexes = [self._index.get((name, value), {}) for name, value in wanted.items() if value is not None]
        if where.states is not None:
            of_states = [self._index.get(("state", state), {}) for state in where.states]
            indexes.append({sequence: None for index in of_states for sequence in index})
        if not indexes:
            # Creation times ascend with the sequences, up to CLOCK_SET_BACK: jobs that are too new are skipped.
            newest = FOREVER if where.created_before is None else where.created_before + CLOCK_SET_BACK
            return dropwhile(lambda stored: stored.created_at >= newest, reversed(self._by_sequence.values()))
        narrowest = min(indexes, key=len)
        return (self._by_sequence[sequence] for sequence in sorted(narrowest, reverse=True))

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

    def wait(
        self,
        stored: StoredJob,
        run_at: Instant,
        now: Instant,
        waiting_for: str | None = None,
        wake: tuple[Wake, ...] = (),
    ) -> None:
        """Make the job PENDING: after an attempt, on retry, or to move its time."""
        if stored.state is not State.PENDING:
            require_legal(stored.state, State.PENDING)
        self._take(stored)
        stored.state = State.PENDING
        stored.run_at = run_at
        stored.waiting_for = waiting_for
        stored.wake = wake if waiting_for is not None else ()
        if stored.lease is not None and stored.ends_itself:
            stored.cancel_carried = stored.cancel_requested
        stored.lease = stored.worker = stored.started_at = stored.finished_at = stored.external_id = None
        self._put(stored, now)

    def finish(self, stored: StoredJob, state: State, now: Instant) -> None:
        require_legal(stored.state, state)
        self._take(stored)
        stored.state = state
        stored.finished_at = now
        stored.lease = stored.waiting_for = stored.signal = stored.external_id = stored.cancel_carried = None
        stored.wake = ()
        if stored.new.parent is not None or (stored.ends_itself and state is not State.COMPLETED):
            self._record_end(stored, state)
        if state is State.COMPLETED:
            stored.private_payload = None
        self.unique_keys.release(stored.new)
        self._put(stored, now)

    def remove(self, stored: StoredJob) -> None:
        if stored.new.parent is not None and not stored.state.is_final:
            self._record_end(stored, None)
        self._take(stored)
        self.lines.of(stored.new.queue).drop_if_idle(stored.new.group)
        self.unique_keys.release(stored.new)
        for key in _index_keys(stored.new):
            del self._index[key][stored.sequence]
        del self._by_id[stored.id], self._by_sequence[stored.sequence]

    def must_stay(self, stored: StoredJob) -> bool:
        """Whether it is a workflow whose end has yet to be delivered to its child jobs."""
        return stored.state is not State.COMPLETED and stored.ends_itself and stored.id in self.ended

    def _record_end(self, stored: StoredJob, state: State | None) -> None:
        ended = EndedJob(
            job_id=stored.id,
            state=state,
            parent=stored.new.parent,
            is_workflow=stored.new.is_workflow,
            result=stored.result if state is State.COMPLETED else None,
            reason=stored.reason,
        )
        self.ended.setdefault(stored.id, ended)

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
        for key in _index_keys(job):
            self._index.setdefault(key, {})[stored.sequence] = None
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
        del self._index["state", stored.state][stored.sequence]
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
        self._index.setdefault(("state", stored.state), {})[stored.sequence] = None
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


def _index_keys(job: NewJob) -> list[tuple[str, str]]:
    groups = [] if job.group is None else [("group", job.group)]
    return [("queue", job.queue), ("kind", job.kind), *groups, *(("tag", tag) for tag in set(job.tags))]
