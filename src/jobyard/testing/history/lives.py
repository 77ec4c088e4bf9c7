"""Each job's life, put together from the records of all processes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from jobyard.domain.instant import Instant
from jobyard.domain.job import Ending, Job, State
from jobyard.domain.lease import Ended
from jobyard.ports.store import Action, Inserted
from jobyard.testing.history.events import (
    Adopted,
    Altered,
    AskAdopt,
    AskChange,
    AskExtend,
    AskInsert,
    AskReclaim,
    AskSignal,
    Handed,
    Heard,
    Reclaimed,
    Sent,
    Signalled,
    Stored,
    Taken,
)
from jobyard.testing.history.reader import NEVER, History, Operation
from jobyard.testing.history.timeline import Timeline


@dataclass(slots=True)
class Span:
    """Where something without a revision may have happened; `begin` and `end` are its bracket in nanoseconds."""

    earliest: int
    latest: int
    begin: int
    end: int

    @property
    def is_certain(self) -> bool:
        return self.end != NEVER


@dataclass(slots=True)
class Settled:
    """An accepted settlement."""

    position: int
    sent: Sent
    now: Instant
    revision: int


@dataclass(slots=True)
class Reclaim:
    span: Span
    ended: Ended


@dataclass(slots=True)
class Change:
    span: Span
    action: Action
    priority: int


@dataclass(slots=True)
class Claim:
    lease: Taken
    position: int  # certainly from here on
    since: int  # perhaps from here on; differs for adopted jobs only
    now: Instant = 0
    expires_at: Instant = 0
    revision: int = 0
    adopted: bool = False
    settled: Settled | None = None  # the first accepted settlement that ended it
    reclaim: Reclaim | None = None
    runs_until: int = 0  # certainly running before this position
    may_run_until: int = 0  # certainly not running from this position on
    end_is_unknown: bool = False  # it may have ended through something whose answer nobody saw


@dataclass(slots=True)
class Gap:
    """Between two recorded claims of a job; `hidden` when one that nobody recorded may lie in it."""

    before: Claim | None
    after: Claim | None
    since: int
    until: int
    hidden: bool = False


@dataclass(slots=True)
class Life:
    id: str
    queue: str | None = None
    group: str | None = None
    handed: Handed | None = None
    inserted: tuple[Span, Inserted] | None = None  # acknowledged
    claims: list[Claim] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    reclaims: list[Reclaim] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    signals: list[Span] = field(default_factory=list)
    intents: list[tuple[Span, Sent]] = field(default_factory=list)  # settlements without an answer
    gaps: list[Gap] = field(default_factory=list)
    final: Job | None = None

    def changed(self, *actions: Action) -> Iterator[Change]:
        return (change for change in self.changes if change.action in actions)

    def may_be_changed(self, since: int, until: int, *actions: Action) -> bool:
        """Whether such a change may lie between the two positions."""
        return any(change.span.latest > since and change.span.earliest <= until for change in self.changed(*actions))

    def gap_at(self, position: int) -> Gap:
        """The gap that ends with the first claim at or after the position."""
        return self.gaps[bisect_left(self.claims, position, key=lambda claim: claim.position)]

    def is_quarantined_by(self, reclaim: Reclaim) -> bool:
        return reclaim.ended.error.ending is Ending.QUARANTINED

    def may_be_cancelled(self) -> bool:
        return any(True for _ in self.changed(Action.CANCEL))

    def ends(self) -> Iterator[tuple[int, State]]:
        """Where it certainly or perhaps became final, at the latest, by something recorded."""
        for settled in self.settled:
            if settled.sent.to.is_final or self.may_be_cancelled():
                yield settled.position, settled.sent.to
        for reclaim in self.reclaims:
            if self.is_quarantined_by(reclaim) or self.may_be_cancelled():
                yield reclaim.span.latest, State.FAILED


class Lives:
    def __init__(self, history: History, timeline: Timeline, final: Sequence[Job] | None) -> None:
        self.by_id: dict[str, Life] = {}
        self.timeline = timeline
        self.lost_reclaims: list[Span] = []
        for job in final or ():
            life = self._life(job.id)
            life.final, life.queue, life.group = job, job.queue, job.group
        self._inserts(history)
        self._exchanges()
        self._others(history)
        for life in self.by_id.values():
            life.claims.sort(key=lambda claim: claim.position)

    def __iter__(self) -> Iterator[Life]:
        return iter(self.by_id.values())

    def span(self, operation: Operation) -> Span:
        earliest, latest = self.timeline.earliest(operation.begin), self.timeline.latest(operation.end)
        return Span(earliest, latest, operation.begin, operation.end)

    def _life(self, job_id: str) -> Life:
        life = self.by_id.get(job_id)
        if life is None:
            life = self.by_id[job_id] = Life(job_id)
        return life

    def _inserts(self, history: History) -> None:
        for operation, question, answer in history.select(AskInsert, Stored):
            span = self.span(operation)
            rows = {row.id: row for row in answer.jobs if row.created} if answer else {}
            for handed in question.jobs:
                row = rows.get(handed.id)
                if row is None and answer is not None:
                    continue
                life = self._life(handed.id)
                life.queue, life.group, life.handed = handed.queue, handed.group, handed
                if row is not None and not question.in_transaction:
                    life.inserted = (span, row)

    def _exchanges(self) -> None:
        for made, base in zip(self.timeline.exchanges, self.timeline.bases, strict=True):
            now, revision = made.answer.now, made.answer.revision
            for sent in made.accepted:
                self._life(sent.job_id).settled.append(Settled(base, sent, now, revision))
            for offset, lease in enumerate(made.answer.leases, 1):
                expires_at = now + round(made.question.lease_seconds * 1000)
                self._claim(Claim(lease, base + offset, base + offset, now, expires_at, revision))
        for operation, question in self.timeline.lost:
            for sent in question.settlements:
                self._life(sent.job_id).intents.append((self.span(operation), sent))

    def _claim(self, claim: Claim) -> None:
        life = self._life(claim.lease.job_id)
        life.queue, life.group = claim.lease.queue, claim.lease.group
        life.claims.append(claim)

    def _others(self, history: History) -> None:
        for operation, _, reclaimed in history.select(AskReclaim, Reclaimed):
            if reclaimed is None:
                self.lost_reclaims.append(self.span(operation))
                continue
            for ended in reclaimed.ended:
                self._life(ended.job_id).reclaims.append(Reclaim(self.span(operation), ended))
        for operation, change, altered in history.select(AskChange, Altered):
            for job_id in change.job_ids if altered is None else altered.changed:
                recorded = Change(self.span(operation), change.action, change.priority)
                self._life(job_id).changes.append(recorded)
        for operation, signal, _ in history.select(AskSignal, Signalled):
            self._life(signal.job_id).signals.append(self.span(operation))
        for operation, _, adopted in history.select(AskAdopt, Adopted):
            if adopted is not None:
                span = self.span(operation)
                self._claim(Claim(adopted.lease, span.latest, span.earliest, adopted=True))
        for operation, extend, _ in history.select(AskExtend, Heard):
            # A renewal counts from its own moment and may be for less; which one won is not needed for a lower bound.
            at_least = self.timeline.now_at_least(operation.begin, extend.lease_seconds)
            for key in extend.keys:
                for claim in self._life(key.job_id).claims:
                    if claim.lease.token == key.token:
                        claim.expires_at = min(claim.expires_at, at_least)
