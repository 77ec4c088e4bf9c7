"""All jobs, each in exactly one place: in line, delayed, running or ended; every move keeps the counts."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.domain.job import NewJob, State
from jobyard.domain.state import require_legal
from jobyard.stores.memory.entry import Entry, Hold
from jobyard.stores.memory.keys import Keys
from jobyard.stores.memory.line import Lines


class Shelf:
    def __init__(self) -> None:
        self.lines = Lines()
        self.keys = Keys()
        self.running: dict[int, Entry] = {}
        self._by_id: dict[str, Entry] = {}
        self._by_sequence: dict[int, Entry] = {}  # ascending, because sequences only grow
        self._delayed: list[tuple[Instant, int]] = []
        self._last_sequence = 0

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._by_id

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._by_sequence.values())

    def newest_first(self) -> Iterator[Entry]:
        return reversed(self._by_sequence.values())

    def get(self, job_id: str) -> Entry | None:
        return self._by_id.get(job_id)

    def at(self, sequence: int) -> Entry:
        return self._by_sequence[sequence]

    def delayed_places(self) -> list[tuple[Instant, int]]:
        return list(self._delayed)

    def next_due_at(self) -> Instant | None:
        """When the next delayed job becomes due by itself."""
        if self._delayed and self._delayed[0][0] < FOREVER:
            return self._delayed[0][0]
        return None

    def promote(self, now: Instant) -> None:
        """Let the jobs whose time has come join the line, by (run_at, sequence)."""
        while self._delayed and self._delayed[0][0] <= now:
            entry = self.at(self._delayed[0][1])
            self._take(entry)
            self._put(entry, now)

    def add(self, job: NewJob, now: Instant) -> Entry:
        """A new job, waiting."""
        entry = self._register(job, now)
        if job.run_at is not None:
            entry.run_at = min(job.run_at, FOREVER)
        else:
            entry.run_at = after(now, max(0.0, job.delay_seconds))
        self._put(entry, now)
        return entry

    def add_running(self, job: NewJob, hold: Hold, now: Instant) -> Entry:
        """A new job that was found running outside."""
        entry = self._register(job, now)
        entry.state = State.RUNNING
        self._hold(entry, hold, now)
        self._put(entry, now)
        return entry

    def start(self, entry: Entry, hold: Hold, now: Instant) -> None:
        require_legal(entry.state, State.RUNNING)
        self._take(entry)
        entry.state = State.RUNNING
        self._hold(entry, hold, now)
        self._put(entry, now)
        self.lines.to_the_end(entry)

    def wait(self, entry: Entry, run_at: Instant, now: Instant, waiting_for: str | None = None) -> None:
        """Back to waiting, from RUNNING, from a bad end, or from a later time."""
        if entry.state is not State.PENDING:
            require_legal(entry.state, State.PENDING)
        self._take(entry)
        entry.state = State.PENDING
        entry.run_at = run_at
        entry.waiting_for = waiting_for
        entry.hold = entry.worker = entry.started_at = entry.finished_at = entry.external_id = None
        self._put(entry, now)

    def finish(self, entry: Entry, state: State, now: Instant) -> None:
        require_legal(entry.state, state)
        self._take(entry)
        entry.state = state
        entry.finished_at = now
        entry.hold = entry.waiting_for = entry.signal = entry.external_id = entry.cancel_requested = None
        if state is State.COMPLETED:
            entry.private_payload = None
        self.keys.release(entry.new)
        self._put(entry, now)

    def remove(self, entry: Entry) -> None:
        self._take(entry)
        self.lines.of(entry.new.queue).forget_if_idle(entry.new.group)
        self.keys.release(entry.new)
        del self._by_id[entry.id], self._by_sequence[entry.sequence]

    def prioritise(self, entry: Entry, priority: int) -> None:
        if entry.is_in_line:
            self.lines.move(entry, priority)
        else:
            entry.priority = priority

    def _register(self, job: NewJob, now: Instant) -> Entry:
        self._last_sequence += 1
        entry = Entry(
            new=job,
            sequence=self._last_sequence,
            created_at=now,
            run_at=now,
            priority=job.priority,
            private_payload=job.private_payload,
        )
        self._by_id[job.id] = self._by_sequence[entry.sequence] = entry
        # What was found running outside is entered even if another job holds its key: counts must be true.
        if self.keys.holder(job, now) is None:
            self.keys.acquire(job, now)
        return entry

    def _hold(self, entry: Entry, hold: Hold, now: Instant) -> None:
        entry.hold = hold
        entry.worker = hold.worker
        entry.started_at = now

    def _take(self, entry: Entry) -> None:
        """Out of the place where it is, with the counts of that place."""
        line = self.lines.of(entry.new.queue)
        if entry.state is State.RUNNING:
            del self.running[entry.sequence]
            self.lines.count_running(entry, -1)
        elif entry.state.is_final:
            del line.bucket(entry.state)[entry.sequence]
            line.ended[entry.state] -= 1
        elif entry.is_in_line:
            entry.is_in_line = False
            self.lines.leave(entry)
        else:
            del self._delayed[bisect_left(self._delayed, (entry.run_at, entry.sequence))]
            self.lines.count_delayed(entry, -1)

    def _put(self, entry: Entry, now: Instant) -> None:
        """Into the place that its state and its time call for."""
        line = self.lines.of(entry.new.queue)
        if entry.state is State.RUNNING:
            self.running[entry.sequence] = entry
            self.lines.count_running(entry, 1)
        elif entry.state.is_final:
            line.bucket(entry.state)[entry.sequence] = None
            line.ended[entry.state] = line.ended.get(entry.state, 0) + 1
            line.forget_if_idle(entry.new.group)
        elif entry.run_at <= now:
            entry.is_in_line = True
            entry.waiting_for = None
            self.lines.arrive(entry)
        else:
            insort(self._delayed, (entry.run_at, entry.sequence))
            self.lines.count_delayed(entry, 1)
