"""The trace of each job: its inserts, claims, settlements and changes, from the records of all processes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jobyard.domain.instant import Instant
from jobyard.domain.job import Ending, Job, State
from jobyard.domain.lease import ExpiredLease
from jobyard.ports.admin_store import Action
from jobyard.ports.job_store import Inserted
from jobyard.ports.schedule_store import Decision
from jobyard.testing.history import events as e
from jobyard.testing.history.reader import NEVER, History, RecordedOperation
from jobyard.testing.history.timeline import Timeline

NO_SEQUENCE = 0  # for a job whose insertion does not return its sequence


@dataclass(slots=True)
class Span:
    """The positions at which a call without a revision may have taken effect; `begin` and `end` in nanoseconds."""

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
    sent: e.RecordedSettlement
    now: Instant
    revision: int


@dataclass(slots=True)
class Reclaim:
    span: Span
    ended: ExpiredLease


@dataclass(slots=True)
class OperatorChange:
    span: Span
    action: Action
    priority: int


@dataclass(slots=True)
class Claim:
    lease: e.RecordedLease
    position: int  # certainly from here on
    since: int  # perhaps from here on; differs for adopted jobs only
    now: Instant = 0
    now_at_most: Instant = 0  # a store may read its clock and then wait for a lock, while others make jobs due
    expires_at: Instant = 0
    revision: int = 0
    adopted: bool = False
    settled: Settled | None = None  # the first accepted settlement that ended it
    reclaim: Reclaim | None = None
    runs_until: int = 0  # certainly running before this position
    may_run_until: int = 0  # certainly not running from this position on
    end_is_unknown: bool = False  # it may have ended through something whose result was not recorded


@dataclass(slots=True)
class Gap:
    """The time between two recorded claims of a job; `hidden` if there may be an unrecorded claim in it."""

    before: Claim | None
    after: Claim | None
    since: int
    until: int
    hidden: bool = False


@dataclass(slots=True)
class JobTrace:
    id: str
    queue: str | None = None
    group: str | None = None
    submitted: e.RecordedJob | None = None
    inserted: tuple[Span, Inserted] | None = None  # acknowledged
    claims: list[Claim] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    reclaims: list[Reclaim] = field(default_factory=list)
    changes: list[OperatorChange] = field(default_factory=list)
    signals: list[Span] = field(default_factory=list)  # and other deliveries
    checkpoints: list[tuple[Span, str]] = field(default_factory=list)  # with their tokens; perhaps refused
    recorded: set[str] = field(default_factory=set)  # tokens whose checkpoints were certainly accepted
    intents: list[tuple[Span, e.RecordedSettlement]] = field(default_factory=list)  # settlements without a response
    gaps: list[Gap] = field(default_factory=list)
    final: Job | None = None

    @property
    def is_workflow(self) -> bool:
        """Whether it may be one: inserted as one, or a job that recorded a checkpoint."""
        return bool(self.checkpoints) or any(claim.lease.is_workflow for claim in self.claims)

    def may_have_begun(self, position: int) -> bool:
        """Whether it may be a workflow with a history then: it is not cancelled by the store, but ends itself."""
        return any(span.earliest <= position for span, _ in self.checkpoints)

    def may_be_woken(self, position: int) -> bool:
        """Whether it may have been sent something before that position."""
        return any(span.earliest <= position for span in self.signals)

    def changed(self, *actions: Action) -> Iterator[OperatorChange]:
        return (change for change in self.changes if change.action in actions)

    def may_be_changed(self, since: int, until: int, *actions: Action) -> bool:
        """Whether such a change may have taken effect between the two positions."""
        return any(change.span.latest > since and change.span.earliest <= until for change in self.changed(*actions))

    def gap_at(self, position: int) -> Gap:
        """The gap that ends with the first claim at or after the position."""
        return self.gaps[bisect_left(self.claims, position, key=lambda claim: claim.position)]

    def is_quarantined_by(self, reclaim: Reclaim) -> bool:
        return reclaim.ended.error.ending is Ending.QUARANTINED

    def may_be_cancelled(self) -> bool:
        return any(True for _ in self.changed(Action.CANCEL))

    def ends(self) -> Iterator[tuple[int, State]]:
        """The latest positions at which a recorded call made the job final, or may have."""
        for settled in self.settled:
            if settled.sent.to.is_final or self.may_be_cancelled():
                yield settled.position, settled.sent.to
        for reclaim in self.reclaims:
            if self.is_quarantined_by(reclaim) or self.may_be_cancelled():
                yield reclaim.span.latest, State.FAILED


class JobTraces:
    def __init__(self, history: History, timeline: Timeline, final: Sequence[Job] | None) -> None:
        self.by_id: dict[str, JobTrace] = {}
        self.timeline = timeline
        self.lost_reclaims: list[Span] = []
        for job in final or ():
            trace = self._trace(job.id)
            trace.final, trace.queue, trace.group = job, job.queue, job.group
        self._inserts(history)
        self._exchanges()
        self._others(history)
        self._histories(history)
        for trace in self.by_id.values():
            trace.claims.sort(key=lambda claim: claim.position)

    def __iter__(self) -> Iterator[JobTrace]:
        return iter(self.by_id.values())

    def span(self, operation: RecordedOperation) -> Span:
        earliest, latest = self.timeline.earliest(operation.begin), self.timeline.latest(operation.end)
        return Span(earliest, latest, operation.begin, operation.end)

    def _trace(self, job_id: str) -> JobTrace:
        trace = self.by_id.get(job_id)
        if trace is None:
            trace = self.by_id[job_id] = JobTrace(job_id)
        return trace

    def _inserts(self, history: History) -> None:
        for operation, request, response in history.select(e.RecordedInsert, e.InsertReturned):
            rows = None if response is None else {row.id: row for row in response.jobs if row.created}
            self._add_inserts(operation, request.jobs, rows, is_certain=not request.in_transaction)
        for operation, decide, decided_by in history.select(e.RecordedDecide, e.DecideReturned):
            for number, due in enumerate(decide.ticks):
                if due.job is None:
                    continue
                decided = None if decided_by is None else decided_by.decided[number]
                rows = None
                if decided is not None and decided.decision is not Decision.UNAVAILABLE:
                    is_made = decided.job_id == due.job.id
                    rows = {due.job.id: Inserted(due.job.id, True, NO_SEQUENCE)} if is_made else {}
                self._add_inserts(operation, [due.job], rows)

    def _add_inserts(
        self,
        operation: RecordedOperation,
        jobs: Sequence[e.RecordedJob],
        rows: Mapping[str, Inserted] | None,
        is_certain: bool = True,
    ) -> None:
        for submitted in jobs:
            row = None if rows is None else rows.get(submitted.id)
            if row is None and rows is not None:
                continue
            trace = self._trace(submitted.id)
            trace.queue, trace.group, trace.submitted = submitted.queue, submitted.group, submitted
            if row is not None and is_certain:
                trace.inserted = (self.span(operation), row)

    def _exchanges(self) -> None:
        for exchange, base in zip(self.timeline.exchanges, self.timeline.bases, strict=True):
            now, revision = exchange.response.now, exchange.response.revision
            for sent in exchange.accepted:
                self._trace(sent.job_id).settled.append(Settled(base, sent, now, revision))
            for offset, lease in enumerate(exchange.response.leases, 1):
                expires_at = now + round(exchange.request.lease_seconds * 1000)
                at_most = now + (exchange.end - exchange.begin) // 1_000_000
                self._claim(Claim(lease, base + offset, base + offset, now, at_most, expires_at, revision))
        for operation, request in self.timeline.lost:
            for sent in request.settlements:
                self._trace(sent.job_id).intents.append((self.span(operation), sent))

    def _claim(self, claim: Claim) -> None:
        trace = self._trace(claim.lease.job_id)
        trace.queue, trace.group = claim.lease.queue, claim.lease.group
        trace.claims.append(claim)

    def _others(self, history: History) -> None:
        for operation, _, reclaimed in history.select(e.RecordedReclaim, e.ReclaimReturned):
            if reclaimed is None:
                self.lost_reclaims.append(self.span(operation))
                continue
            for ended in reclaimed.ended:
                self._trace(ended.job_id).reclaims.append(Reclaim(self.span(operation), ended))
        for operation, change, altered in history.select(e.RecordedChange, e.ChangeReturned):
            for job_id in change.job_ids if altered is None else altered.changed:
                recorded = OperatorChange(self.span(operation), change.action, change.priority)
                self._trace(job_id).changes.append(recorded)
        for operation, signal, _ in history.select(e.RecordedSignal, e.SignalReturned):
            self._trace(signal.job_id).signals.append(self.span(operation))
        for operation, _, adopted in history.select(e.RecordedAdopt, e.AdoptReturned):
            if adopted is not None:
                span = self.span(operation)
                self._claim(Claim(adopted.lease, span.latest, span.earliest, adopted=True))
        for operation, extend, _ in history.select(e.RecordedExtend, e.LeasesReturned):
            # A lower bound: a renewal may shorten the lease, and the order of two renewals may be unknown.
            at_least = self.timeline.now_at_least(operation.begin, extend.lease_seconds)
            for key in extend.keys:
                for claim in self._trace(key.job_id).claims:
                    if claim.lease.token == key.token:
                        claim.expires_at = min(claim.expires_at, at_least)

    def _histories(self, history: History) -> None:
        for operation, delivery, _ in history.select(e.RecordedDelivery, e.NothingReturned):
            for job_id in delivery.job_ids:
                self._trace(job_id).signals.append(self.span(operation))
        for operation, checkpoint, heard in history.select(e.RecordedCheckpoint, e.LeasesReturned):
            refused = () if heard is None else heard.lost
            for key in checkpoint.keys:
                if key in refused:
                    continue
                self._trace(key.job_id).checkpoints.append((self.span(operation), key.token))
                if heard is not None:
                    self._trace(key.job_id).recorded.add(key.token)
